//! The state of each page of this process, by `/proc/self/pagemap`.

use std::{fs::File, io, os::unix::fs::FileExt};

use crate::mem::presence::Touch;

/// Pages that one call reads of, at most.
pub(crate) const PAGES: usize = 64;

/// The open file. Speaks of the process that opened it, also in children of that.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

/// The state of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State(u64);

impl State {
    pub(crate) const PRESENT: State = State(1 << 63);
    pub(crate) const SWAPPED: State = State(1 << 62);
    const FILE: State = State(1 << 61);
    /// A `userfaultfd(2)` is told of writes.
    const PROTECTED: State = State(1 << 57);
    pub(crate) const EXCLUSIVE: State = State(1 << 56);

    /// The state in a word that the kernel has written of a page.
    pub(crate) fn of(word: u64) -> State {
        State(word)
    }

    /// The number of the page, if there is one and the kernel shows it; else 0.
    pub(crate) fn frame(self) -> u64 {
        if self.is_present() { self.0 & ((1 << 55) - 1) } else { 0 }
    }

    /// True if there is no page: it reads as zeros, if it is private memory of no file.
    pub(crate) fn is_hole(self) -> bool {
        !self.is_present() && !self.is_swapped()
    }

    pub(crate) fn is_present(self) -> bool {
        self.0 & State::PRESENT.0 != 0
    }

    pub(crate) fn is_swapped(self) -> bool {
        self.0 & State::SWAPPED.0 != 0
    }

    /// True if the page is mapped here alone: no child of `fork(2)` shares it, and it is not the
    /// page of zeros.
    pub(crate) fn is_exclusive(self) -> bool {
        self.0 & State::EXCLUSIVE.0 != 0
    }

    /// Returns whether a `touch` of the page does not wait for another process.
    pub(crate) fn is_there_for(self, touch: Touch) -> bool {
        let wrong = State::FILE.0 | State::PROTECTED.0;
        self.is_present() && (touch == Touch::Read || self.0 & wrong == 0)
    }

    #[cfg(test)]
    pub(crate) fn and(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl Pagemap {
    /// # Errors
    /// If no `proc(5)` is mounted, or this process may not look at itself.
    pub(crate) fn open() -> io::Result<Pagemap> {
        File::open("/proc/self/pagemap").map(Pagemap)
    }

    /// Reads the states of up to `states.len()` pages from the one with number `first` on (an
    /// address by the page size), [`PAGES`] at most; returns how many. One system call, 1 µs for 64
    /// pages.
    ///
    /// # Errors
    /// The error of `pread(2)`.
    pub(crate) fn read(&self, first: u64, states: &mut [State]) -> io::Result<usize> {
        let mut bytes = [0u8; 8 * PAGES];
        let room = &mut bytes[..8 * states.len().min(PAGES)];
        let read = self.0.read_at(room, first.saturating_mul(8))?;
        for (state, word) in states.iter_mut().zip(room[..read].as_chunks().0) {
            *state = State::of(u64::from_ne_bytes(*word));
        }
        Ok(read / 8)
    }
}

#[cfg(test)]
mod tests {
    use rustix::param::page_size;

    use super::*;
    use crate::mem::userfault::Pages;

    #[test]
    fn pages_are_there_or_not() {
        let Ok(map) = Pagemap::open() else { return crate::skip::skip("no pagemap") };
        let mut pages = Pages::new(100 * page_size(), false).unwrap();
        pages.as_mut_slice()[page_size()] = 1;
        let mut states = [State::default(); 100];
        let first = (pages.addr() / page_size()) as u64;
        assert_eq!(map.read(first, &mut states).unwrap(), PAGES);
        let there: Vec<bool> = states.iter().map(|state| state.is_present()).collect();
        assert_eq!(there.iter().position(|there| *there), Some(1));
        assert!(states[1].is_exclusive() && !states[1].is_swapped() && states[0].is_hole());
    }
}
