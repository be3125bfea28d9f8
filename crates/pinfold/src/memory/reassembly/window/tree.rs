//! An ordered tree: free runs by their first page and by their length.

use std::collections::{BTreeMap, BTreeSet};

use super::{super::ledger::Ledger, AllocError, Count, FreeError, PAGES_MAX, Windows, check, full};

/// Best fit by size, the lowest among equals; neighbours are joined at once.
///
/// Exact, and knows its longest run. Takes memory for each free run, and so a call to the allocator
/// now and then. Time grows with the logarithm of the number of free runs; aligned runs of a length
/// that many free runs have, but not at such a place, take a look at each of those.
///
/// Invariant: both trees hold the same free runs, of which no two touch; with those in the ledger
/// they cover every page once.
#[derive(Clone, Debug)]
pub struct Tree {
    ledger: Ledger,
    /// Length by first page.
    by_start: BTreeMap<u32, u32>,
    /// Length, first page.
    by_len: BTreeSet<(u32, u32)>,
}

impl Tree {
    /// All of `pages` pages are free; [`PAGES_MAX`] at most, of more only so many are used.
    pub fn new(pages: u32) -> Tree {
        let pages = pages.min(PAGES_MAX);
        let (by_start, by_len) = Default::default();
        let mut tree = Tree { ledger: Ledger::new(pages), by_start, by_len };
        tree.put(0, pages);
        tree
    }

    fn put(&mut self, start: u32, len: u32) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_len.insert((len, start));
        }
    }

    fn remove(&mut self, start: u32, len: u32) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}

/// The pages of a free run before the first multiple of `align`; more than the run if there is
/// none.
fn skip(start: u32, align: u32) -> u32 {
    start.wrapping_neg() & (align - 1)
}

impl Windows for Tree {
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError> {
        check(pages, align)?;
        let fits = |(len, start): &&(u32, u32)| len - pages >= skip(*start, align);
        let found = self.by_len.range((pages, 0)..).find(fits).copied();
        let (len, start) = found.ok_or_else(|| full(self, pages, align))?;
        let skip = skip(start, align);
        self.remove(start, len);
        self.put(start, skip);
        self.put(start + skip + pages, len - skip - pages);
        self.ledger.take(start + skip, pages);
        Ok(start + skip)
    }

    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        let pages = self.ledger.give(start)?;
        let (mut from, mut len) = (start, pages);
        let before = self.by_start.range(..start).next_back().map(|(at, len)| (*at, *len));
        if let Some((at, had)) = before.filter(|(at, had)| at + had == start) {
            self.remove(at, had);
            (from, len) = (at, had + len);
        }
        if let Some(had) = self.by_start.get(&(start + pages)).copied() {
            self.remove(start + pages, had);
            len += had;
        }
        self.put(from, len);
        Ok(pages)
    }

    fn count(&self) -> Count {
        let (pages, taken) = (self.ledger.pages(), self.ledger.pages_taken());
        Count { pages, taken, held: taken, runs: self.ledger.runs() }
    }

    fn largest(&self, align: u32) -> u32 {
        if !align.is_power_of_two() {
            return 0;
        }
        let mut largest = 0;
        for (len, start) in self.by_len.iter().rev() {
            if *len <= largest {
                break;
            }
            largest = largest.max(len.saturating_sub(skip(*start, align)));
        }
        largest
    }
}
