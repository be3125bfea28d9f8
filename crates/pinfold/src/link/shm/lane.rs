//! One direction of a pair: descriptors, bulk bytes, bells, and the credit the receiver gave.

use std::sync::Arc;

use pinfold_sys::clock;

use super::{
    bell,
    budget::Budget,
    bulk::{Bulk, HOT_BYTES},
    copies::{CopyIn, CopyOut},
    ring::{RingRx, RingTx, Violation},
    segment::{MappedRing, Segment, Word},
};
use crate::{
    blockmem::Tally,
    sync::{AtomicU32, AtomicU64, LightFence, Ordering},
    wire::{
        descriptor::{Body, Header, Piece},
        layout::{
            BULK_BYTES_MAX, BULK_BYTES_MIN, DESCRIPTOR_BYTES, Direction, RING_SLOTS_MAX,
            RING_SLOTS_MIN,
        },
    },
};

/// Words of the cursor line after the ring cursor.
const RELEASED_AT: usize = 8;
const SPEED_AT: usize = 16;
const RETURNED_AT: usize = 24;
const OPEN_AT: usize = 32;

/// How long a consumer that is behind is waited for before more bulk bytes come into use, µs: about
/// as long as a far core takes to copy all that are in use.
const MOMENT_US: u64 = 4;
/// After a moment in vain so many ranges are lent without waiting.
const IMPATIENCE: u32 = 16;

/// The sending end.
pub(crate) struct LaneTx {
    ring: RingTx<MappedRing>,
    bulk: Bulk,
    /// Bulk bytes that have memory; as many as are in use, or more.
    reserved: u32,
    /// Ranges to be lent before the consumer is waited for again.
    impatience: u32,
    segment: Arc<Segment>,
    way: Direction,
    fence: LightFence,
    bell: Word<AtomicU32>,
    copies: CopyIn,
    /// Bytes of the endpoint's budget that growing took.
    budgeted: usize,
}

impl LaneTx {
    /// One whose copies count in `tally`.
    pub(crate) fn new(
        segment: &Arc<Segment>,
        way: Direction,
        fence: LightFence,
        tally: &Arc<Tally>,
    ) -> LaneTx {
        LaneTx {
            ring: RingTx::new(segment.ring(way), RING_SLOTS_MIN),
            bulk: Bulk::new(),
            reserved: 0,
            impatience: 0,
            segment: Arc::clone(segment),
            way,
            fence,
            bell: segment.keep32(way.bell_at()),
            copies: CopyIn::new(segment, way, tally),
            budgeted: 0,
        }
    }

    /// Whether a descriptor can be pushed. A full ring grows if the budget allows.
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

    /// Whether a descriptor can be pushed, as far as is known without looking.
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
        let bytes = (next - now) as usize * DESCRIPTOR_BYTES;
        let at = self.way.ring_at() + now as usize * DESCRIPTOR_BYTES;
        if self.take_memory(at, bytes, budget) {
            self.ring.grow(next);
        }
    }

    /// Reserves memory and accounts for it.
    fn take_memory(&mut self, at: usize, bytes: usize, budget: &mut Budget) -> bool {
        if !budget.take(bytes) {
            return false;
        }
        if let Err(error) = self.segment.reserve(at..at + bytes) {
            tracing::debug!(%error, bytes, "a lane could not grow");
            budget.give(bytes);
            return false;
        }
        self.budgeted += bytes;
        true
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
        if want <= self.bulk.size() && self.bulk.size() >= HOT_BYTES {
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

    /// Waits a moment for the consumer to go on. Whether it did.
    fn await_consumer(&mut self) -> Result<bool, Violation> {
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

    /// Lends `len` bulk bytes to the next descriptor, if that many are known to be free.
    #[inline]
    pub(crate) fn lend_known(&mut self, len: u32) -> Option<Piece> {
        self.bulk.reclaim(self.ring.consumed());
        self.bulk.lend(len, self.ring.produced())
    }

    /// Brings more bulk bytes into use, with memory where they had none.
    #[cold]
    fn widen(&mut self, want: u32, budget: &mut Budget) -> bool {
        let now = self.bulk.size();
        // Whether it can grow just now.
        if !self.bulk.grow(now) {
            return false;
        }
        if self.reserved == 0 {
            // The first page is every lane's right; it is not part of the budget.
            let at = self.way.bulk_at();
            if self.segment.reserve(at..at + BULK_BYTES_MIN as usize).is_err() {
                return false;
            }
            self.reserved = BULK_BYTES_MIN;
        }
        let next = (now * 2).max(HOT_BYTES).max(want.next_power_of_two()).min(BULK_BYTES_MAX);
        if next > self.reserved {
            let at = self.way.bulk_at() + self.reserved as usize;
            if self.take_memory(at, (next - self.reserved) as usize, budget) {
                self.reserved = next;
            }
        }
        let next = next.min(self.reserved);
        next > now && self.bulk.grow(next)
    }

    /// Copies `piece.len` bytes from `from` into `piece`, and notes in it what the receiver is to know
    /// of the copy.
    ///
    /// # Safety
    /// `from` is valid for reads of `piece.len` bytes.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn fill(
        &mut self,
        piece: &mut Piece,
        from: *const u8,
    ) -> Result<(), Violation> {
        let to = self.segment.bulk_ptr(self.way, *piece)?;
        // SAFETY: `from` by contract, `to` by the check of its bounds.
        piece.sample = unsafe { self.copies.copy_in(from, to, piece.len as usize) };
        Ok(())
    }

    /// Whether the consumer asked to be rung for what has just been pushed.
    #[inline(always)]
    pub(crate) fn must_ring(&self) -> bool {
        bell::must_ring(&self.bell, self.fence)
    }

    /// Asks the consumer to ring when it frees room. Effective after the heavy fence.
    pub(crate) fn ask_for_room(&self) {
        bell::ask(self.room_bell());
    }

    /// Whether the consumer has moved on since the last look.
    pub(crate) fn room_came(&mut self) -> Result<bool, Violation> {
        let before = self.ring.consumed();
        self.ring.refresh()?;
        Ok(self.ring.consumed() != before)
    }

    fn room_bell(&self) -> &AtomicU32 {
        self.segment.word32(self.way.space_bell_at())
    }

    /// The credit the receiver has given back, ever, in cost units.
    pub(crate) fn released(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + RELEASED_AT).load(Ordering::Acquire)
    }

    /// How many numbered gifts the receiver has given back, from the first on.
    #[inline]
    pub(crate) fn returned(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + RETURNED_AT).load(Ordering::Acquire)
    }

    /// What the receiver last said an eager byte takes it, in ns a MiB; 0 if it has not.
    pub(crate) fn eager_ns_per_mib(&self) -> u64 {
        self.segment.word64(self.way.cursor_at() + SPEED_AT).load(Ordering::Relaxed)
    }

    /// Whether the receiver last said that long messages go to memory which this side may write.
    pub(crate) fn goes_to_open_memory(&self) -> bool {
        self.segment.word64(self.way.cursor_at() + OPEN_AT).load(Ordering::Relaxed) != 0
    }

    /// The word by which both sides share out transfer `claim` of this direction.
    pub(crate) fn claim_word(&self, claim: u32) -> &AtomicU64 {
        self.segment.word64(self.way.claim_at(claim))
    }

    /// Whether the consumer has gone past everything that was pushed.
    fn is_drained(&mut self) -> Result<bool, Violation> {
        self.ring.refresh()?;
        self.bulk.reclaim(self.ring.consumed());
        Ok(self.ring.consumed() == self.ring.produced())
    }

    /// Gives bulk memory beyond the first page back, if nothing is in flight.
    pub(crate) fn trim(&mut self, budget: &mut Budget) -> Result<(), Violation> {
        if self.reserved <= BULK_BYTES_MIN || !self.is_drained()? {
            return Ok(());
        }
        let from = self.way.bulk_at() + BULK_BYTES_MIN as usize;
        let to = self.way.bulk_at() + self.reserved as usize;
        if let Err(error) = self.segment.release(from..to) {
            tracing::debug!(%error, "a lane keeps its memory");
            return Ok(());
        }
        self.bulk.shrink(BULK_BYTES_MIN.min(self.bulk.size()));
        self.reserved = BULK_BYTES_MIN;
        let bytes = to - from;
        self.budgeted -= bytes;
        budget.give(bytes);
        Ok(())
    }

    /// Says that this side closes in good order.
    pub(crate) fn say_closed(&self) {
        self.segment.word32(self.way.closed_at()).store(1, Ordering::Release);
    }

    /// Memory that it has for sure: descriptors and bulk bytes.
    pub(crate) fn memory(&self) -> usize {
        let first = RING_SLOTS_MIN as usize * DESCRIPTOR_BYTES;
        first + self.reserved.min(BULK_BYTES_MIN) as usize + self.budgeted
    }

    /// Bytes to give back to the budget when the lane goes.
    pub(crate) fn budgeted(&self) -> usize {
        self.budgeted
    }
}

/// Whether the pair is still connected, for those who look at memory of the other side.
pub(crate) struct Tie {
    segment: Arc<Segment>,
}

impl Tie {
    /// Whether either side has closed or cut the connection; what the other side gave is then its
    /// own again. A process that died has not.
    pub(crate) fn is_cut(&self) -> bool {
        self.segment.is_closed()
    }
}

/// The receiving end.
pub(crate) struct LaneRx {
    ring: RingRx<MappedRing>,
    segment: Arc<Segment>,
    way: Direction,
    fence: LightFence,
    space_bell: Word<AtomicU32>,
    released_word: Word<AtomicU64>,
    copies: CopyOut,
    released: u64,
    released_published: u64,
}

impl LaneRx {
    /// One whose copies count in `tally`.
    pub(crate) fn new(
        segment: &Arc<Segment>,
        way: Direction,
        fence: LightFence,
        tally: &Arc<Tally>,
    ) -> LaneRx {
        LaneRx {
            ring: RingRx::new(segment.ring(way)),
            segment: Arc::clone(segment),
            way,
            fence,
            space_bell: segment.keep32(way.space_bell_at()),
            released_word: segment.keep64(way.cursor_at() + RELEASED_AT),
            copies: CopyOut::new(segment, way, tally),
            released: 0,
            released_published: 0,
        }
    }

    /// The header of the next descriptor, if there is one.
    #[inline(always)]
    pub(crate) fn head(&self) -> Option<Header> {
        self.ring.head()
    }

    /// Copies the body of the next descriptor out, once.
    #[inline(always)]
    pub(crate) fn body(&self) -> Body {
        self.ring.body()
    }

    /// Copies word `i` of the body of the next descriptor out.
    #[inline(always)]
    pub(crate) fn word(&self, i: usize) -> u64 {
        self.ring.word(i)
    }

    /// Goes past the next descriptor.
    #[inline(always)]
    pub(crate) fn advance(&mut self, header: Header) -> Result<(), Violation> {
        self.ring.advance(header)
    }

    /// Descriptors passed, ever.
    #[inline(always)]
    pub(crate) fn consumed(&self) -> u64 {
        self.ring.consumed()
    }

    /// Gives `cost` of the sender's credit back.
    #[inline(always)]
    pub(crate) fn release(&mut self, cost: u64) {
        self.released += cost;
    }

    /// Descriptors passed that the sender has not been told of.
    #[inline(always)]
    pub(crate) fn unpublished(&self) -> u64 {
        self.ring.unpublished()
    }

    /// Tells the sender what was consumed and released. Yes: the sender must be rung.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> bool {
        if self.released != self.released_published {
            self.released_published = self.released;
            self.released_word.store(self.released, Ordering::Release);
        }
        self.ring.publish();
        bell::must_ring(&self.space_bell, self.fence)
    }

    /// Says what an eager byte takes here, ns a MiB.
    pub(crate) fn say_eager_speed(&self, ns_per_mib: u64) {
        let word = self.segment.word64(self.way.cursor_at() + SPEED_AT);
        word.store(ns_per_mib, Ordering::Relaxed);
    }

    /// Says whether long messages go to memory that the sender may write. A hint; it says so again
    /// only if that has changed.
    pub(crate) fn say_open_memory(&self, open: bool) {
        let word = self.segment.word64(self.way.cursor_at() + OPEN_AT);
        let open = u64::from(open);
        if word.load(Ordering::Relaxed) != open {
            word.store(open, Ordering::Relaxed);
        }
    }

    /// Says how many numbered gifts were given back, from the first on.
    #[inline]
    pub(crate) fn say_returned(&self, count: u64) {
        self.segment.word64(self.way.cursor_at() + RETURNED_AT).store(count, Ordering::Release);
    }

    /// Copies `piece.len` bytes to `to`.
    ///
    /// # Safety
    /// `to` is valid for writes of `piece.len` bytes.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn drain(&mut self, piece: Piece, to: *mut u8) -> Result<(), Violation> {
        let from = self.segment.bulk_ptr(self.way, piece)?;
        // SAFETY: `to` by contract, `from` by the check of its bounds.
        unsafe { self.copies.copy_out(from, to, piece.len as usize, piece.sample) };
        Ok(())
    }

    /// Whether the sender closed in good order.
    pub(crate) fn is_closed(&self) -> bool {
        self.segment.word32(self.way.closed_at()).load(Ordering::Acquire) != 0
    }

    /// What lasts as long as the connection.
    pub(crate) fn tie(&self) -> Tie {
        Tie { segment: Arc::clone(&self.segment) }
    }

    /// Asks the sender to ring for new descriptors. Effective after the heavy fence.
    pub(crate) fn ask(&self) {
        bell::ask(self.segment.word32(self.way.bell_at()));
    }

    /// Takes that back.
    pub(crate) fn unask(&self) {
        bell::unask(self.segment.word32(self.way.bell_at()));
    }

    /// The word by which both sides share out transfer `claim` of this direction.
    pub(crate) fn claim_word(&self, claim: u32) -> &AtomicU64 {
        self.segment.word64(self.way.claim_at(claim))
    }
}
