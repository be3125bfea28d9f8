//! An arena's memory: committing it and returning it.
//!
//! Two locks. `state` is held for a few dozen instructions. `growth` is held by the one thread that
//! commits or returns memory, through system calls that take from microseconds to seconds; it is
//! taken before `state`, and other threads go on using committed memory. A thread that placed a
//! buffer where there is no memory yet waits for `growth` and commits it.
//!
//! Invariant: a chunk that is committed in the account has memory, and only the holder of `growth`
//! takes that away, after it took the chunk out of the account while no buffer was in it. So a
//! buffer that was handed out has memory until it is freed.

use std::{
    ptr::NonNull,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pinfold_sys::{failed::Failed, fork::ForkMark};
use rustix::io::Errno;

use super::{
    after_close,
    committed::{BLOCK_BYTES, BLOCK_CHUNKS, CHUNK_BYTES, Piece},
    extent::Extent,
    registry::{self, ArenaRef},
    room,
    state::{Block, EXTENT_BYTES_LIMIT, Placed, State, Trim, Want},
    stats::ArenaStats,
};
use crate::{Error, Result};

/// Bytes of address space of an extent that buffers share.
const EXTENT_BYTES: usize = 64 << 20;
/// In large arenas they are longer, so that there are not too many: a part of the arena, up to a
/// maximum.
const EXTENT_PART: usize = 8;
const EXTENT_BYTES_MAX: usize = 1 << 30;
/// An arena with so much memory takes more by whole blocks.
const GENEROUS_BYTES: u64 = 2 << 20;
/// Chunks committed by one system call, so that little is lost track of if it fails midway.
const STEP_CHUNKS: u32 = ((16 << 20) / CHUNK_BYTES) as u32;
/// After the machine had no huge page, so many pieces are not tried, doubling up to a maximum.
const HUGE_PAUSE_MAX: u32 = 1024;

/// The settings of an arena.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// A multiple of a block.
    pub bytes_max: usize,
    pub bytes_budget: u64,
    pub huge_pages: bool,
    pub peers_may_write: bool,
}

/// The whole of an arena. Lives until the last handle and the last buffer are gone.
pub(crate) struct Heap {
    settings: Settings,
    mark: Arc<ForkMark>,
    growth: Mutex<Growth>,
    state: Mutex<State>,
}

/// The record of refused huge pages, for the thread that holds `growth`.
#[derive(Debug, Default)]
struct Growth {
    /// Pieces for which huge pages are not tried.
    huge_wait: u32,
    /// Their number when huge pages were last refused.
    huge_pause: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heap {
    /// # Errors
    /// [`Error::Os`] if no extent can be made.
    pub(crate) fn new(settings: Settings) -> Result<Arc<Heap>> {
        let mark = ForkMark::new().map_err(|error| Error::os("mmap", "a page", error))?;
        let mark = Arc::new(mark);
        let (growth, state) = (Mutex::default(), Mutex::default());
        let heap = Heap { settings, mark, growth, state };
        // The first extent is made now, so that a refusal by the system is known at once.
        let first = heap.add_extent(&Want::new(1, 1)?)?;
        lock(&heap.state).withdraw(first.block);
        Ok(Arc::new(heap))
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A buffer of `len` bytes at a multiple of `align`, and its first byte.
    #[inline]
    pub(crate) fn alloc(&self, len: usize, align: usize) -> Result<(Block, NonNull<u8>)> {
        if self.mark.is_child() {
            return Err(Error::Forked);
        }
        let want = Want::new(len, align)?;
        let mut state = lock(&self.state);
        match state.place(&want) {
            Some(placed) if placed.backed => {
                state.hand_out(placed.block);
                Ok((placed.block, placed.at))
            }
            placed => {
                drop(state);
                self.alloc_slowly(&want, placed)
            }
        }
    }

    #[cold]
    fn alloc_slowly(&self, want: &Want, placed: Option<Placed>) -> Result<(Block, NonNull<u8>)> {
        after_close::sweep();
        let mut growth = lock(&self.growth);
        // Another thread may have made room while this one waited.
        let placed = match placed.or_else(|| lock(&self.state).place(want)) {
            Some(placed) => placed,
            None => self.make_room(&mut growth, want)?,
        };
        let committed = self.commit(&mut growth, placed.block);
        let mut state = lock(&self.state);
        let placed = match committed {
            Ok(()) => placed,
            Err(error) => {
                // The place that fits best had no memory; another one may have some.
                state.withdraw(placed.block);
                state.place_backed(want).ok_or(error)?
            }
        };
        state.hand_out(placed.block);
        Ok((placed.block, placed.at))
    }

    /// A buffer was dropped. In a forked child nothing happens.
    #[inline]
    pub(crate) fn free(&self, block: Block) {
        if self.mark.is_child() {
            return;
        }
        let surplus = lock(&self.state).free(block);
        if surplus > 0
            && let Ok(mut growth) = self.growth.try_lock()
        {
            self.release(&mut growth, Trim::AtMost(surplus));
        }
    }

    /// The extent of a buffer and the buffer's offset there.
    pub(crate) fn locate(&self, block: Block) -> (ArenaRef, u64) {
        let state = lock(&self.state);
        let (extent, range) = state.range(block);
        (ArenaRef::new(Arc::clone(extent)), range.start)
    }

    /// Gives all memory that no buffer uses back to the system. Returns the number of bytes.
    pub(crate) fn trim(&self) -> u64 {
        if self.mark.is_child() {
            return 0;
        }
        after_close::sweep();
        self.release(&mut lock(&self.growth), Trim::All)
    }

    pub(crate) fn stats(&self) -> ArenaStats {
        if self.mark.is_child() {
            return ArenaStats::default();
        }
        after_close::sweep();
        lock(&self.state).stats()
    }

    /// Makes a place for a buffer where there was none.
    fn make_room(&self, growth: &mut Growth, want: &Want) -> Result<Placed> {
        self.add_extent(want).or_else(|_| {
            // Address space that no buffer uses can be used otherwise, and a large buffer may also
            // lie among others.
            self.release(growth, Trim::All);
            let shared = lock(&self.state).place_shared(want);
            shared.map_or_else(|| self.add_extent(want), Ok)
        })
    }

    /// Adds an extent and finds a place in it.
    fn add_extent(&self, want: &Want) -> Result<Placed> {
        let state = lock(&self.state);
        let (own, mapped) = (state.is_own(want), state.bytes_mapped() as usize);
        drop(state);
        let room = self.settings.bytes_max - mapped;
        let least = want.bytes.next_multiple_of(BLOCK_BYTES);
        if least > room {
            return Err(Error::LimitReached {
                what: "the address space of this arena, in bytes,",
                limit: self.settings.bytes_max as u64,
                remedy: "raise ArenaBuilder::bytes_max, or drop buffers",
            });
        }
        let mut len = least;
        if !own {
            let part = (mapped / EXTENT_PART).next_multiple_of(BLOCK_BYTES);
            len = part.clamp(EXTENT_BYTES, EXTENT_BYTES_MAX).max(least).min(room);
        }
        let extent = loop {
            match Extent::new(len, want.align, self.settings.peers_may_write, &self.mark) {
                Ok(extent) => break registry::list(extent),
                // Where address space or the size of files is limited, try less.
                Err(failed) if len / 2 >= least && is_short(failed) => {
                    len = (len / 2).next_multiple_of(BLOCK_BYTES);
                }
                Err(failed) => {
                    return Err(Error::failed(format!("{len} bytes of an arena"))(failed));
                }
            }
        };
        let placed = lock(&self.state).add(extent, own, want);
        // An empty extent has room for the buffer it was made for.
        placed.ok_or(Error::LimitReached {
            what: "the length of a buffer",
            limit: EXTENT_BYTES_LIMIT as u64,
            remedy: "use several buffers",
        })
    }

    /// Sees to it that a block has memory.
    fn commit(&self, growth: &mut Growth, block: Block) -> Result<()> {
        let state = lock(&self.state);
        let whole_from = match state.bytes_committed() {
            _ if !self.settings.huge_pages => BLOCK_CHUNKS,
            ..GENEROUS_BYTES => BLOCK_CHUNKS / 2,
            _ => 1,
        };
        let (extent, mut pieces) = state.plan(block, whole_from);
        drop(state);
        if pieces.is_empty() {
            return Ok(());
        }
        if self.affords(&pieces).is_err() {
            pieces = lock(&self.state).plan(block, BLOCK_CHUNKS).1;
            if self.affords(&pieces).is_err() {
                self.release(growth, Trim::AtLeast(bytes(&pieces)));
                self.affords(&pieces)?;
            }
        }
        for piece in pieces {
            for start in piece.chunks.clone().step_by(STEP_CHUNKS as usize) {
                let chunks = start..piece.chunks.end.min(start + STEP_CHUNKS);
                let huge = piece.huge && self.settings.huge_pages && growth.may_try_huge();
                let mut step = Piece { chunks, huge };
                match extent.commit(&step) {
                    Ok(took) => {
                        if huge {
                            growth.tried_huge(took);
                        }
                        step.huge = took;
                        lock(&self.state).committed(block, &step);
                    }
                    Err(error) => {
                        // Part of it may have memory that the account does not know of.
                        let _ = extent.release(&step.chunks);
                        let on = format!("{} bytes of an arena", bytes(&[step]));
                        return Err(Error::os("madvise(MADV_POPULATE_WRITE)", on, error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether the budget and the system have room for some pieces.
    fn affords(&self, pieces: &[Piece]) -> Result<()> {
        let bytes = bytes(pieces);
        let budget = self.settings.bytes_budget;
        if bytes > budget.saturating_sub(lock(&self.state).bytes_committed()) {
            return Err(Error::LimitReached {
                what: "the memory of this arena, in bytes,",
                limit: budget,
                remedy: "raise ArenaBuilder::bytes_budget, or drop buffers",
            });
        }
        room::check(bytes)
    }

    /// Gives memory that no buffer uses back to the system. Returns the number of bytes.
    fn release(&self, _growth: &mut Growth, trim: Trim) -> u64 {
        let idle = lock(&self.state).take_idle(trim);
        let mut bytes = idle.bytes;
        for (slot, extent, chunks) in idle.chunks {
            if extent.release(&chunks).is_err() {
                // It was sealed meanwhile.
                bytes -= u64::from(chunks.end - chunks.start) * CHUNK_BYTES as u64;
                lock(&self.state).not_released(slot, chunks);
            }
        }
        for extent in idle.extents {
            // Peers may keep their mappings of it, but not its memory, if that can be helped.
            if extent.can_release() {
                let _ = extent.release(&(0..(extent.len / CHUNK_BYTES) as u32));
            }
        }
        bytes
    }
}

fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|p| u64::from(p.chunks.end - p.chunks.start) * CHUNK_BYTES as u64).sum()
}

/// Returns whether a smaller extent may be possible where this one was not.
fn is_short(failed: Failed) -> bool {
    matches!(failed.errno, Errno::NOMEM | Errno::FBIG)
}

impl Growth {
    fn may_try_huge(&mut self) -> bool {
        let now = self.huge_wait == 0;
        self.huge_wait = self.huge_wait.saturating_sub(1);
        now
    }

    fn tried_huge(&mut self, took: bool) {
        self.huge_pause = if took { 0 } else { (2 * self.huge_pause).clamp(1, HUGE_PAUSE_MAX) };
        self.huge_wait = self.huge_pause;
    }
}
