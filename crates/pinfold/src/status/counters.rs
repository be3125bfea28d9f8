//! The counts of an endpoint's work so far.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use super::{
    Tally,
    layout::{Header, OneSidedWords, PathWords, Record},
};
use crate::{Path, sync::AtomicU64};

/// Messages and bytes by path.
///
/// ```
/// use pinfold::{Endpoint, Path, PathCount};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-path-count-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// for _ in 0..3 {
///     endpoint.send(itself, 1, b"four")?;
///     endpoint.recv(peer, 1)?;
/// }
/// let inline: PathCount = endpoint.counters().received[Path::Inline as usize];
/// assert_eq!((inline.messages, inline.bytes), (3, 12));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PathCount {
    /// Messages.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
}

impl AddAssign for PathCount {
    fn add_assign(&mut self, other: PathCount) {
        self.messages = self.messages.wrapping_add(other.messages);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// One-sided operations of an endpoint on memory of peers, their regions or memory exposed by its
/// addresses: those that succeeded.
///
/// ```
/// use pinfold::{Endpoint, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-one-sided-count-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// remote.write(0, b"eight by")?;
/// remote.fetch_add(8, 1u64)?;
/// let count = endpoint.counters().one_sided;
/// assert_eq!((count.writes, count.written_bytes, count.atomics), (1, 8, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct OneSidedCount {
    /// Writes; one with several parts counts once.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Reads; one with several parts counts once.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Atomic operations.
    pub atomics: u64,
    /// Writes and reads that the kernel copied ([`Path::Cma`](crate::Path::Cma)).
    pub by_kernel: u64,
    /// Operations that the peer's endpoint did ([`Path::Eager`](crate::Path::Eager)). All others
    /// went through a mapping.
    pub by_agent: u64,
}

impl OneSidedCount {
    /// The counts of the thread that made the endpoint and of all others together.
    fn of(record: &Record<u64>) -> OneSidedCount {
        let sum = |of: fn(&OneSidedWords<u64>) -> u64| {
            of(&record.by_maker).wrapping_add(of(&record.by_others))
        };
        OneSidedCount {
            writes: sum(|words| words.writes),
            written_bytes: sum(|words| words.written_bytes),
            reads: sum(|words| words.reads),
            read_bytes: sum(|words| words.read_bytes),
            atomics: sum(|words| words.atomics),
            by_kernel: sum(|words| words.by_kernel),
            by_agent: sum(|words| words.by_agent),
        }
    }
}

impl AddAssign for OneSidedCount {
    fn add_assign(&mut self, other: OneSidedCount) {
        // A stranger's page may hold any numbers.
        self.writes = self.writes.wrapping_add(other.writes);
        self.written_bytes = self.written_bytes.wrapping_add(other.written_bytes);
        self.reads = self.reads.wrapping_add(other.reads);
        self.read_bytes = self.read_bytes.wrapping_add(other.read_bytes);
        self.atomics = self.atomics.wrapping_add(other.atomics);
        self.by_kernel = self.by_kernel.wrapping_add(other.by_kernel);
        self.by_agent = self.by_agent.wrapping_add(other.by_agent);
    }
}

/// Counts since an endpoint was made; see [`Endpoint::counters`](crate::Endpoint::counters).
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-counters-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send(itself, 1, b"hello")?;
/// endpoint.recv(peer, 1)?;
/// let counters = endpoint.counters();
/// let sent: u64 = counters.sent.iter().map(|path| path.messages).sum();
/// assert_eq!((sent, counters.copied_kernel), (1, 0));
/// assert_eq!((counters.peers_joined, counters.peers_gone), (2, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Counters {
    /// Messages sent, by path; index with [`Path`] as `usize`.
    pub sent: [PathCount; Path::ALL.len()],
    /// Messages received, by path.
    pub received: [PathCount; Path::ALL.len()],
    /// Bytes this process copied at user level.
    pub copied_user: u64,
    /// Bytes for whose copy an algorithm was chosen, in parts of 2 KiB and more: those of
    /// `copied_user`, and the bytes of one-sided operations and those copied out of views, which
    /// are not in `copied_user`.
    pub copied_bulk: u64,
    /// Bytes of `copied_bulk` that were stored past the caches.
    pub copied_streamed: u64,
    /// Bytes the kernel copied in calls of this process.
    pub copied_kernel: u64,
    /// Messages that came before their receive was posted.
    pub unexpected: u64,
    /// Messages that went as announcements because the receiver's credit was spent.
    pub credit_stalls: u64,
    /// Sends that had to wait for room in a lane.
    pub room_stalls: u64,
    /// Times a sleeping peer was woken.
    pub doorbells_sent: u64,
    /// Times this endpoint went to sleep.
    pub sleeps: u64,
    /// Times this process has had other processors interrupted (`membarrier(2)`): for endpoints
    /// that had long been quiet, for regions withdrawn, for a second thread at an endpoint. For
    /// all its endpoints together.
    pub barriers: u64,
    /// Parts of messages that were sent out of memory whose translation the TLB had.
    pub tlb_hits: u64,
    /// Those that the TLB did not have, and the pin-down cache did.
    pub pin_hits: u64,
    /// Those whose memory was pinned for them.
    pub pin_misses: u64,
    /// Areas that were unpinned since others needed the room: this endpoint's, or the process's.
    pub pin_evictions: u64,
    /// Bytes that are pinned for this endpoint now.
    pub pinned_bytes: u64,
    /// Peers that connected or were connected to.
    pub peers_joined: u64,
    /// Peers that went, for any reason.
    pub peers_gone: u64,
    /// One-sided operations on regions of peers. Operations of peers on this endpoint's regions
    /// are not known here.
    pub one_sided: OneSidedCount,
    /// Calls and requests made.
    pub called: u64,
    /// Active messages that were handled, panics included.
    pub handled: u64,
    /// Active messages whose handler panicked.
    pub handlers_panicked: u64,
    /// Active messages that were dropped: there was no handler of their number, they were too
    /// long, or their sender went before they were whole.
    pub unhandled: u64,
    /// Messages whose memory was to be given and that waited until their receiver had given some
    /// back ([`Builder::given_bytes_max`](crate::Builder::given_bytes_max)).
    pub given_stalls: u64,
    /// Messages that a newer one took the place of before they were sent
    /// ([`Endpoint::give_latest`](crate::Endpoint::give_latest)).
    pub replaced: u64,
    /// Messages that were sent without a wait, such as memory that is given, and were not
    /// delivered before the endpoint closed or their peer went.
    pub undelivered: u64,
}

/// Counts of messages and operations with one peer.
///
/// ```
/// use pinfold::{Endpoint, Path, status};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-status-peer-counters-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// endpoint.send(itself, 1, b"hello")?;
/// let view = status::endpoints_of(std::process::id())?;
/// let seen = view.endpoints.iter().find(|one| one.address.as_ref() == Some(&name)).unwrap();
/// let called = seen.peers.iter().find(|peer| peer.address.is_some()).unwrap();
/// assert_eq!(called.counters.sent[Path::Inline as usize].messages, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeerCounters {
    /// Messages sent, by path; index with [`Path`] as `usize`.
    pub sent: [PathCount; Path::ALL.len()],
    /// Messages received, by path.
    pub received: [PathCount; Path::ALL.len()],
    /// Its messages that came before their receive was posted.
    pub unexpected: u64,
    /// Messages to it that went as announcements because its credit was spent.
    pub credit_stalls: u64,
    /// Sends to it that had to wait for room in its lane.
    pub room_stalls: u64,
    /// Times it was woken.
    pub doorbells_sent: u64,
    /// One-sided operations on its regions.
    pub one_sided: OneSidedCount,
    /// Calls and requests to it.
    pub called: u64,
    /// Calls and requests of it that were handled, panics included.
    pub handled: u64,
    /// Messages to it whose memory was to be given and that waited until it had given some back.
    pub given_stalls: u64,
    /// Messages to it that a newer one took the place of before they were sent.
    pub replaced: u64,
}

impl PeerCounters {
    /// The counters of a record.
    pub(super) fn of(record: &Record<u64>) -> PeerCounters {
        let count = |of: fn(&PathWords<u64>) -> (u64, u64)| {
            Path::ALL.map(|path| {
                let (messages, bytes) = of(&record.paths[path as usize]);
                PathCount { messages, bytes }
            })
        };
        PeerCounters {
            sent: count(|words| (words.sent_messages, words.sent_bytes)),
            received: count(|words| (words.received_messages, words.received_bytes)),
            unexpected: record.unexpected,
            credit_stalls: record.credit_stalls,
            room_stalls: record.room_stalls,
            doorbells_sent: record.doorbells_sent,
            one_sided: OneSidedCount::of(record),
            called: record.called,
            handled: record.handled,
            given_stalls: record.given_stalls,
            replaced: record.replaced,
        }
    }
}

impl Counters {
    /// The counters of a page: those of its header, and those of its records together.
    pub(super) fn of(
        header: &Header<u64>,
        records: impl Iterator<Item = PeerCounters>,
    ) -> Counters {
        let (maker, others) = (&header.unlocked_by_maker, &header.unlocked_by_others);
        // A stranger's page may hold any numbers.
        let sum = |of: u64, parts: [u64; 2]| parts.into_iter().fold(of, u64::wrapping_add);
        let mut all = Counters {
            copied_user: header.copied_user,
            copied_bulk: sum(header.copied_bulk, [maker.bulk, others.bulk]),
            copied_streamed: sum(header.copied_streamed, [maker.streamed, others.streamed]),
            copied_kernel: header.copied_kernel,
            sleeps: header.sleeps,
            barriers: header.barriers,
            tlb_hits: header.translated[0],
            pin_hits: header.translated[1],
            pin_misses: header.translated[2],
            pin_evictions: header.pin_evictions,
            pinned_bytes: header.pinned_bytes,
            peers_joined: header.peers_joined,
            peers_gone: header.peers_gone,
            handlers_panicked: header.handlers_panicked,
            unhandled: header.unhandled,
            undelivered: header.undelivered,
            ..Counters::default()
        };
        for record in records {
            for path in Path::ALL {
                all.sent[path as usize] += record.sent[path as usize];
                all.received[path as usize] += record.received[path as usize];
            }
            // A stranger's page may hold any numbers.
            let add = |sum: &mut u64, part: u64| *sum = sum.wrapping_add(part);
            add(&mut all.unexpected, record.unexpected);
            add(&mut all.credit_stalls, record.credit_stalls);
            add(&mut all.room_stalls, record.room_stalls);
            add(&mut all.doorbells_sent, record.doorbells_sent);
            add(&mut all.called, record.called);
            add(&mut all.handled, record.handled);
            add(&mut all.given_stalls, record.given_stalls);
            add(&mut all.replaced, record.replaced);
            all.one_sided += record.one_sided;
        }
        // Inline messages are copied once here as they are sent; that is added now, not for each.
        let inline = all.sent[Path::Inline as usize].bytes;
        all.copied_user = all.copied_user.wrapping_add(inline);
        all
    }
}

impl Record<AtomicU64> {
    #[inline(always)]
    pub(crate) fn count_sent(&self, path: Path, bytes: u64) {
        let count = &self.paths[path as usize];
        count.sent_messages.add(1);
        count.sent_bytes.add(bytes);
    }

    #[inline(always)]
    pub(crate) fn count_received(&self, path: Path, bytes: u64) {
        let count = &self.paths[path as usize];
        count.received_messages.add(1);
        count.received_bytes.add(bytes);
    }

    /// Takes back the count of a message that is to be received once more.
    pub(crate) fn uncount_received(&self, path: Path, bytes: u64) {
        let count = &self.paths[path as usize];
        count.received_messages.add(1u64.wrapping_neg());
        count.received_bytes.add(bytes.wrapping_neg());
    }
}
