//! Making an endpoint.

use std::{fmt, os::fd::OwnedFd, path::PathBuf, sync::Arc, time::Duration};

use zeroize::Zeroizing;

use super::{Active, Endpoint, Progress, active::Function};
use crate::{
    Error, PathSet, Result, SendMode,
    transport::{
        local::{Access, Address},
        tcp::{self, key::Key},
    },
    worker::config::Config,
};

/// The settings of an endpoint to be made; each has a default.
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

/// The place of the key.
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
    /// Listens at `address`, so that others can connect: `local:NAME` for peers on this host,
    /// `tcp:HOST:PORT` for peers on others, one of each at most; the last of a kind counts. Port 0
    /// picks a free one, see [`Endpoint::listens_at`].
    ///
    /// At any `HOST` but a loopback address a [key](Builder::key_file) is needed.
    pub fn listen(mut self, address: &str) -> Builder {
        self.listen.push(address.to_owned());
        self
    }

    /// As [`Builder::listen`] at a `tcp:` address, by a socket that listens there already, such as
    /// systemd passes to a service (`sd_listen_fds(3)`). The socket is put into non-blocking mode,
    /// and goes on listening when the endpoint is closed: callers then wait for the next. The last
    /// one counts.
    ///
    /// There is nothing like it for `local:` addresses: peers ask the kernel who listens there, and
    /// would learn who had made the socket.
    pub fn listen_on(mut self, address: &str, socket: OwnedFd) -> Builder {
        self.config.listen_socket = Some(Arc::new(socket));
        self.listen(address)
    }

    /// The file with the key that this endpoint shares with those on other hosts: 32 to 4,096
    /// bytes. The file must belong to this user or to root, only its owner may write it, and it
    /// must not be readable by all users. Its group may read it if this process is in that group or
    /// the file is root's, as where secrets are mounted into containers. Both sides prove that they
    /// have the same key before anything else; it is never sent. It does not protect the bytes that
    /// follow, unless they are [encrypted](Builder::encrypt).
    pub fn key_file(mut self, path: impl Into<PathBuf>) -> Builder {
        self.key = Some(KeySource::File(path.into()));
        self
    }

    /// The same key as bytes.
    pub fn key(mut self, bytes: &[u8]) -> Builder {
        self.key = Some(KeySource::Bytes(Zeroizing::new(bytes.to_vec())));
        self
    }

    /// Encrypts connections with other hosts if `wanted`: TLS 1.3, for those that this endpoint
    /// makes and those that it accepts. Nothing on the way can then read or change the bytes, as
    /// long as both sides have a [key](Builder::key_file) that it does not have; there are no
    /// certificates. Both sides have to set the same: else [`Endpoint::connect`] fails with
    /// [`Error::Greeting`](crate::Error::Greeting) at either. Default: no.
    ///
    /// The cost: two more round trips to connect, and a key exchange; this process encrypts and
    /// decrypts each byte as it copies it; buffers of some 100 to 200 KiB for each peer. On a Xeon
    /// of 2023, over the loopback, 8 bytes took 4.3 µs in place of 3.7, and a stream of 1 MiB went
    /// at 2.8 GB/s in place of 7.3 (`pinfold perf tcp --tls` measures it). Long messages are copied
    /// by this process: no [`SendMode`] that avoids the copy is used, nor an io_uring
    /// ([`Receipt::send_refused`](crate::Receipt::send_refused)).
    /// [`PeerInfo::encryption`](crate::PeerInfo::encryption) names the cipher suite. Takes the
    /// feature `tls`, which is on by default; without it [`Builder::build`] fails with
    /// [`Error::LimitReached`](crate::Error::LimitReached).
    ///
    /// Peers on this host that are reached [as such](Builder::local_shortcut) are not encrypted:
    /// there is no connection. The greeting, with labels, is not encrypted.
    pub fn encrypt(mut self, wanted: bool) -> Builder {
        self.config.encrypts = wanted;
        self
    }

    /// Reaches a peer that is called by host and port, or calls so, through shared memory if
    /// `wanted` and it turns out to be on this host: by all [paths](Builder::paths) that the pair
    /// can take. The peer must want that, too, [admit](Builder::access) this user, and share its
    /// network, process-id and IPC namespaces; otherwise the pair stays with its connection, and
    /// receipts say why.
    ///
    /// This is settled before the first message. An endpoint that listens at `tcp:HOST:PORT` has a
    /// separate name for it in the directory of local names, at which no peer is admitted that has
    /// not shown the key. Default: yes. `false` also hides from peers which host this is.
    pub fn local_shortcut(mut self, wanted: bool) -> Builder {
        self.config.local_shortcut = wanted;
        self
    }

    /// The name of this endpoint in peers' errors and reports, beside its process id; at most 32
    /// bytes.
    pub fn label(mut self, label: &str) -> Builder {
        self.config.label = label.to_owned();
        self
    }

    /// The users that may connect. Default: the same user.
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

    /// The threads that drive the endpoint. Default: [`Progress::Inline`].
    pub fn progress(mut self, progress: Progress) -> Builder {
        self.config.progress = progress;
        self
    }

    /// The time that [`Endpoint::connect`] waits for the other side to answer. Default: 30 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Builder {
        self.config.connect_timeout = timeout;
        self
    }

    /// The time that a peer on another host may be without a connection. If one breaks, the side
    /// that had connected calls again, as often as necessary, and both resume: every message comes
    /// once and in order. Operations wait meanwhile. A peer that does not come back in time is
    /// [`Gone::Lost`](crate::Gone::Lost); one that was restarted is a new peer. The shorter of both
    /// sides' times counts. Default: 10 s.
    ///
    /// An idle connection is probed after half of this time, in whole seconds, 1 to 5 of them. It
    /// breaks at the latest when for three times as long again nothing has come back, or the peer
    /// took nothing of the bytes that wait to be sent.
    ///
    /// Zero: a broken connection is not made again, and a long send ends when the network has its
    /// bytes, not when the peer has.
    ///
    /// A program that calls its endpoint less often than this cannot take a peer back, unless the
    /// endpoint has [a thread](Progress::Dedicated).
    pub fn reconnect_timeout(mut self, limit: Duration) -> Builder {
        self.config.reconnect_timeout = limit;
        self
    }

    /// Has its transports do badly what they may do badly, at random from this seed.
    #[cfg(test)]
    pub(crate) fn faults(mut self, seed: u64) -> Builder {
        self.config.faults = Some(seed);
        self
    }

    /// Bytes that all lanes to peers may grow by together, beyond the 16 KiB an idle peer takes.
    /// At the limit lanes stay small and messages go slower. Default: 64 MiB.
    pub fn lane_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.lane_bytes_max = bytes;
        self
    }

    /// Bytes of address space for arenas of peers that are mapped here, over all peers. At the
    /// limit the mapping that was not used for longest is unmapped. Default: 1 TiB; it takes no
    /// memory.
    ///
    /// Parts that are mapped in a row ([`Endpoint::handoff_vectored`]) lie in other addresses: 8
    /// GiB, or as many as there are, shared by all endpoints of a process.
    pub fn mapped_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.mapped_bytes_max = bytes;
        self
    }

    /// Bytes for unexpected messages, which come before their receives, over all peers, with 128
    /// for each. They are shared out as credit. A peer begins with a sixteenth of the rest, 512 KiB
    /// at most, and gets more as it needs it, up to three quarters of all: as many messages of 8
    /// bytes as `bytes` / 182, some 737,000 by default. The last quarter is for peers that come
    /// later. A peer keeps the credit it has been granted.
    ///
    /// A sender without credit waits until the receive for its message is posted, and no other
    /// message is held up by that: [`Endpoint::send_timeout`](crate::Endpoint::send_timeout) limits
    /// the wait, `pinfold top` shows which endpoint waits for which, and since when. Long messages
    /// stay with their senders and take only an entry each: 131,072 of a peer are known here before
    /// their receives, or as many as half of its share has room for. Default: 128 MiB.
    pub fn unexpected_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.unexpected_bytes_max = bytes;
        self
    }

    /// Bytes of memory that is given to one peer ([`Endpoint::give`], [`Endpoint::handoff`]) and is
    /// not back, with 1 KiB for each message; one message may be longer. At the limit
    /// [`Endpoint::give`] waits until the receiver has dropped views, and [`Endpoint::try_give`]
    /// gives nothing; a hand-off is queued, and so is every later message to that peer. A receiver
    /// that needs more than this at the same time waits for ever. Default: 512 MiB.
    pub fn given_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.given_bytes_max = bytes as u64;
        self
    }

    /// The most messages of one tag, given by [`Endpoint::give_latest`], that a peer has at a time,
    /// looked at or not; the newest after them waits here. With 1 the receiver never gets one older
    /// than the last one given before it was done with the one before, but waits for each. Default:
    /// 2, one to look at and one to take next.
    pub fn frames_in_flight(mut self, frames: u32) -> Builder {
        self.config.frames_max = frames;
        self
    }

    /// Makes `handler` the handler of active messages with number `id`, from the first one on; as
    /// [`Endpoint::handle`], which comes later.
    pub fn handle(
        mut self,
        id: u32,
        handler: impl Fn(Active<'_>) + Send + Sync + 'static,
    ) -> Builder {
        self.config.handlers.set(id, Function::handler(handler));
        self
    }

    /// Bytes of long active messages that are fetched for their handlers at a time, over all peers;
    /// others wait in their senders' memory. A longer one is refused: its sender gets
    /// [`Error::NotHandled`](crate::Error::NotHandled). Default: 256 MiB.
    pub fn active_bytes_max(mut self, bytes: usize) -> Builder {
        self.config.active_bytes_max = bytes;
        self
    }

    /// The mode in which long messages (from 16 KiB on) are sent to other hosts, wherever it is
    /// possible; else the next mode above it in [`SendMode`]. Default: the mode that is expected to
    /// be cheapest for the message and its connection. Receipts name the mode
    /// ([`Receipt::sent_by`](crate::Receipt::sent_by)).
    ///
    /// [`SendMode::Cached`] and [`SendMode::Aligned`] need `CAP_SYS_ADMIN`: only with the numbers
    /// of pages, which the kernel shows to nobody else, can the endpoint tell that a registration
    /// still stands for the memory at its addresses. Each such message looks, which takes 1 µs for
    /// 64 KiB and 7 for 1 MiB.
    pub fn send_mode(mut self, mode: SendMode) -> Builder {
        self.config.sending.mode = Some(mode);
        self
    }

    /// Allows an io_uring to send to other hosts. Without one, system calls send messages, in
    /// [`SendMode::Plain`] and [`SendMode::PerSend`]; receipts name the driver
    /// ([`Receipt::send_driver`](crate::Receipt::send_driver)). Default: if no filter on system
    /// calls is in force, since a filter might kill a process that asks for a ring.
    pub fn io_uring(mut self, may: bool) -> Builder {
        self.config.sending.ring = Some(may);
        self
    }

    /// Allows a message that the library holds in pieces to be made contiguous by moving its pages,
    /// which takes a `userfaultfd`. It is asked for once in a process, by the first message that
    /// would gain by it. Pieces that are not moved are copied;
    /// [`Message::folded`](crate::Message::folded) says which. Default: if no filter on system
    /// calls is in force, since a filter might kill the process that asks.
    pub fn move_pages(mut self, may: bool) -> Builder {
        self.config.moves = Some(may);
        self
    }

    /// Allows the memory of long receives to be prefaulted before their messages come: missing
    /// pages are filled in, up to 4 MiB, or as much as the last messages filled, by a thread that
    /// waits at the endpoint or drives it. Receipts say how much
    /// ([`Receipt::prefaulted`](crate::Receipt::prefaulted)). Memory of a file, or that another
    /// process or a `userfaultfd` is involved in, is left alone. To tell the last takes a
    /// `userfaultfd`, which is asked for once. Default: if no filter on system calls is in force,
    /// since a filter might kill the process that asks. With `true` memory is prefaulted under a
    /// filter, too, without asking: the program thereby says that no `userfaultfd` has such memory,
    /// or that the thread may wait for it.
    pub fn prepare_receives(mut self, may: bool) -> Builder {
        self.config.prepares = Some(may);
        self
    }

    /// Heeds a shortage of processors, where more threads want one than there are: this side then
    /// sleeps at once instead of spinning, and one side copies a message alone. `false`: as if
    /// there were none, for programs that have their processors to themselves. Default: `true`.
    /// An endpoint that has spun 20 µs in vain reads `/proc/loadavg`, at most 500 times a second.
    pub fn heed_shortage(mut self, may: bool) -> Builder {
        self.config.heeds_shortage = may;
        self
    }

    /// The most peers. Default: 1,048,576; descriptors (three a peer on this host, two where the
    /// kernel does not reach it, and three more once the two have woken each other often) run out
    /// before.
    pub fn peers_max(mut self, peers: usize) -> Builder {
        self.config.peers_max = peers;
        self
    }

    /// Makes the endpoint.
    ///
    /// # Errors
    /// [`Error::BadAddress`](crate::Error::BadAddress),
    /// [`Error::NameInUse`](crate::Error::NameInUse),
    /// [`Error::NotAllowed`](crate::Error::NotAllowed) for an unsafe directory,
    /// [`Error::KeyNeeded`](crate::Error::KeyNeeded),
    /// [`Error::UnusableKey`](crate::Error::UnusableKey),
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
        if self.config.listen_socket.is_some() && self.config.listen_tcp.is_none() {
            return Err(Error::NotAllowed {
                name: self.listen.join(", "),
                why: "a socket can be listened at by a tcp: address alone; name one, such as \
                      tcp:0.0.0.0:0, or listen without it"
                    .into(),
            });
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
