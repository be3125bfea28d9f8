//! Counters of work without the endpoint's lock: one-sided operations, and bulk copies.
//!
//! The thread that made the endpoint has words that no other thread writes, so it adds as cheaply
//! as under the lock. All other threads share words, to which they add by a locked instruction.
//! Records are not used for another peer as long as a thread may count in them.

use std::sync::Arc;

use super::{
    Tally,
    layout::{Header, OneSidedWords},
    page::Kept,
    publish::Lent,
};
use crate::{
    Path,
    sync::{AtomicU64, Ordering, biased::this_thread},
};

/// The counters of operations on one peer's regions.
pub(crate) struct Tallies {
    lent: Arc<Lent>,
    /// The thread that made the endpoint.
    maker: usize,
}

impl Tallies {
    pub(super) fn new(lent: &Arc<Lent>, maker: usize) -> Tallies {
        Tallies { lent: Arc::clone(lent), maker }
    }

    /// Counts a write that succeeded.
    #[inline]
    pub(crate) fn wrote(&self, bytes: u64) {
        self.count(|words, add| {
            add(&words.writes, 1);
            add(&words.written_bytes, bytes);
        });
    }

    /// Counts a read that succeeded.
    #[inline]
    pub(crate) fn read(&self, bytes: u64) {
        self.count(|words, add| {
            add(&words.reads, 1);
            add(&words.read_bytes, bytes);
        });
    }

    /// Counts an atomic operation that succeeded.
    #[inline]
    pub(crate) fn changed(&self) {
        self.count(|words, add| add(&words.atomics, 1));
    }

    /// Counts the path of the write or read that was counted before, or is next.
    #[inline]
    pub(crate) fn went_by(&self, path: Path) {
        match path {
            Path::Mapped => {}
            Path::Cma => self.count(|words, add| add(&words.by_kernel, 1)),
            _ => self.count(|words, add| add(&words.by_agent, 1)),
        }
    }

    #[inline(always)]
    fn count(&self, what: impl Fn(&OneSidedWords<AtomicU64>, fn(&AtomicU64, u64))) {
        if this_thread() == self.maker {
            what(&self.lent.0.by_maker, |word, more| word.add(more));
        } else {
            what(&self.lent.0.by_others, |word, more| {
                word.fetch_add(more, Ordering::Relaxed);
            });
        }
    }
}

/// The counters of an endpoint's bulk copies without its lock.
pub(crate) struct UnlockedWords(pub(super) Kept<Header<AtomicU64>>);

impl UnlockedWords {
    /// Counts bytes that the thread that made the endpoint copied.
    #[inline]
    pub(crate) fn add_by_maker(&self, bytes: u64, streamed: bool) {
        self.0.unlocked_by_maker.bulk.add(bytes);
        self.0.unlocked_by_maker.streamed.add(if streamed { bytes } else { 0 });
    }

    /// Counts bytes that another thread copied.
    pub(crate) fn add_by_others(&self, bytes: u64, streamed: bool) {
        self.0.unlocked_by_others.bulk.fetch_add(bytes, Ordering::Relaxed);
        if streamed {
            self.0.unlocked_by_others.streamed.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}
