//! The pages that are given out, and the beginnings of their runs: two bits a page.
//!
//! Invariants: a page that begins a run is taken; a run ends before the next page that is free or
//! begins another; `pages_taken` and `runs` are the numbers of bits in each map.

use super::{
    bits::{self, Inner, Work},
    window::FreeError,
};

#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pages: u32,
    pages_taken: u32,
    runs: u32,
    taken: Box<[u64]>,
    starts: Box<[u64]>,
}

impl Ledger {
    /// All of `pages` pages are free.
    pub(super) fn new(pages: u32) -> Ledger {
        let words = || vec![0; pages.div_ceil(64) as usize].into_boxed_slice();
        Ledger { pages, pages_taken: 0, runs: 0, taken: words(), starts: words() }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    pub(super) fn pages_taken(&self) -> u32 {
        self.pages_taken
    }

    pub(super) fn runs(&self) -> u32 {
        self.runs
    }

    /// Notes that `len` pages from `start` on are a run. They must be free.
    #[inline]
    pub(super) fn take(&mut self, start: u32, len: u32) {
        debug_assert!(bits::first(&self.taken, start, start + len, true).is_none());
        if len == 1 {
            self.taken[start as usize / 64] |= 1 << (start % 64);
        } else {
            bits::fill(&mut self.taken, start, start + len, true);
        }
        self.starts[start as usize / 64] |= 1 << (start % 64);
        self.pages_taken += len;
        self.runs += 1;
    }

    /// Notes that the run which begins with `start` is free, and says how long it was.
    #[inline]
    pub(super) fn give(&mut self, start: u32) -> Result<u32, FreeError> {
        if start >= self.pages {
            return Err(FreeError::Foreign { start, pages: self.pages });
        }
        let (word, bit) = (start as usize / 64, 1 << (start % 64));
        if self.starts[word] & bit == 0 {
            let free = self.taken[word] & bit == 0;
            return Err(if free { FreeError::Free { start } } else { FreeError::Inside { start } });
        }
        let end = self.end(start);
        bits::fill(&mut self.taken, start, end, false);
        self.starts[word] &= !bit;
        self.pages_taken -= end - start;
        self.runs -= 1;
        Ok(end - start)
    }

    /// The end of the run that begins with `start`.
    #[inline]
    fn end(&self, start: u32) -> u32 {
        let mut at = start + 1;
        while at < self.pages {
            let word = at as usize / 64;
            let over = (!self.taken[word] | self.starts[word]) >> (at % 64);
            if over != 0 {
                // The last word has bits behind the last page, which are never set.
                return at + over.trailing_zeros();
            }
            at = (at / 64 + 1) * 64;
        }
        self.pages
    }

    /// The first free run within `from..end`: see [`bits::find_clear`].
    #[inline]
    pub(super) fn find(
        &self,
        within: (u32, u32),
        run: (u32, u32),
        inner: Inner,
        work: &mut Work,
    ) -> Option<u32> {
        bits::find_clear(&self.taken, within, run, inner, work)
    }

    /// The longest free run that begins at a multiple of `align`.
    pub(super) fn longest_free(&self, align: u32) -> u32 {
        bits::longest_clear(&self.taken, self.pages, align)
    }
}
