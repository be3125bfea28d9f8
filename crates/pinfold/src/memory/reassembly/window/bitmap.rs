//! The paper's page-pool bitmap (section 2.3): an outer loop over words finds free pages, an inner
//! one checks that enough of them are contiguous.

use super::{
    super::{
        bits::{Inner, Work},
        ledger::Ledger,
    },
    AllocError, Count, FreeError, PAGES_MAX, Windows, check, full,
};

/// A bit for each page, searched from where the last search ended, and around.
///
/// Small (2 bits a page) and exact: a run that fits is found. A search looks at the whole map at
/// worst, and on its way at each free run that is too short.
#[derive(Clone, Debug)]
pub struct Bitmap {
    ledger: Ledger,
    rover: u32,
    inner: Inner,
    work: Work,
}

impl Bitmap {
    /// All of `pages` pages are free; [`PAGES_MAX`] at most, of more only so many are used.
    pub fn new(pages: u32) -> Bitmap {
        Bitmap::searching(pages, Inner::default())
    }

    /// The same with another inner loop: [`Inner::Forward`] is the paper's.
    pub fn searching(pages: u32, inner: Inner) -> Bitmap {
        let ledger = Ledger::new(pages.min(PAGES_MAX));
        Bitmap { ledger, rover: 0, inner, work: Work::default() }
    }

    /// Has the next search begin at `page`. Beyond the end it begins at 0.
    pub fn search_from(&mut self, page: u32) {
        self.rover = if page < self.ledger.pages() { page } else { 0 };
    }

    /// The page at which the next search begins.
    pub fn rover(&self) -> u32 {
        self.rover
    }

    /// The work of the searches until now.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The first free run at or behind `from`, or else before. Takes nothing.
    ///
    /// Runs do not go around the end, but one may begin before `from` and end behind it.
    #[inline]
    fn find(&mut self, from: u32, pages: u32, align: u32) -> Option<u32> {
        let (end, work) = (self.ledger.pages(), &mut self.work);
        let behind = self.ledger.find((from, end), (pages, align), self.inner, work);
        if behind.is_some() || from == 0 {
            return behind;
        }
        let end = end.min(from.saturating_add(pages - 1));
        self.ledger.find((0, end), (pages, align), self.inner, work)
    }
}

impl Windows for Bitmap {
    #[inline]
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError> {
        check(pages, align)?;
        let found = self.find(self.rover, pages, align);
        let start = found.ok_or_else(|| full(self, pages, align))?;
        self.ledger.take(start, pages);
        self.search_from(start + pages);
        Ok(start)
    }

    #[inline]
    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        self.ledger.give(start)
    }

    fn count(&self) -> Count {
        let (pages, taken) = (self.ledger.pages(), self.ledger.pages_taken());
        Count { pages, taken, held: taken, runs: self.ledger.runs() }
    }

    fn largest(&self, align: u32) -> u32 {
        if align.is_power_of_two() { self.ledger.longest_free(align) } else { 0 }
    }
}
