//! The descriptor ring: single producer, single consumer, one cache line a message.
//!
//! Each slot tells by the sequence number in its header word whether it is fresh, so the consumer
//! reads nothing but the message itself, and the producer reads the consumer's cursor only when its
//! last view of it says that the ring is full (the lazy index reading of Lee, Bu and
//! Chandranmenon, *MCRingBuffer*, IPDPS 2010; the in-slot flag of Giacomoni, Moseley and
//! Vachharajani, *FastForward*, PPoPP 2008).
//!
//! The ring grows without a word to the consumer: the last descriptor of a lap says whether the
//! next is in slot 0, and a producer that leaves the mark out has grown the ring.
//!
//! Neither side trusts the other: the consumer bounds its index, the producer bounds the cursor.

use crate::{
    sync::{AtomicU64, Ordering},
    wire::{
        descriptor::{Body, Header},
        layout::{DESCRIPTOR_WORDS, RING_SLOTS_MAX},
    },
};

/// The words of one slot.
pub(crate) type Slot = [AtomicU64; DESCRIPTOR_WORDS];

/// Where a ring lies: shared memory, or this process's own for tests and models.
pub(crate) trait RingMemory {
    /// Slots there is room for; at most [`RING_SLOTS_MAX`].
    fn slots(&self) -> u32;
    /// Slot `index`, below [`RingMemory::slots`].
    fn slot(&self, index: u32) -> &Slot;
    /// Descriptors the consumer is done with, ever; written by the consumer alone.
    fn consumed(&self) -> &AtomicU64;
}

/// The other side wrote something that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub &'static str);

#[inline(always)]
fn after(seq: u16) -> u16 {
    // 0 is what untouched memory holds, so it is never a sequence number.
    if seq == u16::MAX { 1 } else { seq + 1 }
}

/// Slots ahead of the one being written whose lines the producer asks for. Lines that are on their
/// way at the same time share the hop; the stores alone would have only one or two under way.
const FETCH_AHEAD: u32 = 4;

/// Begins to fetch a slot for writing.
#[inline(always)]
fn fetch(slot: &Slot) {
    #[cfg(not(loom))]
    pinfold_sys::clock::prefetch_to_write(std::ptr::from_ref(slot));
    #[cfg(loom)]
    let _ = slot;
}

/// The producing end.
pub(crate) struct RingTx<M> {
    memory: M,
    index: u32,
    seq: u16,
    /// Slots in use; a lap ends after this many.
    capacity: u32,
    /// What `capacity` becomes when this lap ends.
    capacity_next: u32,
    produced: u64,
    /// The consumer's cursor when last read.
    consumed: u64,
}

impl<M: RingMemory> RingTx<M> {
    /// A ring over zeroed memory that uses `capacity` of its slots.
    pub(crate) fn new(memory: M, capacity: u32) -> RingTx<M> {
        assert!(capacity > 0 && capacity <= memory.slots() && memory.slots() <= RING_SLOTS_MAX);
        RingTx {
            memory,
            index: 0,
            seq: 1,
            capacity,
            capacity_next: capacity,
            produced: 0,
            consumed: 0,
        }
    }

    #[inline(always)]
    fn room_known(&self) -> u32 {
        // In range: the cursor is checked against `produced` when it is read.
        self.capacity - (self.produced - self.consumed) as u32
    }

    /// Slots that can be filled now. Reads the consumer's cursor only if there seem to be none.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> Result<u32, Violation> {
        let known = self.room_known();
        if known > 0 {
            return Ok(known);
        }
        self.refresh()?;
        Ok(self.room_known())
    }

    /// Reads the consumer's cursor.
    pub(crate) fn refresh(&mut self) -> Result<(), Violation> {
        // Acquire: pairs with the release in `RingRx::publish`; the consumer's reads of the slots
        // come before this side writes them again.
        let consumed = self.memory.consumed().load(Ordering::Acquire);
        if consumed < self.consumed || consumed > self.produced {
            return Err(Violation("its ring cursor went astray"));
        }
        self.consumed = consumed;
        Ok(())
    }

    /// Publishes one descriptor. The caller has seen [`RingTx::room`].
    #[inline(always)]
    pub(crate) fn push(&mut self, header: Header, body: &[u64]) {
        self.push_with(header, body.len(), |i| body[i]);
    }

    /// Publishes one descriptor whose body is `words` long, word i being `word(i)`.
    ///
    /// Only as many words are written; the consumer reads no more than the kind calls for.
    #[inline(always)]
    pub(crate) fn push_with(&mut self, header: Header, words: usize, word: impl Fn(usize) -> u64) {
        debug_assert!(self.room_known() > 0);
        let last = self.index + 1 == self.capacity;
        let grows = last && self.capacity_next > self.capacity;
        let wraps = last && !grows;
        let slot = self.memory.slot(self.index);
        for (i, place) in slot[1..].iter().enumerate().take(words) {
            place.store(word(i), Ordering::Relaxed);
        }
        // Release: pairs with the acquire in `RingRx::head`; the body is visible with the header.
        slot[0].store(header.sealed(self.seq, wraps), Ordering::Release);
        self.seq = after(self.seq);
        self.produced += 1;
        self.index = if wraps { 0 } else { self.index + 1 };
        if self.index + FETCH_AHEAD < self.capacity {
            fetch(self.memory.slot(self.index + FETCH_AHEAD));
        }
        if grows {
            self.capacity = self.capacity_next;
        }
    }

    /// Descriptors published, ever.
    #[inline(always)]
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// Descriptors the consumer was done with when last looked.
    #[inline(always)]
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Slots in use once this lap has ended.
    pub(crate) fn capacity_to_come(&self) -> u32 {
        self.capacity_next
    }

    /// Uses `capacity` slots from the next lap on. The memory of the new slots is zero.
    pub(crate) fn grow(&mut self, capacity: u32) {
        assert!(capacity >= self.capacity_next && capacity <= self.memory.slots());
        self.capacity_next = capacity;
    }
}

/// The consuming end.
pub(crate) struct RingRx<M> {
    memory: M,
    index: u32,
    seq: u16,
    consumed: u64,
    published: u64,
}

impl<M: RingMemory> RingRx<M> {
    pub(crate) fn new(memory: M) -> RingRx<M> {
        RingRx { memory, index: 0, seq: 1, consumed: 0, published: 0 }
    }

    /// The header of the next descriptor, if it has been published.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Header> {
        // Acquire: pairs with the release in `RingTx::push`.
        let header = Header::from_word(self.memory.slot(self.index)[0].load(Ordering::Acquire));
        if header.seq() == self.seq { Some(header) } else { None }
    }

    /// Copies the first `N` words of the next descriptor's body out, once.
    #[inline(always)]
    pub(crate) fn words<const N: usize>(&self) -> [u64; N] {
        let slot = self.memory.slot(self.index);
        std::array::from_fn(|i| slot[1 + i].load(Ordering::Relaxed))
    }

    /// Copies the whole body out, once.
    #[inline(always)]
    pub(crate) fn body(&self) -> Body {
        self.words()
    }

    /// Copies word `i` of the body out.
    #[inline(always)]
    pub(crate) fn word(&self, i: usize) -> u64 {
        self.memory.slot(self.index)[1 + i].load(Ordering::Relaxed)
    }

    /// Goes past the descriptor whose header was `header`.
    #[inline(always)]
    pub(crate) fn advance(&mut self, header: Header) -> Result<(), Violation> {
        let next = self.index + 1;
        self.index = if header.wraps() {
            0
        } else if next < self.memory.slots() {
            next
        } else {
            return Err(Violation("its ring runs past the end"));
        };
        self.seq = after(self.seq);
        self.consumed += 1;
        Ok(())
    }

    /// Descriptors passed that the producer has not been told of.
    #[inline(always)]
    pub(crate) fn unpublished(&self) -> u64 {
        self.consumed - self.published
    }

    /// Gives the slots of all passed descriptors, and the bulk bytes they named, back.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.consumed;
        // Release: pairs with the acquire in `RingTx::refresh`.
        self.memory.consumed().store(self.consumed, Ordering::Release);
    }
}
