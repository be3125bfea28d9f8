//! Size classes: the paper's maps of which each bit stands for several pages (section 4.3), *tiny*
//! to *huge* of 1, 4, 16, 64, 256 pages (its conclusions), and 512 and more.

use super::{
    super::{
        HUGE_PAGES,
        bits::{self, Inner, Set, Work},
        ledger::Ledger,
    },
    AllocError, Count, FreeError, PAGES_MAX, Windows, check, full,
};

/// Pages of a slot of each class.
const SLOT_PAGES: [u32; 5] = [1, 4, 16, 64, 256];

/// Pages of a block.
const BLOCK: u32 = HUGE_PAGES;

/// The class of a block that a longer run begins with.
const WHOLE: u8 = SLOT_PAGES.len() as u8;

/// A block of 512 pages, which are 2 MiB.
#[derive(Clone, Debug)]
struct Block {
    /// Its class, or [`WHOLE`], while it is in use.
    class: u8,
    /// Slots that are free, and how many there are.
    free: u16,
    slots: [u64; BLOCK as usize / 64],
}

/// The window in blocks of 512 pages. A block in use is divided into slots of one class, or is part
/// of a longer run; one that is used no more can become anything.
///
/// Constant time, for runs that fit into a slot: neither fullness nor fragmentation matters to it.
/// Runs of more than 256 pages are searched for in a map of a bit for each block. The price is
/// address space: a run holds a whole slot, or whole blocks. When no block is left a run takes a
/// slot of a larger class; it never takes several of a smaller one.
///
/// Only whole blocks are used.
///
/// Invariants: a block is `busy`, unless all of it is free; it is in `open[class]` if and only if
/// it is divided and has a free slot; `held` is the pages of slots and blocks that are not free.
#[derive(Clone, Debug)]
pub struct SizeClasses {
    ledger: Ledger,
    blocks: Vec<Block>,
    /// A bit for each block in use, and how many are not.
    busy: Box<[u64]>,
    free_blocks: u32,
    /// Every block before it is in use.
    low: u32,
    /// Blocks with a free slot, by class.
    open: [Set; SLOT_PAGES.len()],
    held: u32,
}

/// The class for runs of `pages` pages, if there is one.
#[inline]
fn class_of(pages: u32) -> Option<usize> {
    match pages {
        0..=1 => Some(0),
        2..=4 => Some(1),
        5..=16 => Some(2),
        17..=64 => Some(3),
        65..=256 => Some(4),
        _ => None,
    }
}

impl SizeClasses {
    /// All of `pages` pages are free; [`PAGES_MAX`] at most, of more only so many are used; and no
    /// more than whole blocks of 512.
    pub fn new(pages: u32) -> SizeClasses {
        let blocks = pages.min(PAGES_MAX) / BLOCK;
        let block = Block { class: 0, free: 0, slots: [0; BLOCK as usize / 64] };
        SizeClasses {
            ledger: Ledger::new(blocks * BLOCK),
            blocks: vec![block; blocks as usize],
            busy: vec![0; blocks.div_ceil(64) as usize].into_boxed_slice(),
            free_blocks: blocks,
            low: 0,
            open: std::array::from_fn(|_| Set::new(blocks)),
            held: 0,
        }
    }

    /// Takes `count` free blocks, the first at a multiple of `align` blocks.
    fn take_blocks(&mut self, count: u32, align: u32) -> Option<u32> {
        if self.free_blocks < count {
            return None;
        }
        let end = self.blocks.len() as u32;
        self.low = bits::first(&self.busy, self.low, end, false)?;
        let (within, run) = ((self.low, end), (count, align));
        let block =
            bits::find_clear(&self.busy, within, run, Inner::Backward, &mut Work::default())?;
        bits::fill(&mut self.busy, block, block + count, true);
        self.free_blocks -= count;
        Some(block)
    }

    fn give_blocks(&mut self, block: u32, count: u32) {
        bits::fill(&mut self.busy, block, block + count, false);
        self.free_blocks += count;
        self.low = self.low.min(block);
    }

    /// A block with a free slot: of that class, or a fresh one, or of a larger class.
    #[inline]
    fn block_for(&mut self, class: usize) -> Option<u32> {
        let open = self.open[class].lowest();
        if open.is_some() {
            return open;
        }
        if let Some(block) = self.take_blocks(1, 1) {
            let slots = BLOCK / SLOT_PAGES[class];
            let fresh = &mut self.blocks[block as usize];
            (fresh.class, fresh.free) = (class as u8, slots as u16);
            bits::fill(&mut fresh.slots, 0, slots, true);
            self.open[class].insert(block);
            return Some(block);
        }
        self.open[class + 1..].iter().find_map(Set::lowest)
    }

    #[inline]
    fn take_slot(&mut self, class: usize) -> Option<u32> {
        let at = self.block_for(class)?;
        let block = &mut self.blocks[at as usize];
        let class = usize::from(block.class);
        let word = block.slots.iter().position(|word| *word != 0)?;
        let slot = word as u32 * 64 + block.slots[word].trailing_zeros();
        block.slots[word] &= block.slots[word] - 1;
        block.free -= 1;
        if block.free == 0 {
            self.open[class].remove(at);
        }
        self.held += SLOT_PAGES[class];
        Some(at * BLOCK + slot * SLOT_PAGES[class])
    }

    #[inline]
    fn give_slot(&mut self, start: u32) {
        let at = start / BLOCK;
        let block = &mut self.blocks[at as usize];
        let class = usize::from(block.class);
        let slot = start % BLOCK / SLOT_PAGES[class];
        block.slots[slot as usize / 64] |= 1 << (slot % 64);
        block.free += 1;
        let (free, slots) = (u32::from(block.free), BLOCK / SLOT_PAGES[class]);
        self.held -= SLOT_PAGES[class];
        if free == slots {
            block.slots = [0; BLOCK as usize / 64];
            self.open[class].remove(at);
            self.give_blocks(at, 1);
        } else if free == 1 {
            self.open[class].insert(at);
        }
    }
}

impl Windows for SizeClasses {
    #[inline]
    fn alloc(&mut self, pages: u32, align: u32) -> Result<u32, AllocError> {
        check(pages, align)?;
        let found = match class_of(pages.max(align)) {
            Some(class) => self.take_slot(class),
            None => {
                let count = pages.div_ceil(BLOCK);
                self.take_blocks(count, align.div_ceil(BLOCK)).map(|block| {
                    self.blocks[block as usize].class = WHOLE;
                    self.held += count * BLOCK;
                    block * BLOCK
                })
            }
        };
        let start = found.ok_or_else(|| full(self, pages, align))?;
        self.ledger.take(start, pages);
        Ok(start)
    }

    #[inline]
    fn free(&mut self, start: u32) -> Result<u32, FreeError> {
        let pages = self.ledger.give(start)?;
        if self.blocks[(start / BLOCK) as usize].class == WHOLE {
            let count = pages.div_ceil(BLOCK);
            self.held -= count * BLOCK;
            self.give_blocks(start / BLOCK, count);
        } else {
            self.give_slot(start);
        }
        Ok(pages)
    }

    fn count(&self) -> Count {
        let (pages, taken) = (self.ledger.pages(), self.ledger.pages_taken());
        Count { pages, taken, held: self.held, runs: self.ledger.runs() }
    }

    fn largest(&self, align: u32) -> u32 {
        if !align.is_power_of_two() {
            return 0;
        }
        let blocks = self.blocks.len() as u32;
        let run = bits::longest_clear(&self.busy, blocks, align.div_ceil(BLOCK)) * BLOCK;
        let slots = self.open.iter().zip(SLOT_PAGES).rev();
        let slot = slots.filter(|(open, _)| !open.is_empty()).map(|(_, pages)| pages).next();
        run.max(slot.filter(|pages| *pages >= align).unwrap_or(0))
    }
}
