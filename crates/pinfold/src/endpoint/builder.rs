//! Making an endpoint.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use zeroize::Zeroizing;

use super::{
    Active, Endpoint,
    config::{Config, Progress},
};
use crate::{
    Error, PathSet, Result, SendMode,
    transport::{
        local::{Access, Address},
        tcp::{self, key::Key},
    },
};

/// The settings of an endpoint to be made; each has a sensible default.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let endpoint = pinfold::Endpoint::builder().label("worker").strict(false).build()?;
/// assert!(endpoint.peers().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    config: Config,
    listen: Vec<String>,
    key: Option<KeySource>,
}

/// Where the key is.
#[derive(Clone)]
enum KeySource {
    File(PathBuf),
    Bytes(Zeroizing<Vec<u8>>),
}

impl fmt::Debug for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySource::File(path) => path.fmt(f),
            KeySource::Bytes(_) => f.write_str("a key"),
        }
    }
}

impl Builder {
    /// Listens at `address`, so that others can connect: `local:NAME` for those on this host,
    /// `tcp:HOST:PORT` for those on others, one of each at most; the last of a kind counts. Port 0 is one
    /// that is free, see [`Endpoint::listens_at`].
    ///
    /// At any `HOST` but a loopback address a [key](Builder::key_file) is needed.
    pub fn listen(mut self, address: &str) -> Builder {
        self.listen.push(address.to_owned());
        self
    }

    /// The file with the key that this endpoint shares with those on other hosts: 32 to 4,096
    /// bytes. It belongs to this user or to root, who alone can write it; all users cannot read it.
    /// Its group can, if this process is in that or the file is root's, as where secrets are
    /// mounted into containers. Both sides prove that they have the same before anything else; it
    /// is never sent. What is said after that is not protected by it, unless it is
    /// [encrypted](Builder::encrypt).
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.key = Some(KeySource::File(path.into()));
        self
    }

    /// The same key as bytes.
    pub fn key(mut self, bytes: &[u8]) -> Builder {
        self.key = Some(KeySource::Bytes(Zeroizing::new(bytes.to_vec())));
        self
    }

    /// Whether connections with other hosts are encrypted: TLS 1.3, for those that this endpoint calls and for those
    /// that call it. Nobody on the way can then read or change what is said, as long as both sides have a
    /// [key](Builder::key_file) that he has not; there are no certificates. Both sides have to want the same: else
    /// [`Endpoint::connect`] is [`Error::Greeting`](crate::Error::Greeting) at either. Default: no.
    ///
    /// The cost: two more round trips to connect, and a key exchange; each byte is encrypted and decrypted by this
    /// process as it is copied; buffers of some 100 to 200 KiB for each peer. On a Xeon of 2023, over the loopback, 8 bytes
    /// took 4.3 µs in place of 3.7, and a stream of 1 MiB went at 2.8 GB/s in place of 7.3 (`pinfold perf tcp --tls`
    /// measures it). Long messages are copied by this process: none is sent by a [`SendMode`] that spares that, nor by an io_uring
    /// ([`Receipt::send_refused`](crate::Receipt::send_refused)).
    /// [`PeerInfo::encryption`](crate::PeerInfo::encryption) says by what it is done.
    ///
    /// Peers on this host that are reached [as such](Builder::local_shortcut) are not encrypted: there is no
    /// connection. What is said in the greeting, as labels, can be heard on the way.
    pub fn encrypt(mut self, wanted: bool) -> Builder {
        self.config.encrypts = wanted;
        self
    }

    /// Whether a peer that is called by host and port, or calls so, and turns out to be on this very host is
    /// reached as one: through shared memory, by all [paths](Builder::paths) that the pair can take. The
    /// peer must want that, too, [admit](Builder::access) this user, and share its network, process-id and
    /// IPC namespaces; otherwise the pair stays with its connection, and receipts say why.
    ///
    /// That is found out before the first message. Whoever listens at `tcp:HOST:PORT` has a name of its own
    /// for it in the directory of local names, at which none is admitted that has not shown the key.
    /// Default: yes. `false` also keeps from peers which host this is.
    pub fn local_shortcut(mut self, wanted: bool) -> Builder {
        self.config.local_shortcut = wanted;
        self
    }

    /// What peers call this endpoint in errors and reports, beside its process id; at most 32 bytes.
    pub fn label(mut self, label: &str) -> Builder {
        self.config.label = label.to_owned();
        self
    }

    /// Who may connect. Default: the same user.
    pub fn access(mut self, access: Access) -> Builder {
        self.config.access = access;
        self
    }

    /// The paths messages may take. Default: all.
    pub fn paths(mut self, paths: PathSet) -> Builder {
        self.config.paths = paths;
        self
    }

    /// Makes it an error when the machine denies the path that would be fastest for a message.
    /// Default: the next best is taken, and the receipt says why.
    pub fn strict(mut self, strict: bool) -> Builder {
        self.config.strict = strict;
        self
    }

    /// Who drives the endpoint. Default: [`Progress::Inline`].
    pub fn progress(mut self, progress: Progress) -> Builder {
        self.config.progress = progress;
        self
    }

    /// How long [`Endpoint::connect`] waits for the other side to answer. Default: 30 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.config.connect_timeout = timeout;
        self
    }

    /// How long a peer on another host may be without a connection. If one breaks, the side that had
    /// connected calls again, as often as need be, and both go on where they were: every message comes once
    /// and in order. Operations wait meanwhile. A peer that does not come back in time is
    /// [`Gone::Lost`](crate::Gone::Lost); one that was started anew is a new peer. The shorter of both
    /// sides' times counts. Default: 10 s.
    ///
    /// A connection without a word is probed after half of this time, in whole seconds, 1 to 5 of them. It breaks
    /// at the latest when for three times as long again nothing has come back, or nothing was taken of what
    /// waits to be sent.
    ///
    /// Zero: no connection is made anew, and a long send ends when the network has its bytes, not when
    /// the peer has.
    ///
    /// Who calls its endpoint less often than this cannot take a peer back, unless it has
    /// [a thread](Progress::Dedicated).
    pub fn reconnect_timeout(mut self, limit: Duration) -> Builder {
        self.config.reconnect_timeout = limit;
        self
    }

    /// Bytes that all lanes to peers may grow by together, beyond the 16 KiB an idle peer takes.
    /// At the limit lanes stay small and messages go slower. Default: 64 MiB.
    pub fn lane_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.lane_bytes_max = bytes;
        self
    }

    /// Bytes of address space for arenas of peers that are mapped here, over all peers. At the limit
    /// what was not used for longest is unmapped. Default: 1 TiB; no memory is taken by it.
    ///
    /// Parts that are mapped in a row ([`Endpoint::handoff_vectored`]) are so in addresses beside these: 8 GiB, or as
    /// many as there are, which all endpoints of a process have together.
    pub fn mapped_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.mapped_bytes_max = bytes;
        self
    }

    /// Bytes for messages that come before anybody asks for them, over all peers, with 128 for each. They are shared
    /// out as credit. A peer begins with a sixteenth of what is left, 512 KiB at most, and gets more as it needs it, up
    /// to three quarters of all: as many messages of 8 bytes as `bytes` / 182, some 737,000 by default. The last quarter
    /// is for peers that come later. What a peer has been granted it keeps.
    ///
    /// A sender without credit waits until the receive for its message is posted, and no other message for that is
    /// held up: [`Endpoint::send_timeout`](crate::Endpoint::send_timeout) waits no longer than it is told to,
    /// `pinfold top` shows who waits for whom, and since when. Long messages stay with their senders and take none of
    /// this but an entry each: 131,072 of a peer are known here before their receives, or as many as half of its share
    /// has room for. Default: 128 MiB.
    pub fn unexpected_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.unexpected_bytes_max = bytes;
        self
    }

    /// Bytes of memory that is given to one peer ([`Endpoint::give`], [`Endpoint::handoff`]) and is not back, with 1 KiB
    /// for each message; one message may be longer. At the limit [`Endpoint::give`] waits until the receiver has
    /// dropped views of what it has, and [`Endpoint::try_give`] gives nothing; what is handed off is queued, and so is
    /// what is sent to that peer after it. A receiver that has to have more than this at the same time waits for ever.
    /// Default: 512 MiB.
    pub fn given_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.given_bytes_max = bytes as u64;
        self
    }

    /// How many messages of one tag that were given by [`Endpoint::give_latest`] a peer has at most, looked at or not;
    /// the newest of those after them waits here. 1: the receiver never gets one that is older than the last one
    /// given before it was done with the one before, and waits for each. Default: 2, one to look at and one to take
    /// next.
    pub fn frames_in_flight(mut self, frames: u32) -> Builder {
        self.config.frames_max = frames;
        self
    }

    /// Has `handler` see to the active messages of number `id`, from the first one on; as
    /// [`Endpoint::handle`], which comes later.
    pub fn handle(
        mut self,
        id: u32,
        handler: impl Fn(Active<'_>) + Send + Sync + 'static,
    ) -> Builder {
        self.config.handlers.set(id, Arc::new(handler));
        self
    }

    /// Bytes of long active messages that are fetched for their handlers at a time, over all peers;
    /// others wait in their senders' memory. A longer one is refused: its sender gets
    /// [`Error::NotHandled`](crate::Error::NotHandled). Default: 256 MiB.
    pub fn active_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.active_bytes_max = bytes;
        self
    }

    /// How long messages (from 16 KiB on) to other hosts are sent, wherever it can be done; else by the
    /// next mode above it in [`SendMode`]. Default: by whatever is expected to be cheapest for the message and
    /// its connection. Receipts say what was done ([`Receipt::sent_by`](crate::Receipt::sent_by)).
    ///
    /// [`SendMode::Cached`] and [`SendMode::Aligned`] take `CAP_SYS_ADMIN`: without the numbers of pages, which the
    /// kernel shows to nobody else, it is not known whether memory that was registered is still what lies there.
    /// Each such message looks, which takes 1 µs for 64 KiB and 7 for 1 MiB.
    pub fn send_mode(mut self, mode: SendMode) -> Builder {
        self.config.sending.mode = Some(mode);
        self
    }

    /// Whether an io_uring may be used to send to other hosts. Where there can be none, messages are sent by
    /// calls, which do [`SendMode::Plain`] and [`SendMode::PerSend`]; receipts say which it was
    /// ([`Receipt::send_driver`](crate::Receipt::send_driver)). Default: if no filter on system calls is in
    /// force, for that might end who asks for a ring.
    pub fn io_uring(mut self, may: bool) -> Builder {
        self.config.sending.ring = Some(may);
        self
    }

    /// Whether messages that the library holds in pieces may be brought into a row by moving their pages, which takes a
    /// `userfaultfd`. It is asked for once in a process, by the first message that would gain by it. Where they are
    /// not moved they are copied; [`Message::folded`](crate::Message::folded) says what was done. Default: if no filter on
    /// system calls is in force, for that might end who asks.
    pub fn move_pages(mut self, may: bool) -> Builder {
        self.config.moves = Some(may);
        self
    }

    /// Whether the memory of long receives is made ready while their messages have not come: pages are put where there
    /// are none, up to 4 MiB, or as much as the last messages filled, by a thread that waits for something at the
    /// endpoint or drives it. Receipts say how much it was
    /// ([`Receipt::prefaulted`](crate::Receipt::prefaulted)). It is left alone if a file, another
    /// process or a `userfaultfd` has to do with it. To tell the last takes one, for which this
    /// asks once. Default: if no filter on system calls is in force, for that might end who asks.
    /// With `true` it is done under a filter, too, without asking: the program says by that that no
    /// `userfaultfd` has such memory, or the thread waits for it.
    pub fn prepare_receives(mut self, may: bool) -> Builder {
        self.config.prepares = Some(may);
        self
    }

    /// Peers at most. Default: 1,048,576; descriptors (three a peer on
    /// this host, two where the kernel does not reach it) run out before.
    pub fn peers_max(mut self, peers: usize) -> Builder {
        self.config.peers_max = peers;
        self
    }

    /// Makes the endpoint.
    ///
    /// # Errors
    /// [`Error::BadAddress`](crate::Error::BadAddress), [`Error::NameInUse`](crate::Error::NameInUse),
    /// [`Error::NotAllowed`](crate::Error::NotAllowed) for an unsafe directory,
    /// [`Error::KeyNeeded`](crate::Error::KeyNeeded), [`Error::UnusableKey`](crate::Error::UnusableKey),
    /// [`Error::LimitReached`](crate::Error::LimitReached) for a setting out of range, and
    /// [`Error::Os`](crate::Error::Os).
    pub fn build(mut self) -> Result<Endpoint> {
        for address in &self.listen {
            if address.starts_with("tcp:") {
                self.config.listen_tcp = Some(tcp::address::parse(address)?);
            } else {
                self.config.listen = Some(address.parse::<Address>()?);
            }
        }
        let key = match self.key.take() {
            Some(KeySource::File(path)) => Some(Key::from_file(&path)),
            Some(KeySource::Bytes(bytes)) => Some(Key::from_bytes(&bytes)),
            None => None,
        };
        let key = key.transpose().map_err(|error| Error::UnusableKey(error.to_string()))?;
        self.config.key = key.map(Arc::new);
        Endpoint::from_config(self.config)
    }
}
