//! The buddy system (Knowlton 1965; Knuth, *The Art of Computer Programming*, volume 1, section
//! 2.5).

use super::{
    super::{bits::Set, ledger::Ledger},
    AllocError, Count, FreeError, PAGES_MAX, Windows, check, full,
};

/// Blocks of powers of two, each at a multiple of its length; halved when taken, joined with their
/// other half when given back.
///
/// A run of any length is the beginning of a block; the rest of the block stays free, so no page is
/// lost, and only the search is by blocks: of a free run that is not one block, only a part can be
/// had at once. Constant time but for the halving: at most one look for each of the 32 powers of
/// two. About 4 bits a page.
///
/// Invariants: the free blocks and the runs in the ledger cover each page once; no two free blocks
/// are the halves of one; bit `n` of `orders` is set if and only if there are free blocks of 2ⁿ
/// pages.
#[derive(Clone, Debug)]
pub struct Buddy {
    ledger: Ledger,
    /// For each power of two, the free blocks of that many pages, by their numbers.
    free: Vec<Set>,
    orders: u32,
}

impl Buddy {
    /// All of `pages` pages are free; [`PAGES_MAX`] at most, of more only so many are used. The
    /// rest beyond a power of two is smaller blocks.
    pub fn new(pages: u32) -> Buddy {
        let pages = pages.min(PAGES_MAX);
        let orders = pages.checked_ilog2().map_or(0, |order| order + 1);
        let free = (0..orders).map(|order| Set::new(pages >> order)).collect();
        let mut buddy = Buddy { ledger: Ledger::new(pages), free, orders: 0 };
        buddy.put_run(0, pages);
        buddy
    }

    /// Frees the pages `start..end`, as the fewest blocks that they can be.
    #[inline]
    fn put_run(&mut self, start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let order = at.trailing_zeros().min((end - at).ilog2());
            self.put(at, order);
            at += 1 << order;
        }
    }

    /// Frees one block, and joins it with its other half as long as that is free.
    #[inline]
    fn put(&mut self, start: u32, order: u32) {
        let (mut block, mut order) = (start >> order, order);
        while self.free[order as usize].contains(block ^ 1) {
            self.remove(block ^ 1, order);
            (block, order) = (block >> 1, order + 1);
        }
        self.free[order as usize].insert(block);
        self.orders |= 1 << order;
    }

    #[inline]
    fn remove(&mut self, block: u32, order: u32) {
        let free = &mut self.free[order as usize];
        free.remove(block);
        if free.is_empty() {
            self.orders &= !(1 << order);
        }
    }

    /// The lowest of the smallest free blocks of at least `pages` pages.
    #[inline]
    fn find(&self, pages: u32) -> Option<(u32, u32)> {
        let order = pages.checked_next_power_of_two()?.ilog2();
        let orders = self.orders & u32::MAX.checked_shl(order)?;
        if orders == 0 {
            return None;
        }
        let order = orders.trailing_zeros();
        Some((self.free[order as usize].lowest()?, order))
    }
}

impl Windows for Buddy {
    #[inline]
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError> {
        check(pages, align)?;
        let found = self.find(pages.max(align));
        let (block, order) = found.ok_or_else(|| full(self, pages, align))?;
        self.remove(block, order);
        let start = block << order;
        self.put_run(start + pages, start + (1 << order));
        self.ledger.take(start, pages);
        Ok(start)
    }

    #[inline]
    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        let pages = self.ledger.give(start)?;
        self.put_run(start, start + pages);
        Ok(pages)
    }

    fn count(&self) -> Count {
        let (pages, taken) = (self.ledger.pages(), self.ledger.pages_taken());
        Count { pages, taken, held: taken, runs: self.ledger.runs() }
    }

    fn largest(&self, align: u32) -> u32 {
        let largest = self.orders.checked_ilog2().map_or(0, |order| 1 << order);
        if align.is_power_of_two() && align <= largest { largest } else { 0 }
    }
}
