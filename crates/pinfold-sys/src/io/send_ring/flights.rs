//! The completions of each send: those that came, and those that are due. No I/O.
//!
//! **Invariant.** A number that was given out names the same send until it is
//! [freed](Flights::free).

use super::FLIGHTS_MAX;

/// Bytes that the kernel may still read. Dropped, it takes a place in its ring for good.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory has to stay as it is until this has landed"]
pub struct Flight {
    pub(super) owner: u32,
    pub(super) number: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    generation: u32,
    taken: bool,
    /// The result that the kernel answered.
    result: Option<i32>,
    /// True if the kernel is yet to say that it no longer looks.
    due: bool,
    /// True if the kernel said that it copied.
    copied: bool,
}

#[derive(Debug)]
pub(super) struct Flights {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Flights {
    pub(super) fn new() -> Flights {
        let count = FLIGHTS_MAX as u32;
        Flights { entries: vec![Entry::default(); FLIGHTS_MAX], free: (0..count).rev().collect() }
    }

    /// The number of further sends that there can be.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// A number for a send.
    pub(super) fn take(&mut self) -> Option<u64> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[index as usize];
        let generation = entry.generation;
        *entry = Entry { generation, taken: true, ..Entry::default() };
        Some(u64::from(generation) << 32 | u64::from(index))
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(number as u32 as usize)?;
        (entry.taken && u64::from(entry.generation) == number >> 32).then_some(entry)
    }

    /// The kernel has made a send or refused it; a notice is `due`.
    pub(super) fn said(&mut self, number: u64, result: i32, due: bool) {
        if let Some(entry) = self.entry(number).filter(|entry| entry.result.is_none()) {
            (entry.result, entry.due) = (Some(result), due);
        }
    }

    /// The kernel no longer looks at the bytes of a send.
    pub(super) fn noticed(&mut self, number: u64, copied: bool) {
        if let Some(entry) = self.entry(number).filter(|entry| entry.result.is_some()) {
            (entry.due, entry.copied) = (false, copied);
        }
    }

    /// The result of a send.
    pub(super) fn result(&mut self, number: u64) -> Option<i32> {
        self.entry(number)?.result
    }

    /// `Some` once the kernel will say nothing more: true if it copied.
    pub(super) fn over(&mut self, number: u64) -> Option<bool> {
        self.entry(number).filter(|it| it.result.is_some() && !it.due).map(|it| it.copied)
    }

    /// Sends that are over and not freed.
    pub(super) fn all_over(&self) -> usize {
        let over = |entry: &&Entry| entry.taken && entry.result.is_some() && !entry.due;
        self.entries.iter().filter(over).count()
    }

    pub(super) fn free(&mut self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.taken = false;
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(number as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_is_over_after_both_words() {
        let mut all = Flights::new();
        let one = all.take().unwrap();
        assert_eq!((all.result(one), all.over(one)), (None, None));
        all.said(one, 5, true);
        assert_eq!((all.result(one), all.over(one)), (Some(5), None));
        all.noticed(one, true);
        assert_eq!((all.over(one), all.all_over()), (Some(true), 1));
        // The kernel's first answer stands.
        all.said(one, 6, true);
        assert_eq!((all.result(one), all.over(one)), (Some(5), Some(true)));
        all.free(one);
        assert_eq!((all.result(one), all.room(), all.all_over()), (None, FLIGHTS_MAX, 0));
    }

    #[test]
    fn late_words_are_of_nobody_else() {
        let mut all = Flights::new();
        let one = all.take().unwrap();
        all.said(one, 1, false);
        assert_eq!(all.over(one), Some(false));
        all.free(one);
        let other = all.take().unwrap();
        assert_eq!(one as u32, other as u32);
        all.said(one, 9, false);
        all.noticed(one, true);
        all.free(one);
        assert_eq!((all.result(other), all.over(other)), (None, None));
        for number in [u64::MAX, FLIGHTS_MAX as u64] {
            all.said(number, 1, false);
            assert_eq!(all.over(number), None);
        }
        while all.take().is_some() {}
        assert_eq!(all.room(), 0);
    }
}
