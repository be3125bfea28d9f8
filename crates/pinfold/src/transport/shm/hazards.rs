//! `Hazards`: the [hazard words](super::hazard) of one pair, both ways.

use std::sync::Arc;

use super::{hazard, segment::Segment};
use crate::{
    sync::{AtomicU32, AtomicU64, Ordering},
    wire::layout::{Direction, HAZARDS},
};

const _: () = assert!(HAZARDS == u32::BITS);

/// Regions of the peer that threads of this side are using, and regions of ours that the peer's are
/// using.
pub(crate) struct Hazards {
    segment: Arc<Segment>,
    /// The direction towards the peer.
    there: Direction,
    /// Words in use, a bit each. Not in the segment, where the peer could write it.
    taken: AtomicU32,
    /// Number of our regions that the peer used and that were withdrawn.
    withdrawn: AtomicU64,
}

impl Hazards {
    /// Creates the hazard words of the pair of `segment`; `there` is the direction towards the
    /// peer.
    pub(crate) fn new(segment: &Arc<Segment>, there: Direction) -> Hazards {
        Hazards {
            segment: Arc::clone(segment),
            there,
            taken: AtomicU32::new(0),
            withdrawn: AtomicU64::new(0),
        }
    }

    /// Notes that this thread begins to use `region` of the peer's. Returns `None` if all words are
    /// in use by other threads.
    pub(crate) fn begin(&self, region: u64) -> Option<Hazard<'_>> {
        loop {
            let index = (!self.taken.load(Ordering::Relaxed)).trailing_zeros();
            if index >= HAZARDS {
                return None;
            }
            let bit = 1 << index;
            if self.taken.fetch_or(bit, Ordering::Acquire) & bit == 0 {
                let word = self.segment.word64(self.there.hazard_at(index));
                let withdrawals = hazard::begin(word, region, self.withdrawals());
                return Some(Hazard { hazards: self, index, withdrawals });
            }
        }
    }

    /// Number of regions that the peer says it has withdrawn.
    pub(crate) fn withdrawals(&self) -> &AtomicU64 {
        self.segment.word64(self.there.withdrawals_at())
    }

    /// Notes that a region of ours was withdrawn.
    pub(crate) fn withdraw(&self) {
        let count = self.withdrawn.fetch_add(1, Ordering::Relaxed) + 1;
        hazard::withdraw(self.segment.word64(self.there.reverse().withdrawals_at()), count);
    }

    /// Returns whether the peer is using our `region`, which was withdrawn.
    pub(crate) fn is_protected(&self, region: u64) -> bool {
        let word = |index| self.segment.word64(self.there.reverse().hazard_at(index));
        hazard::is_protected((0..HAZARDS).map(word), region)
    }

    /// Returns whether either side has closed or cut the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.segment.is_closed()
    }
}

/// Use of a region of the peer's by a thread of this side, until it is dropped.
pub(crate) struct Hazard<'a> {
    hazards: &'a Hazards,
    index: u32,
    /// Number of regions that the peer had withdrawn when the use began.
    pub withdrawals: u64,
}

impl Drop for Hazard<'_> {
    fn drop(&mut self) {
        hazard::end(self.hazards.segment.word64(self.hazards.there.hazard_at(self.index)));
        self.hazards.taken.fetch_and(!(1 << self.index), Ordering::Release);
    }
}
