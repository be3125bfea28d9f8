//! The pages of a pool that are taken, their owners, and the pages that have memory. No I/O.

use std::{collections::BTreeMap, ops::Range};

use smallvec::SmallVec;

use super::{
    super::{
        HUGE_PAGES, bits,
        window::{AllocError, Tree, Windows},
    },
    Owner, PoolCount, TakeError,
};

/// Contiguous pages of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first page.
    pub first: u32,
    /// Pages, at least 1.
    pub pages: u32,
    /// True if it has whole blocks of 2 MiB, and all of them were huge pages when last asked for.
    pub huge: bool,
}

impl Piece {
    /// The numbers of its pages.
    pub fn range(&self) -> Range<u32> {
        self.first..self.first + self.pages
    }
}

/// The pieces of a message. Few messages have more than one.
pub(super) type Pieces = SmallVec<[Piece; 2]>;

/// Memory that pages lack before they can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Want {
    pub(super) pages: Range<u32>,
    /// They are whole blocks that should become huge pages.
    pub(super) huge: bool,
}

/// Pages in use are those of the tree; the owners' numbers add up to theirs.
#[derive(Debug)]
pub(super) struct Account {
    tree: Tree,
    owners: BTreeMap<Owner, u32>,
    /// A bit for each page that has memory.
    committed: Box<[u64]>,
    committed_pages: u32,
    /// A bit for each block that was asked to become a huge page, and for each that did.
    tried: Box<[u64]>,
    huge: Box<[u64]>,
}

impl Account {
    pub(super) fn new(pages: u32) -> Account {
        let words = |bits: u32| vec![0; bits.div_ceil(64) as usize].into_boxed_slice();
        let blocks = pages / HUGE_PAGES;
        Account {
            tree: Tree::new(pages),
            owners: BTreeMap::new(),
            committed: words(pages),
            committed_pages: 0,
            tried: words(blocks),
            huge: words(blocks),
        }
    }

    pub(super) fn count(&self) -> PoolCount {
        let count = self.tree.count();
        PoolCount {
            pages: count.pages,
            taken: count.taken,
            pieces: count.runs,
            committed: self.committed_pages,
            huge: self.huge.iter().map(|word| word.count_ones()).sum(),
            owners: self.owners.len() as u32,
        }
    }

    pub(super) fn taken_by(&self, owner: Owner) -> u32 {
        self.owners.get(&owner).copied().unwrap_or(0)
    }

    /// Takes `pages` pages. Never fails while so many are free.
    ///
    /// Pages beyond 2 MiB come in whole blocks of 512 as far as there are any; of each kind the
    /// pieces are as few as can be, and the blocks come first.
    pub(super) fn take(&mut self, owner: Owner, pages: u64) -> Result<Pieces, TakeError> {
        let count = self.tree.count();
        let (free, budget, own) = (count.free(), count.pages, self.taken_by(owner));
        let exhausted = || TakeError::Exhausted { asked: pages, free, budget, own };
        let mut left = u32::try_from(pages).map_err(|_| exhausted())?;
        if left > free {
            return Err(exhausted());
        }
        let mut pieces = Pieces::new();
        while left >= HUGE_PAGES {
            let Some((first, pages)) = self.longest(left, HUGE_PAGES) else { break };
            pieces.push(Piece { first, pages, huge: false });
            left -= pages;
        }
        while left > 0 {
            // Cannot fail: so many pages are free.
            let Some((first, pages)) = self.longest(left, 1) else {
                self.give_pieces(&pieces);
                return Err(exhausted());
            };
            pieces.push(Piece { first, pages, huge: false });
            left -= pages;
        }
        if pages > 0 {
            *self.owners.entry(owner).or_default() += pages as u32;
        }
        Ok(pieces)
    }

    /// One run of `pages` pages at a multiple of `align`; or else the longest that there is, in
    /// multiples of `align`.
    fn longest(&mut self, pages: u32, align: u32) -> Option<(u32, u32)> {
        match self.tree.alloc(pages, align) {
            Ok(first) => Some((first, pages)),
            Err(AllocError::Full { largest, .. }) => {
                let pages = largest / align * align;
                Some((self.tree.alloc(pages, align).ok()?, pages))
            }
            Err(_) => None,
        }
    }

    pub(super) fn give(&mut self, owner: Owner, pieces: &[Piece]) {
        let pages = self.give_pieces(pieces);
        if let Some(own) = self.owners.get_mut(&owner) {
            *own -= pages;
            if *own == 0 {
                self.owners.remove(&owner);
            }
        }
    }

    fn give_pieces(&mut self, pieces: &[Piece]) -> u32 {
        let mut pages = 0;
        for piece in pieces {
            let freed = self.tree.free(piece.first);
            debug_assert_eq!(freed, Ok(piece.pages), "pieces come from `take` and come back once");
            pages += freed.unwrap_or(0);
        }
        pages
    }

    /// The wants of a piece: memory, or a try at huge pages for the whole blocks in it.
    pub(super) fn wants(&self, piece: &Piece) -> SmallVec<[Want; 2]> {
        let mut wants: SmallVec<[Want; 2]> = SmallVec::new();
        let blocks = whole_blocks(piece);
        let untried = |block: &u32| blocks.contains(block) && !has(&self.tried, *block);
        for block in blocks.clone().filter(untried) {
            let pages = block * HUGE_PAGES..(block + 1) * HUGE_PAGES;
            match wants.last_mut() {
                Some(Want { pages: last, .. }) if last.end == pages.start => last.end = pages.end,
                _ => wants.push(Want { pages, huge: true }),
            }
        }
        let mut at = piece.first;
        let end = piece.range().end;
        while let Some(start) = bits::first(&self.committed, at, end, false) {
            let block = start / HUGE_PAGES;
            if untried(&block) {
                at = (block + 1) * HUGE_PAGES;
                continue;
            }
            at = bits::first(&self.committed, start, end, true).unwrap_or(end);
            // Up to the beginning of a block that was dealt with above.
            if let Some(block) = (block + 1..at.div_ceil(HUGE_PAGES)).find(untried) {
                at = block * HUGE_PAGES;
            }
            wants.push(Want { pages: start..at, huge: false });
        }
        wants
    }

    /// Notes that a want was met, in `huge` pages or not.
    pub(super) fn met(&mut self, want: &Want, huge: bool) {
        let Range { start, end } = want.pages.clone();
        self.committed_pages += end - start - self.committed_in(start, end);
        bits::fill(&mut self.committed, start, end, true);
        if want.huge {
            let blocks = start / HUGE_PAGES..end / HUGE_PAGES;
            bits::fill(&mut self.tried, blocks.start, blocks.end, true);
            bits::fill(&mut self.huge, blocks.start, blocks.end, huge);
        }
    }

    /// Notes that pages have no memory any more.
    pub(super) fn left(&mut self, pages: Range<u32>) {
        self.committed_pages -= self.committed_in(pages.start, pages.end);
        bits::fill(&mut self.committed, pages.start, pages.end, false);
        let blocks = pages.start / HUGE_PAGES
            ..pages.end.div_ceil(HUGE_PAGES).min(self.tree.count().pages / HUGE_PAGES);
        bits::fill(&mut self.tried, blocks.start, blocks.end, false);
        bits::fill(&mut self.huge, blocks.start, blocks.end, false);
    }

    /// Notes that the blocks of some pages are no huge pages any more. They are not tried again:
    /// the cause that tore them may come again, and to mend them costs as much as a copy.
    pub(super) fn torn(&mut self, pages: Range<u32>) {
        let blocks = pages.start / HUGE_PAGES
            ..pages.end.div_ceil(HUGE_PAGES).min(self.tree.count().pages / HUGE_PAGES);
        bits::fill(&mut self.huge, blocks.start, blocks.end, false);
    }

    /// Returns whether a piece has whole blocks, and all of them are huge pages.
    pub(super) fn is_huge(&self, piece: &Piece) -> bool {
        let mut blocks = whole_blocks(piece);
        !blocks.is_empty() && blocks.all(|block| has(&self.huge, block))
    }

    fn committed_in(&self, start: u32, end: u32) -> u32 {
        let (mut at, mut count) = (start, 0);
        while let Some(from) = bits::first(&self.committed, at, end, true) {
            at = bits::first(&self.committed, from, end, false).unwrap_or(end);
            count += at - from;
        }
        count
    }
}

fn has(words: &[u64], at: u32) -> bool {
    words[at as usize / 64] >> (at % 64) & 1 == 1
}

/// The blocks that lie wholly in a piece.
fn whole_blocks(piece: &Piece) -> Range<u32> {
    let Range { start, end } = piece.range();
    start.div_ceil(HUGE_PAGES)..end / HUGE_PAGES
}
