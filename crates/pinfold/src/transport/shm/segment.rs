#![allow(unsafe_code)]
//! The memory a pair shares, as atomics and byte ranges.
//!
//! **Invariant.** No reference to plain bytes of the segment ever exists: words are reached as
//! atomics, bulk bytes by raw copies in and out, because the peer can write all of it at any time.
//! The values read are copies that the peer can no longer change. Every offset is checked against
//! the bounds here, also those that came from the peer.
//!
//! A race of a raw copy with a hostile peer's store is outside the language's memory model, as is
//! all memory shared with another program; the copy is an opaque call to `memcpy` whose result
//! is bytes of unknown value, and nothing trusts their value (vm-memory's `VolatileSlice` makes
//! the same argument).

use std::{io, ops::Range, sync::Arc};

use pinfold_sys::mem::mapping::SharedMapping;

use super::ring::{RingMemory, Slot, Violation};
use crate::{
    sync::{AtomicU32, AtomicU64, Ordering},
    wire::{
        descriptor::Piece,
        layout::{BULK_BYTES_MAX, Direction, RING_SLOTS_MAX, SEGMENT_BYTES},
    },
};

/// One pair's shared memory.
pub(crate) struct Segment {
    mapping: SharedMapping,
}

impl Segment {
    /// # Panics
    /// If the mapping is shorter than a segment; connecting checked that it is not.
    pub(crate) fn new(mapping: SharedMapping) -> Arc<Segment> {
        assert!(mapping.len() >= SEGMENT_BYTES);
        Arc::new(Segment { mapping })
    }

    /// The word at `at`.
    pub(crate) fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= SEGMENT_BYTES);
        // SAFETY: in bounds and aligned by the assertion, mapped as long as `self` lives, and
        // reached by this process as an atomic only.
        unsafe { AtomicU64::from_ptr(self.mapping.as_ptr().add(at).cast()) }
    }

    /// The 32-bit word at `at`.
    pub(crate) fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= SEGMENT_BYTES);
        // SAFETY: as in `word64`.
        unsafe { AtomicU32::from_ptr(self.mapping.as_ptr().add(at).cast()) }
    }

    /// Returns whether either side has closed or cut the connection. A process that died has not.
    pub(crate) fn is_closed(&self) -> bool {
        let closed = |way: Direction| self.word32(way.closed_at()).load(Ordering::Acquire);
        closed(Direction::ToAccepting) | closed(Direction::ToConnecting) != 0
    }

    /// The address of `piece` of `way`'s bulk bytes, if it lies inside them.
    ///
    /// A caller's buffer is never part of the segment.
    pub(crate) fn bulk_ptr(&self, way: Direction, piece: Piece) -> Result<*mut u8, Violation> {
        if piece.offset > BULK_BYTES_MAX || piece.len > BULK_BYTES_MAX - piece.offset {
            return Err(Violation("it named bytes outside its ring"));
        }
        // SAFETY: within the mapping: bulk bytes end at or before `SEGMENT_BYTES`.
        Ok(unsafe { self.mapping.as_ptr().add(way.bulk_at() + piece.offset as usize) })
    }

    /// Has the system reserve memory for `range`, so that a later touch cannot fail.
    pub(crate) fn reserve(&self, range: Range<usize>) -> io::Result<()> {
        self.mapping.populate(range)
    }

    /// Gives the memory of `range` back; it then reads as zeros.
    pub(crate) fn release(&self, range: Range<usize>) -> io::Result<()> {
        self.mapping.release(range)
    }

    /// A handle to the word at `at`, to keep.
    pub(crate) fn keep64(self: &Arc<Segment>, at: usize) -> Word<AtomicU64> {
        Word::new(self, self.word64(at))
    }

    /// A handle to the 32-bit word at `at`, to keep.
    pub(crate) fn keep32(self: &Arc<Segment>, at: usize) -> Word<AtomicU32> {
        Word::new(self, self.word32(at))
    }

    /// The descriptor ring of `way`.
    pub(crate) fn ring(self: &Arc<Segment>, way: Direction) -> MappedRing {
        // SAFETY: in bounds, see `layout`.
        let slots = unsafe { self.mapping.as_ptr().add(way.ring_at()) };
        // SAFETY: in bounds, see `layout`.
        let control = unsafe { self.mapping.as_ptr().add(way.cursor_at()) };
        MappedRing { slots: slots.cast(), control: control.cast(), _segment: Arc::clone(self) }
    }
}

/// A word of a segment that is read for every message: its address, found once.
pub(crate) struct Word<T> {
    word: *const T,
    _segment: Arc<Segment>,
}

// SAFETY: the pointer leads to an atomic in a mapping that `_segment` keeps alive on any thread.
unsafe impl<T: Sync> Send for Word<T> {}

impl<T> Word<T> {
    fn new(segment: &Arc<Segment>, word: &T) -> Word<T> {
        Word { word, _segment: Arc::clone(segment) }
    }
}

impl<T> std::ops::Deref for Word<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: made from a reference into the segment, which is alive.
        unsafe { &*self.word }
    }
}

/// A descriptor ring in a segment.
pub(crate) struct MappedRing {
    slots: *const Slot,
    /// The direction's lines of the control page: the cursor, and behind it the bell.
    control: *const AtomicU64,
    _segment: Arc<Segment>,
}

// SAFETY: the pointers lead to atomics in a mapping that `_segment` keeps alive on any thread.
unsafe impl Send for MappedRing {}

impl RingMemory for MappedRing {
    #[inline(always)]
    fn slots(&self) -> u32 {
        RING_SLOTS_MAX
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> &Slot {
        debug_assert!(index < RING_SLOTS_MAX);
        // SAFETY: the ring has `RING_SLOTS_MAX` slots of atomics; `RingTx` and `RingRx` keep their
        // index below that whatever the peer writes; the mapping is page-aligned and alive.
        unsafe { &*self.slots.add(index as usize) }
    }

    #[inline(always)]
    fn consumed(&self) -> &AtomicU64 {
        // SAFETY: an aligned word of the control page, alive with the segment.
        unsafe { &*self.control }
    }
}

impl MappedRing {
    /// The consumer's bell.
    #[inline(always)]
    pub(crate) fn bell(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of the control page, as `consumed`.
        unsafe { &*self.control.byte_add(BELL_BEHIND).cast() }
    }
}

/// Bytes from the cursor to the bell of a direction.
const BELL_BEHIND: usize = bell_behind(Direction::ToAccepting);
const _: () = assert!(BELL_BEHIND == bell_behind(Direction::ToConnecting));

const fn bell_behind(way: Direction) -> usize {
    way.bell_at() - way.cursor_at()
}
