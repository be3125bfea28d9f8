//! The account of an arena's extents: the places of their buffers, and the chunks that have memory.
//!
//! No system calls: the [heap](super::heap) makes those, and reports their results. Small buffers
//! share extents; the oldest with room is taken, so that younger ones run empty. A large buffer has
//! an extent of its own, which serves the next buffer of about that size.

use std::{ops::Range, ptr::NonNull, sync::Arc};

use super::{
    committed::{BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, Committed, Piece},
    demand::Demand,
    recent::Recent,
    registry::Listed,
    space::{Grant, Space},
    stats::ArenaStats,
};
use crate::{Error, Result};

/// Space is given out by so many bytes: a cache line, so that two buffers never share one.
pub(crate) const UNIT_BYTES: usize = 64;
const CHUNK_UNITS: u32 = (CHUNK_BYTES / UNIT_BYTES) as u32;
/// Longer buffers have an extent of their own, in large arenas only if they are longer than this
/// part of it: each takes a descriptor, and there are not too many of those.
const OWN_BYTES: usize = 8 << 20;
const OWN_PART: u64 = 64;
/// The longest extent, and so the longest buffer.
pub(crate) const EXTENT_BYTES_LIMIT: usize = 128 << 30;
/// An extent that is longer than a buffer by no more than this part of the buffer may serve it.
const FIT_PART: usize = 4;

/// The needs of a buffer: its units and their alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub bytes: usize,
    pub align: usize,
}

impl Want {
    /// # Errors
    /// [`Error::LimitReached`] for lengths and alignments that no machine has.
    #[inline]
    pub(crate) fn new(len: usize, align: usize) -> Result<Want> {
        let bytes = len.max(1).checked_next_multiple_of(UNIT_BYTES);
        let align = align.max(UNIT_BYTES).checked_next_power_of_two();
        match (bytes, align) {
            (Some(bytes @ ..=EXTENT_BYTES_LIMIT), Some(align @ ..=EXTENT_BYTES_LIMIT)) => {
                Ok(Want { bytes, align })
            }
            _ => Err(Error::LimitReached {
                what: "the length and the alignment of a buffer",
                limit: EXTENT_BYTES_LIMIT as u64,
                remedy: "use several buffers",
            }),
        }
    }

    /// Within the limit, so it fits.
    fn units(&self) -> u32 {
        (self.bytes / UNIT_BYTES) as u32
    }

    /// The alignment within an extent, which itself is aligned to a block at least.
    fn align_units(&self) -> u32 {
        (self.align.min(BLOCK_BYTES) / UNIT_BYTES) as u32
    }
}

/// A place in an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    slot: u32,
    node: u32,
}

/// A place that was found for a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub block: Block,
    pub at: NonNull<u8>,
    /// True if it has memory.
    pub backed: bool,
}

struct Slot {
    extent: Arc<Listed>,
    space: Space,
    committed: Committed,
    /// For one large buffer.
    own: bool,
}

impl Slot {
    fn place(&mut self, index: u32, want: &Want) -> Option<Placed> {
        let Grant { node, offset } = self.space.take(want.units(), want.align_units())?;
        let backed = self.committed.covers(chunks(offset, want.units()));
        // Within the extent, so not null.
        let at = NonNull::new(self.at(node))?;
        Some(Placed { block: Block { slot: index, node }, at, backed })
    }

    /// Returns whether a buffer may lie here, if there is room: an extent for one has no other.
    fn serves(&self, want: &Want) -> bool {
        let aligned = self.extent.base().addr().is_multiple_of(want.align.max(BLOCK_BYTES));
        aligned && (self.space.is_empty() || !self.own && want.align <= BLOCK_BYTES)
    }

    /// Places a buffer where there is memory.
    fn place_backed(&mut self, index: u32, want: &Want) -> Option<Placed> {
        let (len, align) = (want.units(), want.align_units());
        let in_run = |run: Range<u32>, from: u32, to: u32| {
            // The first place of a run that is within the free range, and right.
            let from = from.max(run.start * CHUNK_UNITS).checked_next_multiple_of(align)?;
            let to = to.min(run.end * CHUNK_UNITS);
            (from <= to && len <= to - from).then_some(from)
        };
        let offset = if self.own {
            // An extent for one buffer has it at its beginning.
            self.committed.covers(chunks(0, len)).then_some(0)
        } else {
            self.space.free_ranges(len).find_map(|(offset, had)| {
                let end = offset + had;
                let mut runs = self.committed.runs(chunks(offset, had), true);
                runs.find_map(|run| in_run(run, offset, end))
            })
        }?;
        let Grant { node, .. } = self.space.take_at(offset, len)?;
        debug_assert!(self.committed.covers(chunks(offset, len)));
        let at = NonNull::new(self.at(node))?;
        Some(Placed { block: Block { slot: index, node }, at, backed: true })
    }

    /// The first byte of a node.
    #[inline]
    fn at(&self, node: u32) -> *mut u8 {
        self.extent.base().wrapping_add(self.space.range(node).0 as usize * UNIT_BYTES)
    }

    fn bytes_committed(&self) -> u64 {
        u64::from(self.committed.count()) * CHUNK_BYTES as u64
    }
}

/// The chunks that some units lie in.
fn chunks(offset: u32, len: u32) -> Range<u32> {
    offset / CHUNK_UNITS..(offset + len).div_ceil(CHUNK_UNITS)
}

/// The number of whole chunks in some bytes.
fn chunks_in(bytes: u64) -> u32 {
    u32::try_from(bytes / CHUNK_BYTES as u64).unwrap_or(u32::MAX)
}

/// Memory to be returned, which the account no longer has.
#[derive(Default)]
pub(crate) struct Idle {
    /// Extents without buffers.
    pub extents: Vec<Arc<Listed>>,
    /// Chunks of others.
    pub chunks: Vec<(u32, Arc<Listed>, Range<u32>)>,
    /// Bytes in all.
    pub bytes: u64,
}

/// Bytes that go back by themselves at once, at most: that takes time, and a thread that drops a
/// buffer waits for it. One extent may be more.
const TRIM_BYTES: u64 = 32 << 20;

/// The amount of memory to return.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trim {
    /// No more than so many bytes, and not all at once.
    AtMost(u64),
    /// So many bytes or somewhat more, if there are.
    AtLeast(u64),
    /// All that is idle, with its address space.
    All,
}

/// Accounting: `bytes_committed` is the sum over the extents; `bytes_live` that of all blocks
/// handed out; a block that is placed and not handed out, or that is in `recent`, is in use in its
/// extent's space alone.
#[derive(Default)]
pub(crate) struct State {
    slots: Vec<Option<Box<Slot>>>,
    /// The extents that buffers share, oldest first.
    shared: Vec<u32>,
    recent: Recent<Block>,
    /// All but `bytes_huge`, which is counted when asked for.
    stats: ArenaStats,
    demand: Demand,
}

impl State {
    /// Finds a place, with memory or without, in the extents there are.
    #[inline]
    pub(crate) fn place(&mut self, want: &Want) -> Option<Placed> {
        let fits = |block: &Block| {
            let slot = self.slots[block.slot as usize].as_ref();
            slot.is_some_and(|slot| slot.at(block.node).addr() & (want.align - 1) == 0)
        };
        if let Some(block) = self.recent.take(want.units(), fits) {
            let at = NonNull::new(self.slot(block).at(block.node))?;
            return Some(Placed { block, at, backed: true });
        }
        if self.is_own(want) { self.place_own(want) } else { self.place_shared(want) }
    }

    /// Returns whether a buffer should have an extent of its own.
    #[inline]
    pub(crate) fn is_own(&self, want: &Want) -> bool {
        want.bytes > OWN_BYTES && want.bytes as u64 > self.stats.bytes_mapped / OWN_PART
            || want.align > BLOCK_BYTES
    }

    /// As [`State::place`], in extents that others share.
    #[inline]
    pub(crate) fn place_shared(&mut self, want: &Want) -> Option<Placed> {
        if want.align > BLOCK_BYTES {
            return None;
        }
        let State { slots, shared, .. } = self;
        let mut found = shared.iter().filter_map(|index| {
            let slot = slots[*index as usize].as_mut()?;
            slot.place(*index, want)
        });
        found.next()
    }

    /// Finds a place that has memory already, however long that takes.
    pub(crate) fn place_backed(&mut self, want: &Want) -> Option<Placed> {
        for recent in self.recent.drain() {
            self.withdraw(recent);
        }
        let mut slots = self.slots.iter_mut().enumerate();
        slots.find_map(|(index, slot)| {
            let slot = slot.as_mut().filter(|slot| slot.serves(want))?;
            slot.place_backed(index as u32, want)
        })
    }

    fn place_own(&mut self, want: &Want) -> Option<Placed> {
        let longest = want.bytes + want.bytes / FIT_PART + BLOCK_BYTES;
        let slots = self.slots.iter_mut().enumerate();
        let fitting = slots.filter_map(|(index, slot)| {
            let slot = slot.as_mut().filter(|slot| slot.own && slot.serves(want))?;
            (want.bytes..=longest).contains(&slot.extent.len).then_some((index, slot))
        });
        let (index, slot) = fitting.min_by_key(|(_, slot)| slot.extent.len)?;
        slot.place(index as u32, want)
    }

    /// Adds an extent, for one buffer or for many, and finds a place in it.
    pub(crate) fn add(&mut self, extent: Arc<Listed>, own: bool, want: &Want) -> Option<Placed> {
        // At most `EXTENT_BYTES_LIMIT` bytes, so both fit.
        let space = Space::new((extent.len / UNIT_BYTES) as u32);
        let committed = Committed::new((extent.len / CHUNK_BYTES) as u32);
        self.stats.bytes_mapped += extent.len as u64;
        self.stats.extents += 1;
        let slot = Slot { extent, space, committed, own };
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if !own {
            self.shared.push(index as u32);
        }
        self.slots[index].insert(Box::new(slot)).place(index as u32, want)
    }

    /// The buffer of a block begins its life.
    #[inline]
    pub(crate) fn hand_out(&mut self, block: Block) {
        let (_, len) = self.slot(block).space.range(block.node);
        let stats = &mut self.stats;
        stats.buffers += 1;
        stats.bytes_live += u64::from(len) * UNIT_BYTES as u64;
        stats.bytes_live_peak = stats.bytes_live_peak.max(stats.bytes_live);
        self.demand.grew(stats.bytes_live);
    }

    /// A block that was not handed out is free again.
    #[inline]
    pub(crate) fn withdraw(&mut self, block: Block) {
        self.slot_mut(block).space.give(block.node);
    }

    /// The extent of a block and its byte offsets there.
    #[inline]
    pub(crate) fn range(&self, block: Block) -> (&Arc<Listed>, Range<u64>) {
        let slot = self.slot(block);
        let (offset, len) = slot.space.range(block.node);
        let bytes = |units: u32| u64::from(units) * UNIT_BYTES as u64;
        (&slot.extent, bytes(offset)..bytes(offset + len))
    }

    /// The buffer of a block has ended its life. Returns how many bytes of memory to give back now.
    #[inline]
    pub(crate) fn free(&mut self, block: Block) -> u64 {
        let slot = self.slot(block);
        let (_, len) = slot.space.range(block.node);
        let gone = if slot.own { Some(block) } else { self.recent.put(len, block) };
        if let Some(gone) = gone {
            self.withdraw(gone);
        }
        let bytes = u64::from(len) * UNIT_BYTES as u64;
        self.stats.buffers -= 1;
        self.stats.bytes_live -= bytes;
        self.demand.freed(bytes, self.stats.bytes_live, self.stats.bytes_committed)
    }

    /// The extent of a block, and the pieces to commit for it; see [`Committed::plan`].
    pub(crate) fn plan(&self, block: Block, whole_from: u32) -> (Arc<Listed>, Vec<Piece>) {
        let slot = self.slot(block);
        let (offset, len) = slot.space.range(block.node);
        (Arc::clone(&slot.extent), slot.committed.plan(chunks(offset, len), whole_from))
    }

    /// A piece of a block's extent has memory.
    pub(crate) fn committed(&mut self, block: Block, piece: &Piece) {
        self.set(block.slot, piece);
    }

    /// Memory that was to be returned could not be.
    pub(crate) fn not_released(&mut self, slot: u32, chunks: Range<u32>) {
        self.set(slot, &Piece { chunks, huge: false });
    }

    fn set(&mut self, slot: u32, piece: &Piece) {
        let Some(slot) = &mut self.slots[slot as usize] else { return };
        let before = slot.bytes_committed();
        slot.committed.set(piece);
        let stats = &mut self.stats;
        stats.bytes_committed += slot.bytes_committed() - before;
        stats.bytes_committed_peak = stats.bytes_committed_peak.max(stats.bytes_committed);
    }

    /// Bytes that have memory.
    pub(crate) fn bytes_committed(&self) -> u64 {
        self.stats.bytes_committed
    }

    /// Bytes of address space.
    pub(crate) fn bytes_mapped(&self) -> u64 {
        self.stats.bytes_mapped
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        let huge = self.slots.iter().flatten().map(|slot| u64::from(slot.committed.huge_count()));
        ArenaStats { bytes_huge: huge.sum::<u64>() * BLOCK_BYTES as u64, ..self.stats }
    }

    /// Takes idle memory out of the account, for the caller to return: extents that no buffer uses,
    /// large ones first, then free chunks of others.
    pub(crate) fn take_idle(&mut self, trim: Trim) -> Idle {
        let mut idle = Idle::default();
        for recent in self.recent.drain() {
            self.withdraw(recent);
        }
        let mut empty: Vec<usize> = (0..self.slots.len())
            .filter(|index| self.slots[*index].as_ref().is_some_and(|s| s.space.is_empty()))
            .collect();
        empty.sort_by_key(|index| {
            let slot = self.slots[*index].as_ref();
            slot.map(|slot| (!slot.own, u64::MAX - slot.bytes_committed()))
        });
        for index in empty {
            let bytes = self.slots[index].as_ref().map_or(0, |slot| slot.bytes_committed());
            let go = match trim {
                Trim::AtMost(most) => {
                    bytes > 0 && bytes <= most - idle.bytes && idle.bytes < TRIM_BYTES
                }
                Trim::AtLeast(least) => bytes > 0 && idle.bytes < least,
                Trim::All => true,
            };
            if go && let Some(slot) = self.slots[index].take() {
                self.shared.retain(|shared| *shared as usize != index);
                self.stats.bytes_mapped -= slot.extent.len as u64;
                self.stats.extents -= 1;
                idle.bytes += bytes;
                idle.extents.push(slot.extent);
            }
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = slot
                && slot.extent.can_release()
            {
                slot.take_idle(index as u32, trim, &mut idle);
            }
        }
        self.stats.bytes_committed -= idle.bytes;
        idle
    }

    #[inline]
    fn slot(&self, block: Block) -> &Slot {
        // A slot is not emptied as long as anything in it is in use.
        self.slots[block.slot as usize].as_ref().expect("a block is in an extent")
    }

    #[inline]
    fn slot_mut(&mut self, block: Block) -> &mut Slot {
        self.slots[block.slot as usize].as_mut().expect("a block is in an extent")
    }
}

impl Slot {
    /// Takes chunks that no buffer uses out of the account.
    fn take_idle(&mut self, index: u32, trim: Trim, idle: &mut Idle) {
        for (offset, len) in self.space.free_ranges(CHUNK_UNITS) {
            let whole = offset.div_ceil(CHUNK_UNITS)..(offset + len) / CHUNK_UNITS;
            for mut run in self.committed.idle(whole) {
                // By whole blocks, from the end.
                run.start = match trim {
                    Trim::AtMost(most) => {
                        let most = (most - idle.bytes).min(TRIM_BYTES.saturating_sub(idle.bytes));
                        let from = run.end.saturating_sub(chunks_in(most));
                        if from <= run.start {
                            run.start
                        } else {
                            from.next_multiple_of(BLOCK_CHUNKS)
                        }
                    }
                    Trim::AtLeast(least) if idle.bytes >= least => return,
                    Trim::AtLeast(least) => {
                        let from = run.end.saturating_sub(chunks_in(least - idle.bytes));
                        run.start.max(from / BLOCK_CHUNKS * BLOCK_CHUNKS)
                    }
                    Trim::All => run.start,
                };
                if run.start < run.end {
                    self.committed.clear(run.clone());
                    idle.bytes += u64::from(run.end - run.start) * CHUNK_BYTES as u64;
                    idle.chunks.push((index, Arc::clone(&self.extent), run));
                }
            }
        }
    }
}
