//! The receiving end of a lane.

use std::sync::Arc;

use super::super::{
    copy_learner::CopyOut,
    doorbell,
    ring::{RingRx, Violation},
    segment::{MappedRing, Segment, Word},
};
use super::{LEFT, OPEN_AT, RELEASED_AT, RETURNED_AT, TOOK_AT, Tie};
use crate::{
    copy::Tally,
    sync::{AtomicU32, AtomicU64, LightFence, Ordering},
    wire::{
        descriptor::{Body, Header, Piece},
        layout::Direction,
        sample,
    },
};

/// The receiving end of a lane.
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
    /// Created for the first memory that the sender lends.
    tie: Option<Tie>,
}

impl LaneRx {
    /// Creates a receiving end whose copies count in `tally`.
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
            tie: None,
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

    /// Has the line behind that of the next descriptor come over at the same time.
    #[inline(always)]
    pub(crate) fn bring_behind(&self) {
        self.ring.bring_behind();
    }

    /// The header of the second descriptor of the message whose first is next, with this header,
    /// and the bytes of both. `None`: no honest peer wrote the two.
    #[inline(always)]
    pub(crate) fn rest(&self, first: Header) -> Option<(Header, usize)> {
        let rest = self.ring.behind(first)?;
        Some((rest, first.inline_two_len(rest)?))
    }

    /// Copies word `i` of the bodies of the next two descriptors out, the first of which has this
    /// header: the words of the second follow those of the first.
    #[inline(always)]
    pub(crate) fn word_of_two(&self, header: Header, i: usize) -> u64 {
        self.ring.word_of_two(header, i)
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

    /// Credit given back, ever.
    pub(crate) fn released(&self) -> u64 {
        self.released
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

    /// Tells the sender how much was consumed and released. Returns whether the sender must be
    /// rung.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> bool {
        if self.released != self.released_published {
            self.released_published = self.released;
            self.released_word.store(self.released, Ordering::Release);
        }
        self.ring.publish();
        doorbell::must_ring(&self.space_bell, self.fence)
    }

    /// Tells the sender that the bytes of the first `count` descriptors ever are free again, and
    /// how much credit was released. Returns whether the sender must be rung.
    pub(crate) fn publish_first(&mut self, count: u64) -> bool {
        if self.released != self.released_published {
            self.released_published = self.released;
            self.released_word.store(self.released, Ordering::Release);
        }
        self.ring.publish_first(count);
        doorbell::must_ring(&self.space_bell, self.fence)
    }

    /// The time of the sender's last ring, as it says.
    pub(crate) fn rung_ns(&self) -> u64 {
        self.segment.word64(self.way.rung_at()).load(Ordering::Relaxed)
    }

    /// The address of the bytes of a piece. They are there until the piece is given back, and are
    /// not written before, if the sender is this process.
    pub(crate) fn place(&self, piece: Piece) -> Result<*mut u8, Violation> {
        self.segment.bulk_ptr(self.way, piece)
    }

    /// Tells the sender the time that a message through the ring took here: an answer of
    /// [`sample`](crate::wire::sample).
    pub(crate) fn say_took(&self, answer: u64) {
        let word = self.segment.word64(self.way.cursor_at() + TOOK_AT);
        word.store(answer, Ordering::Relaxed);
    }

    /// Tells the sender whether long messages go to memory that it may write. A hint; the word is
    /// stored again only if that has changed.
    pub(crate) fn say_open_memory(&self, open: bool) {
        let word = self.segment.word64(self.way.cursor_at() + OPEN_AT);
        let open = u64::from(open);
        if word.load(Ordering::Relaxed) != open {
            word.store(open, Ordering::Relaxed);
        }
    }

    /// Tells the sender how many numbered donated buffers were given back, from the first on.
    /// Returns whether the sender must be rung.
    #[inline]
    pub(crate) fn say_returned(&self, count: u64) -> bool {
        self.segment.word64(self.way.cursor_at() + RETURNED_AT).store(count, Ordering::Release);
        doorbell::must_ring(&self.space_bell, self.fence)
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

    /// Copies out the bytes of `piece`, which belong to a descriptor; `None` if there are more than
    /// `len_max`.
    #[allow(unsafe_code)]
    pub(crate) fn read(
        &mut self,
        piece: Piece,
        len_max: usize,
    ) -> Result<Option<Vec<u8>>, Violation> {
        if piece.len as usize > len_max {
            return Ok(None);
        }
        let mut bytes = vec![0; piece.len as usize];
        // SAFETY: there is room for `piece.len` bytes.
        unsafe { self.drain(Piece { sample: 0, ..piece }, bytes.as_mut_ptr())? };
        Ok(Some(bytes))
    }

    /// Answers the sender's question `number` with the time that a whole message took here.
    pub(crate) fn say_fragment_sample(&self, number: u8, ns: u64) {
        let word = self.segment.word64(self.way.fragment_sample_at(number));
        word.store(sample::answer(number, ns), Ordering::Relaxed);
    }

    /// Returns whether the sender closed, with or without leaving the memory it gave.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed() != 0
    }

    /// Returns whether the sender closed and left the memory it gave.
    pub(crate) fn has_left(&self) -> bool {
        self.closed() == LEFT
    }

    fn closed(&self) -> u32 {
        self.segment.word32(self.way.closed_at()).load(Ordering::Acquire)
    }

    /// The tie that is held as long as memory of the sender's is in use.
    pub(crate) fn tie(&mut self) -> Tie {
        self.tie.get_or_insert_with(|| Tie::new(&self.segment, self.way)).clone()
    }

    /// Asks the sender to ring for new descriptors. Effective after the heavy fence.
    pub(crate) fn ask(&self) {
        doorbell::ask(self.segment.word32(self.way.bell_at()));
    }

    /// Takes that request back.
    pub(crate) fn unask(&self) {
        doorbell::unask(self.segment.word32(self.way.bell_at()));
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
}
