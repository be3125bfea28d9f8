//! The sending end of a lane.

use std::{mem::offset_of, sync::Arc};

use pinfold_sys::cpu::clock;

use super::super::{
    budget::Budget,
    bulk::Bulk,
    copy_learner::CopyIn,
    doorbell,
    fragment::{Cut, FragmentSize, FragmentSizes},
    laps::Laps,
    ring::{RING_TX_HOT, RingTx, Violation},
    segment::{MappedRing, Segment},
};
use super::{CLOSED, LEFT, Left, OPEN_AT, RELEASED_AT, RETURNED_AT, TOOK_AT, holding::Holding};
use crate::{
    copy::Tally,
    sync::{AtomicU32, AtomicU64, LightFence, Ordering},
    wire::{
        descriptor::{Header, Piece},
        layout::{BULK_BYTES_MAX, BULK_BYTES_MIN, Direction, RING_SLOTS_MAX, RING_SLOTS_MIN},
    },
};

/// Time for which the producer waits for a consumer that is behind before more bulk bytes come into
/// use, µs: about as long as a far core takes to copy all that are in use.
const MOMENT_US: u64 = 4;
/// Number of ranges that are lent without waiting after a wait in vain.
const IMPATIENCE: u32 = 16;

/// The sending end of a lane.
///
/// A message that fits its descriptor touches the first [`LANE_TX_HOT`] bytes and no others.
#[repr(C)]
pub(crate) struct LaneTx {
    ring: RingTx<MappedRing>,
    bulk: Bulk,
    laps: Laps,
    holding: Holding,
    /// Number of ranges to be lent before the producer waits for the consumer again.
    impatience: u32,
    /// True if it makes sense to wait for the consumer at all.
    waits: bool,
    /// True if other ways of copying than those in use may be tried.
    tries: bool,
    segment: Arc<Segment>,
    way: Direction,
    pub(super) copies: CopyIn,
    fragments: FragmentSizes,
}

/// Bytes of a lane's sending end that sending a short message touches.
pub(crate) const LANE_TX_HOT: usize = size_of::<MappedRing>() + RING_TX_HOT;
const _: () = assert!(offset_of!(LaneTx, ring) == 0);

impl LaneTx {
    /// Creates a sending end whose copies count in `tally`.
    pub(crate) fn new(segment: &Arc<Segment>, way: Direction, tally: &Arc<Tally>) -> LaneTx {
        LaneTx {
            ring: RingTx::new(segment.ring(way), RING_SLOTS_MIN),
            bulk: Bulk::new(),
            laps: Laps::new(),
            holding: Holding::new(segment, way),
            impatience: 0,
            waits: true,
            tries: true,
            segment: Arc::clone(segment),
            way,
            copies: CopyIn::new(segment, way, tally),
            fragments: FragmentSizes::new(),
        }
    }

    /// For a lane whose consumer is the same thread: a wait would not let it go on.
    pub(crate) fn without_waiting(mut self) -> LaneTx {
        self.waits = false;
        self
    }

    /// The address of the bytes of a lent piece, which the caller may write until the next
    /// descriptor is pushed.
    pub(crate) fn place(&self, piece: Piece) -> Result<*mut u8, Violation> {
        self.segment.bulk_ptr(self.way, piece)
    }

    /// Returns whether a descriptor can be pushed. A full ring grows if the budget allows.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, budget: &mut Budget) -> Result<bool, Violation> {
        if self.ring.room()? > 0 {
            return Ok(true);
        }
        self.grow_ring(budget);
        Ok(false)
    }

    /// Publishes one descriptor. The caller saw [`LaneTx::has_room`].
    #[inline(always)]
    pub(crate) fn push(&mut self, header: Header, body: &[u64]) {
        self.ring.push(header, body);
    }

    /// The body of the descriptor that [`LaneTx::publish`] will publish.
    #[inline(always)]
    pub(crate) fn next_body(&self) -> &[AtomicU64] {
        self.ring.next_body()
    }

    /// Publishes the descriptor whose body has been written. The caller saw [`LaneTx::has_room`].
    #[inline(always)]
    pub(crate) fn publish(&mut self, header: Header) {
        self.ring.publish(header);
    }

    /// Publishes two descriptors at once, whose bodies `fill` writes. The caller saw that
    /// [two fit](LaneTx::has_room_for_two).
    #[inline(always)]
    pub(crate) fn publish_two(&mut self, headers: [Header; 2], fill: impl Fn([&[AtomicU64]; 2])) {
        self.ring.publish_two(headers, fill);
    }

    /// Returns whether two descriptors can be pushed, as far as is known without looking.
    #[inline(always)]
    pub(crate) fn has_room_for_two(&self) -> bool {
        self.ring.room_known() >= 2
    }

    /// Returns whether a descriptor can be pushed, as far as is known without looking.
    #[inline(always)]
    pub(crate) fn has_room_known(&self) -> bool {
        self.ring.room_known() > 0
    }

    /// Takes note of a descriptor of the other direction, the `consumed`th that was passed there.
    #[inline(always)]
    pub(crate) fn passed(&mut self, header: Header, consumed: u64) {
        self.ring.acknowledged(header);
        self.ring.acknowledge(consumed);
    }

    /// Acknowledges `consumed` descriptors of the other direction in every descriptor from now on.
    pub(crate) fn acknowledge(&mut self, consumed: u64) {
        self.ring.acknowledge(consumed);
    }

    /// Descriptors published, ever.
    #[inline(always)]
    pub(crate) fn produced(&self) -> u64 {
        self.ring.produced()
    }

    #[cold]
    fn grow_ring(&mut self, budget: &mut Budget) {
        let now = self.ring.capacity_to_come();
        if now >= RING_SLOTS_MAX {
            return;
        }
        let next = now * 4;
        if self.holding.grow_slots(now, next, budget) {
            self.ring.grow(next);
        }
    }

    /// Takes note that the other direction was just seen to be empty.
    #[inline(always)]
    pub(crate) fn nothing_on_the_way(&mut self) {
        self.ring.nothing_on_the_way();
    }

    /// Lends up to `want` bulk bytes to the next descriptor, at least `least` of them.
    ///
    /// `None` while the consumer holds too much; room comes with its progress. Waits a few
    /// microseconds for a consumer that is at work.
    pub(crate) fn lend(
        &mut self,
        want: u32,
        least: u32,
        budget: &mut Budget,
    ) -> Result<Option<Piece>, Violation> {
        if let Some(piece) = self.lend_known(want) {
            return Ok(Some(piece));
        }
        self.ring.refresh()?;
        if let Some(piece) = self.lend_known(want) {
            return Ok(Some(piece));
        }
        if self.laps.bytes(want).is_some_and(|lap| self.bulk.size() >= lap) {
            while self.await_consumer()? {
                if let Some(piece) = self.lend_known(want) {
                    return Ok(Some(piece));
                }
            }
        }
        self.bulk.stay_wide();
        if let Some(piece) = self.lend_known(want) {
            return Ok(Some(piece));
        }
        while self.widen(want, budget) {
            if let Some(piece) = self.lend_known(want) {
                return Ok(Some(piece));
            }
        }
        // A budget that is spent leaves a small ring: smaller pieces, slower, never stuck.
        let less = want.min(self.bulk.size());
        if less >= least.min(self.bulk.size()) && less > 0 {
            return Ok(self.lend_known(less));
        }
        Ok(None)
    }

    /// Waits a moment for the consumer's progress. Returns whether it made any.
    fn await_consumer(&mut self) -> Result<bool, Violation> {
        if !self.waits {
            return Ok(false);
        }
        if self.impatience > 0 {
            self.impatience -= 1;
            return Ok(false);
        }
        let end = clock::ticks() + MOMENT_US * clock::ticks_per_us();
        while clock::ticks() < end {
            clock::relax();
            if self.room_came()? {
                return Ok(true);
            }
        }
        self.impatience = IMPATIENCE;
        Ok(false)
    }

    fn lend_known(&mut self, len: u32) -> Option<Piece> {
        self.lend_at_once(len)
    }

    /// Lends `len` bulk bytes to the next descriptor, if that many are known to be free.
    #[inline(always)]
    pub(crate) fn lend_at_once(&mut self, len: u32) -> Option<Piece> {
        self.bulk.reclaim(self.ring.consumed());
        let is_stream = !self.bulk.is_empty();
        let piece = self.bulk.lend(len, self.laps.bytes(len), self.ring.produced())?;
        if self.laps.lend(len, is_stream) {
            self.laps.end_period(clock::ticks());
        }
        Some(piece)
    }

    /// Brings more bulk bytes into use, with memory where they had none.
    #[cold]
    fn widen(&mut self, want: u32, budget: &mut Budget) -> bool {
        let now = self.bulk.size();
        // This tells whether it can grow just now.
        if !self.bulk.grow(now) {
            return false;
        }
        // Long pieces go round in all bulk bytes: room for several lets both sides work at once.
        let lap = self.laps.bytes(want);
        let ample = if lap.is_none() { BULK_BYTES_MAX } else { 0 };
        let modest = (now * 2).max(lap.unwrap_or(0)).max(want.next_power_of_two());
        let modest = modest.min(BULK_BYTES_MAX);
        if !self.holding.grow_bulk(ample.max(modest), budget) {
            self.holding.grow_bulk(modest, budget);
        }
        let next = ample.max(modest).min(self.holding.bulk());
        next > now && self.bulk.grow(next)
    }

    /// Says whether the messages that follow may be copied in other ways than those in use, to see
    /// how these do. Not if the ring itself is only being tried: there would never be enough
    /// messages to know the best way, and each would be judged by a bad one.
    pub(crate) fn may_try(&mut self, tries: bool) {
        self.tries = tries;
    }

    /// Chooses the cut of a message that has `len` bytes to go through the ring, in parts of about
    /// `part_len` bytes.
    pub(crate) fn cut(&mut self, len: u64, part_len: u64) -> Cut {
        if !self.tries {
            return self.fragments.cut_as_ever(len, part_len);
        }
        let (segment, way) = (&self.segment, self.way);
        self.fragments
            .hear(|number| segment.word64(way.fragment_sample_at(number)).load(Ordering::Relaxed));
        let settled = self.copies.is_settled(FragmentSize::LONG.bytes() as usize);
        self.fragments.cut(len, part_len, settled)
    }

    /// Copies `piece.len` bytes from `from` into `piece`. Returns the copy's sample number, which
    /// the receiver is to find in the piece; 0 if the copy has none.
    ///
    /// # Safety
    /// `from` is valid for reads of `piece.len` bytes.
    #[allow(unsafe_code)]
    #[inline]
    pub(crate) unsafe fn fill(&mut self, piece: Piece, from: *const u8) -> Result<u8, Violation> {
        let to = self.segment.bulk_ptr(self.way, piece)?;
        if !self.tries {
            // SAFETY: `from` by contract, `to` by the check of its bounds.
            unsafe { self.copies.copy_part(from, to, piece.len as usize) };
            return Ok(0);
        }
        // SAFETY: likewise.
        Ok(unsafe { self.copies.copy_in(from, to, piece.len as usize) })
    }

    /// Copies `piece.len` bytes from `from` into `piece`, a part of a piece that is pushed: the
    /// receiver is told nothing of the copy.
    ///
    /// # Safety
    /// `from` is valid for reads of `piece.len` bytes.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn fill_part(
        &mut self,
        piece: Piece,
        from: *const u8,
    ) -> Result<(), Violation> {
        let to = self.segment.bulk_ptr(self.way, piece)?;
        // SAFETY: `from` by contract, `to` by the check of its bounds.
        unsafe { self.copies.copy_part(from, to, piece.len as usize) };
        Ok(())
    }

    /// Copies bytes that belong to a descriptor to the beginning of `piece`, which is at least as
    /// long.
    #[allow(unsafe_code)]
    pub(crate) fn write(&mut self, piece: Piece, bytes: &[u8]) -> Result<(), Violation> {
        let len = bytes.len().min(piece.len as usize) as u32;
        // SAFETY: `bytes` has `len` bytes.
        unsafe { self.fill_part(Piece { len, ..piece }, bytes.as_ptr()) }
    }

    /// Returns whether the consumer asked to be rung for the descriptors just pushed, which `fence`
    /// orders before the look.
    #[inline(always)]
    pub(crate) fn must_ring(&self, fence: LightFence) -> bool {
        doorbell::must_ring(self.ring.memory().bell(), fence)
    }

    /// Tells the consumer the time at which it is rung, by the monotonic clock.
    pub(crate) fn say_rung(&self, now_ns: u64) {
        self.segment.word64(self.way.rung_at()).store(now_ns, Ordering::Relaxed);
    }

    /// Asks the consumer to ring when it frees room. Effective after the heavy fence.
    pub(crate) fn ask_for_room(&self) {
        doorbell::ask(self.room_bell());
    }

    /// Returns whether the consumer has moved on since the last look.
    pub(crate) fn room_came(&mut self) -> Result<bool, Violation> {
        let before = self.ring.consumed();
        self.ring.refresh()?;
        Ok(self.ring.consumed() != before)
    }

    fn room_bell(&self) -> &AtomicU32 {
        self.segment.word32(self.way.space_bell_at())
    }

    /// Credit that the receiver has given back, ever, in cost units.
    pub(crate) fn released(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + RELEASED_AT).load(Ordering::Acquire)
    }

    /// Number of numbered donated buffers that the receiver has given back, from the first on.
    #[inline]
    pub(crate) fn returned(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + RETURNED_AT).load(Ordering::Acquire)
    }

    /// The receiver's last answer on the time that a message through the ring took there: an answer
    /// of [`sample`](crate::wire::sample).
    pub(crate) fn took_there(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + TOOK_AT).load(Ordering::Relaxed)
    }

    /// Returns whether the receiver last said that long messages go to memory which this side may
    /// write.
    pub(crate) fn goes_to_open_memory(&self) -> bool {
        self.segment.word64(self.way.cursor_at() + OPEN_AT).load(Ordering::Relaxed) != 0
    }

    /// The word in which both sides claim the chunks of transfer `claim` of this direction.
    pub(crate) fn claim_word(&self, claim: u32) -> &AtomicU64 {
        self.segment.word64(self.way.claim_at(claim))
    }

    /// The word in which the sender reports the chunks that it has written of transfer `claim` of
    /// this direction.
    pub(crate) fn report_word(&self, claim: u32) -> &AtomicU64 {
        self.segment.word64(self.way.report_at(claim))
    }

    /// The word in which the sender of requested message `index` of this direction claims what it
    /// copies.
    pub(crate) fn request_word(&self, index: u32) -> &AtomicU64 {
        self.segment.word64(self.way.request_at(index))
    }

    /// Descriptors that the consumer has not gone past, as far as is known.
    pub(crate) fn in_flight(&self) -> u64 {
        self.ring.produced() - self.ring.consumed()
    }

    /// Returns whether the consumer has gone past everything that was pushed.
    fn is_drained(&mut self) -> Result<bool, Violation> {
        self.ring.refresh()?;
        self.bulk.reclaim(self.ring.consumed());
        Ok(self.ring.consumed() == self.ring.produced())
    }

    /// Gives bulk memory beyond the first page back, if nothing is in flight. Not between a lend
    /// and its descriptor.
    pub(crate) fn trim(&mut self, budget: &mut Budget) -> Result<(), Violation> {
        if self.holding.bulk() > BULK_BYTES_MIN && self.is_drained()? {
            // A range that was too short for its use has no descriptor.
            self.bulk.reclaim(u64::MAX);
            self.holding.trim_bulk(budget);
            self.bulk.shrink(self.holding.bulk().min(self.bulk.size()));
        }
        Ok(())
    }

    /// Tells the consumer that this side closes, and takes back the memory it gave.
    pub(crate) fn say_closed(&self) {
        self.segment.word32(self.way.closed_at()).store(CLOSED, Ordering::Release);
    }

    /// Tells the consumer that this side closes, and leaves the memory it gave as it is.
    pub(crate) fn say_left(&self) {
        self.segment.word32(self.way.closed_at()).store(LEFT, Ordering::Release);
    }

    /// The part of this lane that tells when that memory can be taken back.
    pub(crate) fn left(&self) -> Left {
        Left { segment: Arc::clone(&self.segment), way: self.way }
    }

    /// Bytes of memory that it has for sure: descriptors and bulk bytes.
    pub(crate) fn memory(&self) -> usize {
        self.holding.bytes()
    }

    /// Bytes to give back to the budget when the lane goes.
    pub(crate) fn budgeted(&self) -> usize {
        self.holding.budgeted()
    }
}
