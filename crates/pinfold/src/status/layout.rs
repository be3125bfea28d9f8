//! The layout of a status page, and the meaning of its words.
//!
//! ```text
//! 0      the header: who it is, how it is, what it has done
//! 1536   record 0: what was exchanged with peers that are gone
//! 2368   record 1: ...with peers that found no record
//! 3200   a record for each other peer
//! ```
//!
//! The same structs serve both sides: of atomics in the page itself ([`AtomicU64`]), of plain
//! numbers in a copy. All of it is eight-byte words, and any value of any word is possible.
//!
//! [`AtomicU64`]: crate::sync::AtomicU64

use zerocopy::FromBytes;

use crate::{
    Path,
    copy::{Algorithm, SIZES},
};

/// The name of the memfd, by which it is found.
pub(super) const NAME: &str = "pinfold-status";
/// The name of its link in `/proc/PID/fd`.
pub(super) const LINK: &str = "/memfd:pinfold-status (deleted)";
/// The name of an arena's link in `/proc/PID/fd`.
pub(super) const ARENA_LINK: &str = "/memfd:pinfold-arena (deleted)";

pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"PINFSTAT");
/// The layout, and the meaning of the numbers. Another set of paths is another version.
pub(crate) const VERSION: u64 = 5 << 8 | Path::ALL.len() as u64;

/// Bytes of the file; untouched ones take no memory.
pub(super) const FILE_BYTES: usize = 1408 << 10;
/// Bytes that are there in any case: the header, and the first records.
pub(super) const PAGE: usize = 4096;

/// Paths there is room for; see [`PathSet`](crate::PathSet).
pub(super) const PATHS_MAX: usize = 8;
/// The longest label, in words.
pub(super) const LABEL_WORDS: usize = 4;
/// The longest address, in words: `local:`, a user, a slash and a name.
pub(super) const ADDRESS_WORDS: usize = 17;

/// The record of peers that are gone.
pub(super) const GONE: usize = 0;
/// The record of peers that found none.
pub(super) const REST: usize = 1;
/// The first record of a single peer.
pub(super) const FIRST: usize = 2;

const RECORDS_AT: usize = size_of::<Header<u64>>();
const RECORD_BYTES: usize = size_of::<Record<u64>>();

/// Records that fit into `bytes` bytes.
pub(super) const fn records_in(bytes: usize) -> usize {
    (bytes - RECORDS_AT) / RECORD_BYTES
}

/// The offset of a record, bytes.
pub(super) const fn record_at(index: usize) -> usize {
    RECORDS_AT + index * RECORD_BYTES
}

/// The first words of a record, which are its counters.
pub(super) const COUNTERS: usize = 4 * PATHS_MAX + 24;

const _: () = assert!(COUNTERS == std::mem::offset_of!(Record<u64>, queued) / 8);
const _: () = assert!(Path::ALL.len() <= PATHS_MAX);
const _: () = assert!(size_of::<Header<u64>>() == 1536);
const _: () = assert!(size_of::<Record<u64>>() == 832);
const _: () = assert!(std::mem::offset_of!(Record<u64>, by_others) % 64 == 0);
const _: () = assert!(COUNTERS.is_multiple_of(8) && RECORDS_AT.is_multiple_of(64));
const _: () = assert!(records_in(PAGE) > FIRST);
const _: () = assert!(align_of::<Header<std::sync::atomic::AtomicU64>>() == 8);

/// A text of at most `N` words.
#[derive(FromBytes)]
#[repr(C)]
pub(super) struct Text<W, const N: usize> {
    /// Its length, bytes.
    pub len: W,
    pub words: [W; N],
}

/// Messages and bytes by one path.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct PathWords<W> {
    pub sent_messages: W,
    pub sent_bytes: W,
    pub received_messages: W,
    pub received_bytes: W,
}

/// One-sided operations.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct OneSidedWords<W> {
    pub writes: W,
    pub written_bytes: W,
    pub reads: W,
    pub read_bytes: W,
    pub atomics: W,
    /// Writes and reads that the kernel copied.
    pub by_kernel: W,
    /// Writes and reads that the peer's agent copied.
    pub by_agent: W,
}

/// The state of the endpoint at the moment.
pub(crate) mod state {
    /// Its program calls it now and then, or is in a call of it.
    pub(crate) const AWAKE: u64 = 0;
    /// A thread sleeps until something happens.
    pub(crate) const ASLEEP: u64 = 1;
    /// The program waits on its descriptor, or has been told that it may.
    pub(crate) const ARMED: u64 = 2;
}

/// The beginning of a page.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct Header<W> {
    /// [`MAGIC`], once the rest is there.
    pub(super) magic: W,
    pub(super) version: W,
    /// Guards all that is neither a counter nor a gauge; see [`seqlock`](crate::sync::seqlock).
    pub(super) seq: W,

    // Constant.
    /// The process, as it calls itself.
    pub(super) pid: W,
    /// The time it was made, `CLOCK_BOOTTIME`.
    pub(super) made_ns: W,
    pub(super) id: [W; 2],
    pub(super) lane_bytes_max: W,
    pub(super) unexpected_bytes_max: W,
    pub(super) label: Text<W, LABEL_WORDS>,
    pub(super) address: Text<W, ADDRESS_WORDS>,

    // Changed as peers come and go.
    /// Records in use lie below this.
    pub(super) records: W,
    /// Peers that found no record.
    pub(super) unlisted: W,

    // Gauges.
    /// See [`state`].
    pub state: W,
    /// The time it last looked around or went to sleep, `CLOCK_MONOTONIC`.
    pub looked_ns: W,
    /// Receives that wait for a message.
    pub posted: W,
    /// Messages that wait for a receive.
    pub stored: W,
    /// Memory that lanes have grown by.
    pub lane_bytes: W,
    /// Memory that peers were promised for unexpected messages.
    pub granted_bytes: W,
    /// Peers that have connected and were not accepted.
    pub newcomers: W,
    /// Long messages being copied, in and out.
    pub copying: W,
    /// Address space that arenas of peers are mapped in.
    pub mapped_bytes: W,

    // Counters.
    pub copied_user: W,
    pub copied_kernel: W,
    pub sleeps: W,
    pub peers_joined: W,
    pub peers_gone: W,

    /// The most mapped bytes: constant.
    pub(super) mapped_bytes_max: W,

    // More counters.
    pub handlers_panicked: W,
    pub unhandled: W,
    /// Bytes of `copied_user` for whose copy an algorithm was chosen, and of them the streamed
    /// ones.
    pub copied_bulk: W,
    pub copied_streamed: W,
    /// The same counts of copies without the endpoint's lock: by the thread that made it, and by
    /// all others.
    pub(super) unlocked_by_maker: BulkWords<W>,
    pub(super) unlocked_by_others: BulkWords<W>,
    /// Messages sent without a wait that were not delivered before their peer went.
    pub undelivered: W,
    /// A gauge: 1 while another endpoint has the name that it listens at.
    pub name_lost: W,
    /// A counter of the whole process.
    pub barriers: W,
    /// Parts of messages whose memory each level of the translation stack had.
    pub translated: [W; 3],
    /// Pinned areas that had to give way to others.
    pub pin_evictions: W,

    // Put down now and then.
    /// Copies for which an algorithm was chosen, by its number, and by size.
    pub(super) copied: [CountWords<W>; Algorithm::COUNT],
    pub(super) by_size: [CountWords<W>; SIZES],
    /// A gauge: bytes that are pinned.
    pub pinned_bytes: W,
    pub(super) more_spare: [W; 5],
}

/// Copies and their bytes.
#[derive(FromBytes)]
#[repr(C)]
pub(super) struct CountWords<W> {
    pub copies: W,
    pub bytes: W,
}

/// Bytes for whose copy an algorithm was chosen.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct BulkWords<W> {
    pub bulk: W,
    /// The bytes of them that went past the caches.
    pub streamed: W,
}

/// A peer, or several together.
#[derive(FromBytes)]
#[repr(C)]
pub(crate) struct Record<W> {
    // Counters.
    pub paths: [PathWords<W>; PATHS_MAX],
    /// Messages that came before their receive was posted.
    pub unexpected: W,
    /// Messages that were announced because the receiver's credit was spent.
    pub credit_stalls: W,
    /// Sends that had to wait for room or for credit.
    pub room_stalls: W,
    /// Times it was woken.
    pub doorbells_sent: W,
    /// One-sided operations on its memory, by the thread that made the endpoint. Such operations
    /// hold no lock.
    pub(super) by_maker: OneSidedWords<W>,
    /// Calls and requests to it.
    pub called: W,
    /// Calls and requests of it that were handled.
    pub handled: W,
    /// Messages to it whose memory was to be given and that waited until it gave some back.
    pub given_stalls: W,
    /// Messages of which only the newest counts that a newer one took the place of.
    pub replaced: W,
    pub(super) room: [W; 1],
    /// As `by_maker`, by all other threads: on a line of its own, which they share.
    pub(super) by_others: OneSidedWords<W>,
    pub(super) more_room: [W; 1],

    // Gauges.
    /// Sends with something to write.
    pub queued: W,
    /// Answers that found no room.
    pub answers: W,
    /// Announced messages that it has not answered.
    pub waiting: W,
    /// The credit of it that is in use, less what the inline and eager messages ever sent cost.
    pub credit_offset: W,
    /// Its messages that wait for a receive here, in bytes with [`MESSAGE_COST`] for each.
    ///
    /// [`MESSAGE_COST`]: super::MESSAGE_COST
    pub owed: W,
    /// Its announced messages that wait for a receive here.
    pub announced: W,
    /// Its messages that are coming in.
    pub arriving: W,
    /// Memory of the lane to it.
    pub lane_bytes: W,
    /// See [`flags`].
    pub flags: W,

    // Constant as long as the peer has the record.
    /// 1, or 0 for no peer.
    pub(super) used: W,
    /// Index and generation of its `PeerId`.
    pub(super) id: W,
    /// Process and user, 32 bits each.
    pub(super) pid_uid: W,
    pub(super) endpoint: [W; 2],
    /// The paths to it, a bit each.
    pub(super) agreed: W,
    /// The reasons why the others cannot be taken: 16 bits a path.
    pub(super) refusals: [W; 2],
    /// Credit for unmatched messages that it gave, and that it was given.
    pub(super) credit_max: W,
    pub(super) granted: W,
    /// Announcements that it takes, and that are taken from it, 32 bits each.
    pub(super) announced_max: W,
    pub(super) label: Text<W, LABEL_WORDS>,
    pub(super) address: Text<W, ADDRESS_WORDS>,
    /// A gauge: memory that is given to it and not back, bytes.
    pub given_bytes: W,
    /// A gauge: the time since when the longest-waiting send to it has waited, `CLOCK_MONOTONIC`;
    /// 0 if none does, or the endpoint has not looked yet.
    pub waits_since_ns: W,
    pub(super) spare: [W; 3],
}

/// The bits of [`Record::flags`].
pub(crate) mod flags {
    /// A message or answer for it found no room.
    pub(crate) const BLOCKED: u64 = 1;
    /// Its lane is polled.
    pub(crate) const POLLED: u64 = 2;
    /// It is being let go.
    pub(crate) const LEAVING: u64 = 4;
    /// The connection with it is encrypted.
    pub(crate) const ENCRYPTED: u64 = 8;
}
