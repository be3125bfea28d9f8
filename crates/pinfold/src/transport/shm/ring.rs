//! The descriptor ring: single producer, single consumer, one cache line a message.
//!
//! Each slot tells by the sequence number in its header word whether it is fresh, so the consumer
//! reads nothing but the message itself, and the producer reads the consumer's cursor only when its
//! last view of it says that the ring is full (the lazy index reading of Lee, Bu and
//! Chandranmenon, *MCRingBuffer*, IPDPS 2010; the in-slot flag of Giacomoni, Moseley and
//! Vachharajani, *FastForward*, PPoPP 2008).
//!
//! Every descriptor also acknowledges those of the other direction. Where messages are answered,
//! the producer so learns at no cost that its slots are free, and need not touch the line that
//! holds the consumer's cursor.
//!
//! The length of a lap is the producer's business: each descriptor says whether the next is in slot
//! 0. So the ring grows without a word to the consumer, and goes round in a few slots while the
//! consumer keeps up.
//!
//! Neither side trusts the other: the consumer bounds its index, the producer bounds the cursor.

use std::mem::offset_of;

use crate::{
    sync::{AtomicU64, Ordering, store_words},
    wire::{
        descriptor::{Body, Header, SEQ_MAX},
        layout::{DESCRIPTOR_WORDS, RING_SLOTS_MAX},
    },
};

/// The words of one slot.
pub(crate) type Slot = [AtomicU64; DESCRIPTOR_WORDS];

/// Memory of a ring: shared memory, or this process's own for tests and models.
pub(crate) trait RingMemory {
    /// Number of slots there is room for; at most [`RING_SLOTS_MAX`].
    fn slots(&self) -> u32;
    /// Slot `index`, below [`RingMemory::slots`].
    fn slot(&self, index: u32) -> &Slot;
    /// Number of descriptors the consumer has finished with, ever; written by the consumer alone.
    fn consumed(&self) -> &AtomicU64;
}

/// The other side wrote something that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Violation(pub &'static str);

#[inline(always)]
fn after(seq: u16) -> u16 {
    // Untouched memory holds 0, so 0 is never a sequence number.
    if seq == SEQ_MAX { 1 } else { seq + 1 }
}

/// A lap may end after this many slots if the consumer has taken everything before: messages and
/// answers then go round in a few lines that both sides have in their caches, which takes half the
/// time of lines that were last used a whole lap ago.
const SHORT_LAP: u32 = 8;
/// Number of descriptors between whole laps. A slot must not keep a sequence number until it comes
/// again.
const WHOLE_LAP_EVERY: u32 = 1 << 13;

/// Slots that a whole lap left out were written by the lap before, so two laps have written all.
const _: () = assert!(WHOLE_LAP_EVERY + 5 * RING_SLOTS_MAX < SEQ_MAX as u32);

/// The producing end.
///
/// Laps differ in length, so room is counted within the lap: a slot can be written when the
/// consumer has passed the descriptor that the lap before left there. Slots beyond that lap's
/// end were last used earlier still, and everything earlier is passed: a lap ends early only when
/// the consumer has caught up, and a lap as long as the one before has written over all of it.
///
/// The last descriptor of a short lap is the one that its consumer may not have passed. If the next
/// lap gets there before the consumer does, it leaves that one slot out, so that a short lap before
/// does not make the ring short.
///
/// The fields before `acknowledged` are all that sending touches, in [`RING_TX_HOT`] bytes beside
/// the memory.
#[repr(C)]
pub(crate) struct RingTx<M> {
    memory: M,
    produced: u64,
    /// Descriptors that the consumer is known to have finished with.
    consumed: u64,
    /// `produced` when this lap began.
    lap_start: u64,
    index: u32,
    /// Index at which this lap's writable slots end.
    limit: u32,
    /// Slots in use; a lap ends after this many.
    capacity: u32,
    /// Value of `capacity` from the end of this lap on.
    capacity_next: u32,
    /// Number of slots up to the end of the lap before this one, and of descriptors in it.
    last_lap_slots: u32,
    last_lap: u32,
    /// Descriptor from which on no lap ends early: the low half of its number.
    whole_from: u32,
    seq: u16,
    /// True if this lap left out the slot of the last descriptor of the one before.
    skipped: bool,
    /// Count in every header: descriptors consumed in the other direction, its low bits.
    ack: u8,
    /// Descriptors that are acknowledged at the least by the descriptors of the other direction,
    /// as far as those have been read. They give the count modulo 16 and may be older than the
    /// cursor's value, so this is counted separately: each is at least as much as the one before.
    acknowledged: u64,
}

/// Bytes of a producing end that sending touches, beside its memory.
pub(crate) const RING_TX_HOT: usize = 56;
const _: () = assert!(offset_of!(RingTx<u64>, acknowledged) == size_of::<u64>() + RING_TX_HOT);

/// Step of the ring after a descriptor.
struct Way {
    wraps: bool,
    skips: bool,
}

impl<M: RingMemory> RingTx<M> {
    /// A ring over zeroed memory that uses `capacity` of its slots.
    pub(crate) fn new(memory: M, capacity: u32) -> RingTx<M> {
        assert!(capacity > 0 && capacity <= memory.slots() && memory.slots() <= RING_SLOTS_MAX);
        RingTx {
            memory,
            produced: 0,
            consumed: 0,
            lap_start: 0,
            index: 0,
            limit: capacity,
            capacity,
            capacity_next: capacity,
            last_lap_slots: 0,
            last_lap: 0,
            whole_from: WHOLE_LAP_EVERY,
            seq: 1,
            skipped: false,
            ack: 0,
            acknowledged: 0,
        }
    }

    /// The memory of the ring.
    #[inline(always)]
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns whether this lap may end early.
    #[inline(always)]
    fn may_end_early(&self) -> bool {
        // The two are never further apart than some laps.
        self.whole_from.wrapping_sub(self.produced as u32) as i32 > 0
    }

    /// Slots that can be filled now without another look at the consumer's cursor.
    #[inline(always)]
    pub(crate) fn room_known(&self) -> u32 {
        self.limit - self.index
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

    /// Reads the consumer's cursor. It may lag behind the acknowledgements.
    pub(crate) fn refresh(&mut self) -> Result<(), Violation> {
        // Acquire: pairs with the release in `RingRx::publish`; the consumer's reads of the slots
        // come before this side writes them again.
        let consumed = self.memory.consumed().load(Ordering::Acquire);
        if consumed > self.produced {
            return Err(Violation("its ring cursor went astray"));
        }
        if consumed > self.consumed {
            self.consumed = consumed;
            self.set_limit();
        }
        Ok(())
    }

    /// Takes note of the acknowledgement in the next descriptor of the other direction. Every one
    /// of them has to pass here, in order. Nonsense counts for nothing; a false count harms only
    /// the messages to the peer that sent it.
    ///
    /// The acquire in [`RingRx::head`] that brought `header` orders the consumer's reads of the
    /// slots before this side's next writes.
    #[inline(always)]
    pub(crate) fn acknowledged(&mut self, header: Header) {
        let acknowledged = self.acknowledged + header.acknowledges_beyond(self.acknowledged);
        if acknowledged > self.produced {
            return;
        }
        self.acknowledged = acknowledged;
        if acknowledged > self.consumed {
            self.consumed = acknowledged;
            self.set_limit();
        }
    }

    /// Notes that the other direction was seen to be empty. Every descriptor that comes there from
    /// now on was written after the cursor that was read last, and acknowledges at least as much.
    #[inline(always)]
    pub(crate) fn nothing_on_the_way(&mut self) {
        self.acknowledged = self.consumed;
    }

    /// Acknowledges `consumed` descriptors of the other direction in every header from now on.
    #[inline(always)]
    pub(crate) fn acknowledge(&mut self, consumed: u64) {
        self.ack = consumed as u8;
    }

    #[inline(always)]
    fn set_limit(&mut self) {
        // The last lap may have left out the slot in which the lap before it ended, and the
        // consumer may still be reading that slot.
        let last_lap = u64::from(self.last_lap);
        let passed = (self.consumed + last_lap).saturating_sub(self.lap_start);
        self.limit = if passed >= last_lap || self.skipped {
            self.capacity
        } else if passed + 1 == last_lap {
            self.last_lap_slots - 1
        } else {
            // In range: below `last_lap`, which is at most `capacity`. One slot too few if that lap
            // left one out.
            passed as u32
        };
    }

    /// Publishes one descriptor. The caller has seen [`RingTx::room`].
    #[inline(always)]
    pub(crate) fn push(&mut self, header: Header, body: &[u64]) {
        let (header, way) = self.seal(header);
        store_words(self.next_body(), body);
        self.publish_sealed(header, way);
    }

    /// The body of the descriptor that is published next. The caller has seen [`RingTx::room`].
    ///
    /// Not every word need be written: the consumer reads no more than the kind calls for.
    #[inline(always)]
    pub(crate) fn next_body(&self) -> &[AtomicU64] {
        debug_assert!(self.room_known() > 0);
        &self.memory.slot(self.index)[1..]
    }

    /// Publishes the descriptor whose body has been written.
    #[inline(always)]
    pub(crate) fn publish(&mut self, header: Header) {
        let (header, way) = self.seal(header);
        self.publish_sealed(header, way);
    }

    /// Makes the header as it goes out, and the ring's step after it, before anything is written:
    /// the less comes between the first store to the line and the last, the less often the
    /// consumer, which polls the line, takes it away half written, at two hops each time.
    #[inline(always)]
    fn seal(&mut self, header: Header) -> (u64, Way) {
        debug_assert!(self.room_known() > 0);
        let next = self.index + 1;
        let wraps = if next == self.capacity {
            self.capacity_next == self.capacity
        } else {
            next >= SHORT_LAP && self.consumed == self.produced && self.may_end_early()
        };
        let skips = next == self.limit && !wraps && self.skips_last();
        (header.sealed(self.seq, wraps, skips, u64::from(self.ack)), Way { wraps, skips })
    }

    /// Publishes two descriptors, so that a consumer who sees the first sees the second as well.
    /// `fill` writes the bodies. The caller has seen [`RingTx::room_known`] for two.
    #[inline(always)]
    pub(crate) fn publish_two(&mut self, headers: [Header; 2], fill: impl Fn([&[AtomicU64]; 2])) {
        debug_assert!(self.room_known() >= 2);
        let index = self.index;
        let (header, way) = self.seal(headers[0]);
        self.step(way);
        // Two slots of room before: the lap ends early at the first only if the consumer has taken
        // everything, and then the slots from 0 on are free.
        let (rest, rest_way) = self.seal(headers[1]);
        fill([&self.memory.slot(index)[1..], self.next_body()]);
        // Release: pairs with the acquire in `RingRx::head`; the bodies are visible with the
        // headers, and the second header with the first.
        self.memory.slot(self.index)[0].store(rest, Ordering::Release);
        self.memory.slot(index)[0].store(header, Ordering::Release);
        self.step(rest_way);
    }

    #[inline(always)]
    fn publish_sealed(&mut self, header: u64, way: Way) {
        // Release: pairs with the acquire in `RingRx::head`; the body is visible with the header.
        self.memory.slot(self.index)[0].store(header, Ordering::Release);
        self.step(way);
    }

    /// Goes on to the slot of the next descriptor.
    #[inline(always)]
    fn step(&mut self, Way { wraps, skips }: Way) {
        let next = self.index + 1;
        self.seq = after(self.seq);
        self.produced += 1;
        self.index = next;
        if wraps || next == self.capacity {
            self.end_lap(wraps);
        } else if skips {
            self.skipped = true;
            self.index = next + 1;
            self.set_limit();
        }
    }

    /// Returns whether only the last descriptor of a shorter lap stops this one.
    #[cold]
    fn skips_last(&self) -> bool {
        !self.skipped && self.consumed + 1 == self.lap_start && self.last_lap_slots < self.capacity
    }

    /// Goes to slot 0, or into the slots that the ring has grown by.
    #[cold]
    #[inline(never)]
    fn end_lap(&mut self, wraps: bool) {
        if wraps {
            if self.index == self.capacity {
                self.whole_from = (self.produced as u32).wrapping_add(WHOLE_LAP_EVERY);
            }
            self.last_lap_slots = self.index;
            self.index = 0;
            self.skipped = false;
            self.last_lap = (self.produced - self.lap_start) as u32;
            self.lap_start = self.produced;
        } else {
            self.capacity = self.capacity_next;
        }
        self.set_limit();
    }

    /// Descriptors published, ever.
    #[inline(always)]
    pub(crate) fn produced(&self) -> u64 {
        self.produced
    }

    /// Descriptors the consumer is known to have finished with.
    #[inline(always)]
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Number of slots in use once this lap has ended.
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

    /// Has the processor bring the line behind that of the next descriptor, as it will be if no lap
    /// ends: both then come over at the same time, where a message takes two.
    #[inline(always)]
    pub(crate) fn bring_behind(&self) {
        let next = self.index + 1;
        if next < self.memory.slots() {
            let _ = self.memory.slot(next)[0].load(Ordering::Relaxed);
        }
    }

    /// The header of the descriptor behind the next one, whose header is `header`, if it has been
    /// published.
    #[inline(always)]
    pub(crate) fn behind(&self, header: Header) -> Option<Header> {
        // Acquire: as in `head`.
        let slot = self.memory.slot(self.after(header).ok()?);
        let behind = Header::from_word(slot[0].load(Ordering::Acquire));
        if behind.seq() == after(self.seq) { Some(behind) } else { None }
    }

    /// Copies word `i` of the bodies of the next two descriptors out, the first of which has this
    /// header: the words of the second follow those of the first.
    #[inline(always)]
    pub(crate) fn word_of_two(&self, header: Header, i: usize) -> u64 {
        match i.checked_sub(DESCRIPTOR_WORDS - 1) {
            None => self.word(i),
            Some(i) => self
                .after(header)
                .map_or(0, |index| self.memory.slot(index)[1 + i].load(Ordering::Relaxed)),
        }
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
        self.index = self.after(header)?;
        self.seq = after(self.seq);
        self.consumed += 1;
        Ok(())
    }

    /// The slot behind that of the next descriptor, whose header is `header`.
    #[inline(always)]
    fn after(&self, header: Header) -> Result<u32, Violation> {
        let next = self.index + 1 + header.skips();
        if header.wraps() {
            Ok(0)
        } else if next < self.memory.slots() {
            Ok(next)
        } else {
            Err(Violation("its ring runs past the end"))
        }
    }

    /// Descriptors passed, ever.
    #[inline(always)]
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Descriptors passed that the producer has not been told of.
    #[inline(always)]
    pub(crate) fn unpublished(&self) -> u64 {
        self.consumed - self.published
    }

    /// Gives back the slots and bulk bytes of the first `count` descriptors ever, if they are
    /// passed.
    pub(crate) fn publish_first(&mut self, count: u64) {
        if count > self.published && count <= self.consumed {
            self.published = count;
            // Release: as in `publish`.
            self.memory.consumed().store(count, Ordering::Release);
        }
    }

    /// Gives the slots of all passed descriptors, and the bulk bytes they named, back.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        self.published = self.consumed;
        // Release: pairs with the acquire in `RingTx::refresh`.
        self.memory.consumed().store(self.consumed, Ordering::Release);
    }
}
