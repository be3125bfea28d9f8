//! Ranges of an extent that must stay as they are although their buffer is dropped, because a peer
//! still reads them.
//!
//! Plain state. A range that is held lies inside one buffer, so the offset of its first byte says
//! which. A buffer with a hold inside is not freed when it is dropped: it waits here, and whoever
//! lets go of its last hold gets it to free. As long as nothing is held, dropping a buffer costs
//! one load.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The holds on one extent, and the dropped buffers `B` that wait for them.
#[derive(Debug)]
pub(crate) struct Holds<B> {
    /// Holds in all. Only the thread that owns or borrows a buffer puts holds on it, so whoever
    /// drops it has seen them counted.
    count: AtomicUsize,
    table: Mutex<Table<B>>,
}

#[derive(Debug)]
struct Table<B> {
    /// How many holds begin at each offset.
    held: BTreeMap<u64, usize>,
    /// Dropped buffers by their offsets, with their ends.
    waiting: BTreeMap<u64, (u64, B)>,
}

impl<B> Holds<B> {
    pub(crate) fn new() -> Holds<B> {
        let table = Table { held: BTreeMap::new(), waiting: BTreeMap::new() };
        Holds { count: AtomicUsize::new(0), table: Mutex::new(table) }
    }

    /// Holds the buffer that the byte at `offset` is in.
    pub(crate) fn add(&self, offset: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.lock().held.entry(offset).or_insert(0) += 1;
    }

    /// Lets go of one hold from [`Holds::add`]. The buffer that can be freed now, if any.
    #[must_use]
    pub(crate) fn remove(&self, offset: u64) -> Option<B> {
        let mut table = self.lock();
        let Entry::Occupied(mut held) = table.held.entry(offset) else { return None };
        self.count.fetch_sub(1, Ordering::Relaxed);
        *held.get_mut() -= 1;
        if *held.get() > 0 {
            return None;
        }
        held.remove();
        let (start, (end, _)) = table.waiting.range(..=offset).next_back()?;
        let (start, end) = (*start, *end);
        if offset >= end || table.is_held(start..end) {
            return None;
        }
        table.waiting.remove(&start).map(|(_, buffer)| buffer)
    }

    /// A buffer was dropped that covers `range`. Whether it must wait, since something in it is held.
    #[inline]
    pub(crate) fn keep(&self, range: Range<u64>, buffer: impl FnOnce() -> B) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut table = self.lock();
        let held = table.is_held(range.clone());
        if held {
            table.waiting.insert(range.start, (range.end, buffer()));
        }
        held
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table<B>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Table<B> {
    fn is_held(&self, range: Range<u64>) -> bool {
        self.held.range(range).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_waits_for_its_last_hold() {
        let holds = Holds::new();
        assert!(!holds.keep(0..64, || 'a'));
        holds.add(64);
        holds.add(100);
        holds.add(100);
        assert!(!holds.keep(0..64, || 'b'));
        assert!(!holds.keep(128..192, || 'c'));
        assert!(holds.keep(64..128, || 'd'));
        assert_eq!(holds.remove(100), None);
        assert_eq!(holds.remove(64), None);
        assert_eq!(holds.remove(100), Some('d'));
        assert_eq!(holds.remove(100), None);
        assert!(!holds.keep(64..128, || 'e'));
    }

    #[test]
    fn a_hold_that_goes_first_frees_nothing() {
        let holds = Holds::new();
        holds.add(0);
        assert_eq!(holds.remove(0), None);
        assert!(!holds.keep(0..64, || 'a'));
    }
}
