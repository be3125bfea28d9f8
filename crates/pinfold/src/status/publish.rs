//! The endpoint's side: its identity, a record for each peer, and their numbers.
//!
//! Everything here is done by the one thread that is inside the endpoint's lock. Counters and
//! gauges are stored as they change; peers that come and go, under the page's [sequence
//! lock](crate::sync::seqlock). Nothing in the page is ever read for a decision.

use std::{
    ops::Deref,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use pinfold_sys::{cpu::clock, failed::Failed};

use super::{
    Counters, MESSAGE_COST, PeerCounters, Tally,
    layout::{COUNTERS, FIRST, GONE, Header, MAGIC, REST, Record, Text, VERSION},
    page::{Kept, Page},
    tallies::{Tallies, UnlockedWords},
};
use crate::{
    Path, PathSet, PeerId, Refusal,
    copy::Counts,
    sync::{AtomicU64, Ordering, biased::this_thread, fence, seqlock},
};

/// The identity of an endpoint.
pub(crate) struct Identity<'a> {
    pub id: [u8; 16],
    pub label: &'a str,
    pub address: Option<String>,
    pub lane_bytes_max: usize,
    pub unexpected_bytes_max: usize,
    pub mapped_bytes_max: usize,
}

/// The identity of a peer.
pub(crate) struct Introduction<'a> {
    pub id: PeerId,
    pub endpoint: [u8; 16],
    pub label: &'a str,
    pub pid: u32,
    pub uid: u32,
    pub address: Option<&'a str>,
    pub paths: PathSet,
    pub refusal: &'a dyn Fn(Path) -> Option<Refusal>,
    /// Credit it gave, and announcements it takes.
    pub credit_max: u64,
    pub waiting_max: u32,
    /// Credit it was given, and announcements taken from it.
    pub granted: u64,
    pub announced_max: u32,
}

/// The page of one endpoint.
pub(crate) struct Status {
    page: Arc<Page>,
    header: Kept<Header<AtomicU64>>,
    gone: Kept<Record<AtomicU64>>,
    rest: Kept<Record<AtomicU64>>,
    /// The descriptor by which other processes find the page.
    file: Option<OwnedFd>,
    /// Records that have been used lie below this one.
    pub(super) end: usize,
    /// The free ones of them.
    free: Vec<usize>,
    /// Records of peers that are gone, in which a thread may still count.
    lingering: Vec<(usize, Arc<Lent>)>,
    /// The record of each peer, by the peer's index.
    slots: Vec<Option<Slot>>,
    /// The thread that made the endpoint.
    maker: usize,
}

struct Slot {
    owner: PeerId,
    index: usize,
    lent: Arc<Lent>,
}

/// A record, kept from other peers for as long as a thread counts in it.
pub(super) struct Lent(pub Kept<Record<AtomicU64>>);

/// The record of a peer, or of several that share one.
pub(crate) struct PeerRecord {
    record: Kept<Record<AtomicU64>>,
    /// True if it is this peer's alone.
    listed: bool,
}

impl Deref for PeerRecord {
    type Target = Record<AtomicU64>;

    #[inline(always)]
    fn deref(&self) -> &Record<AtomicU64> {
        &self.record
    }
}

impl PeerRecord {
    /// True if it is this peer's alone, so that gauges mean something.
    #[inline(always)]
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }

    /// Takes note of the peer's credit by now.
    pub(crate) fn note_credit_max(&self, bytes: u64) {
        if self.listed {
            self.credit_max.set(bytes);
        }
    }

    /// Takes note of the credit granted to the peer by now.
    pub(crate) fn note_granted(&self, bytes: u64) {
        if self.listed {
            self.granted.set(bytes);
        }
    }

    /// Takes note of the used part of the peer's credit. Readers add later sends.
    #[inline(always)]
    pub(crate) fn note_credit(&self, used: u64) {
        if !self.listed {
            return;
        }
        self.credit_offset.set(used.wrapping_sub(credit_cost(|path| {
            let count = &self.paths[path as usize];
            (count.sent_messages.get(), count.sent_bytes.get())
        })));
    }
}

/// The credit that messages sent without asking cost, given their number and bytes by each path.
pub(super) fn credit_cost(sent: impl Fn(Path) -> (u64, u64)) -> u64 {
    [Path::Inline, Path::Eager].into_iter().map(sent).fold(0, |sum, (messages, bytes)| {
        sum.wrapping_add(messages.wrapping_mul(MESSAGE_COST)).wrapping_add(bytes)
    })
}

impl Deref for Status {
    type Target = Header<AtomicU64>;

    #[inline(always)]
    fn deref(&self) -> &Header<AtomicU64> {
        &self.header
    }
}

impl Status {
    /// Publishes an endpoint. Where that cannot be, it just counts.
    ///
    /// # Errors
    /// Files in memory are denied. Then no peer can be had either.
    pub(crate) fn new(identity: &Identity<'_>) -> Result<Status, Failed> {
        let (page, file) = Page::new()?;
        Ok(Status::on(page, file, identity))
    }

    /// As [`Status::new`], on this page of zeros.
    pub(super) fn on(page: Arc<Page>, file: Option<OwnedFd>, identity: &Identity<'_>) -> Status {
        let header = page.header();
        seqlock::write(&header.seq, || {
            header.version.set(VERSION);
            header.pid.set(u64::from(std::process::id()));
            header.made_ns.set(clock::boot_ns());
            header.looked_ns.set(clock::now_ns());
            set_id(&header.id, identity.id);
            header.lane_bytes_max.set(identity.lane_bytes_max as u64);
            header.unexpected_bytes_max.set(identity.unexpected_bytes_max as u64);
            header.mapped_bytes_max.set(identity.mapped_bytes_max as u64);
            header.label.write(identity.label);
            header.address.write(identity.address.as_deref().unwrap_or_default());
            header.records.set(FIRST as u64);
        });
        // A reader that sees it sees the rest.
        header.magic.store(MAGIC, Ordering::Release);
        let (gone, rest) = (page.record(GONE), page.record(REST));
        let (free, lingering, slots) = (Vec::new(), Vec::new(), Vec::new());
        let maker = this_thread();
        Status { page, header, gone, rest, file, end: FIRST, free, lingering, slots, maker }
    }

    /// A record for a new peer; shared with others if there is none left.
    pub(crate) fn enlist(&mut self, id: PeerId) -> PeerRecord {
        let index = self.take_record().unwrap_or(REST);
        let record = if index == REST { self.rest.clone() } else { self.page.record(index) };
        let at = id.index() as usize;
        if at >= self.slots.len() {
            self.slots.resize_with(at + 1, || None);
        }
        let lent = Arc::new(Lent(record.clone()));
        self.slots[at] = Some(Slot { owner: id, index, lent });
        PeerRecord { record, listed: index != REST }
    }

    /// The counters of one-sided operations on a peer's regions; `None`: it is gone.
    pub(crate) fn tallies(&self, id: PeerId) -> Option<Tallies> {
        match self.slots.get(id.index() as usize) {
            Some(Some(slot)) if slot.owner == id => Some(Tallies::new(&slot.lent, self.maker)),
            _ => None,
        }
    }

    /// The counters of copies without the endpoint's lock.
    pub(crate) fn unlocked(&self) -> UnlockedWords {
        UnlockedWords(self.header.clone())
    }

    /// Stores the counts of copies, by algorithm and by size.
    pub(crate) fn note_copies(&self, counts: &Counts) {
        let words = self.header.copied.iter().chain(&self.header.by_size);
        for (words, count) in words.zip(counts.copied.iter().chain(&counts.by_size)) {
            words.copies.set(count.copies);
            words.bytes.set(count.bytes);
        }
    }

    fn take_record(&mut self) -> Option<usize> {
        self.sweep();
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        let file = self.file.as_ref()?;
        let index = self.end;
        if index >= self.page.records() {
            return None;
        }
        if let Err(error) = self.page.reserve(file.as_fd(), index) {
            tracing::debug!(%error, "a peer cannot be seen from outside");
            return None;
        }
        self.end += 1;
        Some(index)
    }

    /// Stores the identity of the peer with this record.
    pub(crate) fn introduce(&self, record: &PeerRecord, who: &Introduction<'_>) {
        seqlock::write(&self.seq, || match record.listed {
            true => {
                introduce(record, who);
                self.records.set(self.end as u64);
            }
            false => self.unlisted.add(1),
        });
    }

    /// Strikes a peer that is gone: its counts are kept.
    pub(crate) fn strike(&mut self, id: PeerId) {
        let slot = self.slots.get_mut(id.index() as usize);
        let Some(Slot { index, lent, .. }) =
            slot.and_then(|slot| slot.take_if(|slot| slot.owner == id))
        else {
            return;
        };
        if index == REST {
            return seqlock::write(&self.seq, || self.unlisted.add(u64::MAX));
        }
        // Its counters go when no thread counts there any more.
        seqlock::write(&self.seq, || {
            lent.0.words()[COUNTERS..].iter().for_each(|word| word.set(0));
        });
        self.lingering.push((index, lent));
        self.sweep();
    }

    /// Frees the records in which no thread counts any more.
    fn sweep(&mut self) {
        let mut at = 0;
        while at < self.lingering.len() {
            if Arc::strong_count(&self.lingering[at].1) > 1 {
                at += 1;
                continue;
            }
            // The other threads' counts came before they let go.
            fence(Ordering::Acquire);
            let (index, lent) = self.lingering.swap_remove(at);
            self.free.push(index);
            let (counters, words) = (self.gone.words(), lent.0.words());
            seqlock::write(&self.seq, || {
                for (sum, part) in counters.iter().zip(words).take(COUNTERS) {
                    sum.add(part.get());
                    part.set(0);
                }
            });
        }
    }

    /// The record in which messages of a peer count, also of one that is gone.
    pub(crate) fn record_of(&self, id: PeerId) -> &Record<AtomicU64> {
        match self.slots.get(id.index() as usize) {
            Some(Some(slot)) if slot.owner == id => &slot.lent.0,
            _ => &self.gone,
        }
    }

    /// The counts of the endpoint's work so far.
    pub(crate) fn counters(&self) -> Counters {
        let own = self.slots.iter().flatten().filter(|slot| slot.index != REST);
        let left = self.lingering.iter().map(|(_, lent)| &lent.0);
        let all = own.map(|slot| &slot.lent.0).chain(left).chain([&self.gone, &self.rest]);
        Counters::of(&self.header.copied(), all.map(|record| PeerCounters::of(&record.copied())))
    }

    /// Closes the page's descriptor, so that no process finds it any more.
    pub(crate) fn withdraw(&mut self) {
        self.file = None;
    }

    /// As [`Status::withdraw`], in a child of the process whose endpoint it is. The mapping did not
    /// come along, and is never given back.
    pub(crate) fn forsake(&mut self) {
        self.withdraw();
        std::mem::forget(Arc::clone(&self.page));
    }
}

fn introduce(record: &Record<AtomicU64>, who: &Introduction<'_>) {
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    record.id.set(two(who.id.index(), who.id.generation()));
    record.pid_uid.set(two(who.pid, who.uid));
    set_id(&record.endpoint, who.endpoint);
    record.note_paths(who.paths, who.refusal);
    record.credit_max.set(who.credit_max);
    record.granted.set(who.granted);
    record.announced_max.set(two(who.waiting_max, who.announced_max));
    record.label.write(who.label);
    record.address.write(who.address.unwrap_or_default());
    record.used.set(1);
}

impl Record<AtomicU64> {
    /// The paths to the peer, and the reasons against the others.
    pub(crate) fn note_paths(&self, paths: PathSet, refusal: impl Fn(Path) -> Option<Refusal>) {
        self.agreed.set(paths.iter().fold(0, |bits, path| bits | 1 << path as u32));
        let mut refusals = [0u64; 2];
        for path in Path::ALL {
            let code = refusal(path).map_or(0, Refusal::code);
            refusals[path as usize / 4] |= u64::from(code) << (path as usize % 4 * 16);
        }
        self.refusals[0].set(refusals[0]);
        self.refusals[1].set(refusals[1]);
    }
}

fn set_id(words: &[AtomicU64; 2], id: [u8; 16]) {
    for (word, bytes) in words.iter().zip(id.as_chunks().0) {
        word.set(u64::from_ne_bytes(*bytes));
    }
}

impl<const N: usize> Text<AtomicU64, N> {
    /// Stores as much of a text as there is room for.
    fn write(&self, text: &str) {
        let mut end = text.len().min(8 * N);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = &text[..end];
        for (at, word) in self.words.iter().enumerate() {
            let mut bytes = [0; 8];
            let part = text.as_bytes().get(8 * at..).unwrap_or_default();
            let len = part.len().min(8);
            bytes[..len].copy_from_slice(&part[..len]);
            word.set(u64::from_ne_bytes(bytes));
        }
        self.len.set(text.len() as u64);
    }
}
