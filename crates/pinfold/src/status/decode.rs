//! Decodes a page. The page is a stranger's: any word of it can be any number, and change at any
//! time. So all of it is copied out once, and only then looked at.

use std::time::Duration;

use super::{
    Counters, PeerCounters, Problem, State,
    layout::{
        CountWords, FILE_BYTES, FIRST, Header, MAGIC, Record, Text, VERSION, record_at, records_in,
        state,
    },
    page::{Foreign, plain},
    publish::credit_cost,
    view::{EndpointStatus, PeerStatus},
};
use crate::{
    Path, PathSet, Refusal,
    copy::{Count, Counts},
    sync::{Ordering, seqlock},
};

/// Copies made of a page that changes all the time, before it is given up.
const TRIES: u32 = 1000;

/// A page, copied at one moment.
pub(super) struct Copy {
    pub header: Header<u64>,
    records: Vec<Record<u64>>,
}

/// Checks the beginning of a page of any version, which tells whether the rest can be read.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn check(page: &Foreign, len: u64) -> Result<(), Problem> {
    if page.word(0).load(Ordering::Relaxed) != MAGIC {
        return Err(Problem::Nonsense("it does not begin as one"));
    }
    match page.word(1).load(Ordering::Relaxed) {
        VERSION if len == FILE_BYTES as u64 => Ok(()),
        VERSION => Err(Problem::Nonsense("it has another size")),
        version => Err(Problem::OtherVersion(version)),
    }
}

/// Copies a page of [`FILE_BYTES`].
///
/// # Errors
/// The reason why it cannot be copied.
pub(super) fn copy(page: &Foreign) -> Result<Copy, Problem> {
    let seq = page.word(std::mem::offset_of!(Header<u64>, seq) / 8);
    let copied = seqlock::read(seq, TRIES, || {
        let header: Header<u64> = plain(&page.copy(0, size_of::<Header<u64>>()));
        let count = usize::try_from(header.records).unwrap_or(usize::MAX);
        if !(FIRST..=records_in(FILE_BYTES)).contains(&count) {
            return None;
        }
        let record = |index| plain(&page.copy(record_at(index), size_of::<Record<u64>>()));
        Some(Copy { header, records: (0..count).map(record).collect() })
    });
    match copied {
        None => Err(Problem::Unsteady),
        Some(None) => Err(Problem::Nonsense("it has more peers than there is room for")),
        Some(Some(copy)) => Ok(copy),
    }
}

impl Copy {
    /// The status in the page at `now` of the two clocks that it uses. Its process is left open.
    pub(super) fn decode(&self, boot_ns: u64, now_ns: u64) -> EndpointStatus {
        let header = &self.header;
        let ago = |now: u64, then: u64| Duration::from_nanos(now.saturating_sub(then));
        let listed = self.records[FIRST..].iter().filter(|record| record.used == 1);
        EndpointStatus {
            id: id(header.id),
            pid: 0,
            command: String::new(),
            uid: 0,
            label: header.label.read(),
            address: Some(header.address.read()).filter(|address| !address.is_empty()),
            name_lost: header.name_lost != 0,
            age: ago(boot_ns, header.made_ns),
            state: match header.state {
                state::ASLEEP => State::Asleep,
                state::ARMED => State::Armed,
                _ => State::Awake,
            },
            looked_ago: ago(now_ns, header.looked_ns),
            counters: Counters::of(header, self.records.iter().map(PeerCounters::of)),
            peers: listed.map(|record| peer(record, now_ns)).collect(),
            peers_unlisted: header.unlisted,
            newcomers: header.newcomers,
            posted: header.posted,
            stored: header.stored,
            copying: header.copying,
            lane_bytes: header.lane_bytes,
            lane_bytes_max: header.lane_bytes_max,
            granted_bytes: header.granted_bytes,
            unexpected_bytes_max: header.unexpected_bytes_max,
            mapped_bytes: header.mapped_bytes,
            mapped_bytes_max: header.mapped_bytes_max,
            arena_files: 0,
            arena_bytes: 0,
            copies: copies(header),
        }
    }
}

fn copies(header: &Header<u64>) -> Counts {
    let count = |words: &CountWords<u64>| Count { copies: words.copies, bytes: words.bytes };
    Counts {
        copied: header.copied.each_ref().map(count),
        by_size: header.by_size.each_ref().map(count),
        ..Counts::default()
    }
}

fn peer(record: &Record<u64>, now_ns: u64) -> PeerStatus {
    let low = |word: u64| u64::from(word as u32);
    let agreed = |path: &Path| record.agreed & 1 << *path as u32 != 0;
    let refusal = |path: Path| {
        let code = (record.refusals[path as usize / 4] >> (path as usize % 4 * 16)) as u16;
        Some((path, Refusal::from_code(code)?))
    };
    let cost = credit_cost(|path| {
        let count = &record.paths[path as usize];
        (count.sent_messages, count.sent_bytes)
    });
    // The counts and the noted credit are of two moments: their sum may be off by some messages, to
    // either side.
    let used = cost.wrapping_add(record.credit_offset);
    let used = if used as i64 >= 0 { used.min(record.credit_max) } else { 0 };
    PeerStatus {
        id: record.id,
        endpoint: id(record.endpoint),
        pid: record.pid_uid as u32,
        uid: (record.pid_uid >> 32) as u32,
        label: record.label.read(),
        address: Some(record.address.read()).filter(|address| !address.is_empty()),
        paths: Path::ALL.into_iter().filter(agreed).fold(PathSet::none(), PathSet::with),
        refusals: Path::ALL.into_iter().filter_map(refusal).collect(),
        counters: PeerCounters::of(record),
        queued: record.queued,
        answers: record.answers,
        waiting: record.waiting,
        waiting_max: low(record.announced_max),
        waits: match record.waits_since_ns {
            0 => None,
            _ if record.waiting == 0 && record.queued == 0 => None,
            since => Some(Duration::from_nanos(now_ns.saturating_sub(since))),
        },
        credit_used: used,
        credit_max: record.credit_max,
        owed: record.owed,
        granted: record.granted,
        announced: record.announced,
        announced_max: record.announced_max >> 32,
        arriving: record.arriving,
        lane_bytes: record.lane_bytes,
        given_bytes: record.given_bytes,
        blocked: record.flags & super::flags::BLOCKED != 0,
        leaving: record.flags & super::flags::LEAVING != 0,
        encrypted: record.flags & super::flags::ENCRYPTED != 0,
    }
}

fn id(words: [u64; 2]) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&words[0].to_ne_bytes());
    id[8..].copy_from_slice(&words[1].to_ne_bytes());
    id
}

impl<const N: usize> Text<u64, N> {
    /// The text, fit for a terminal.
    fn read(&self) -> String {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX).min(8 * N);
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        harmless(&String::from_utf8_lossy(&bytes[..len]))
    }
}

/// A text without the characters that a terminal would obey, or that write backwards.
pub(super) fn harmless(text: &str) -> String {
    let odd = |char: char| {
        char.is_control()
            || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|char| if odd(char) { '\u{fffd}' } else { char }).collect()
}
