//! The [visits](super::hazard) of one pair, both ways.

use std::sync::Arc;

use super::{hazard, segment::Segment};
use crate::{
    sync::{AtomicU32, AtomicU64, Ordering},
    wire::layout::{Direction, HAZARDS},
};

const _: () = assert!(HAZARDS == u32::BITS);

/// Where threads of this side are in the peer's memory, and threads of the peer's in ours.
pub(crate) struct Hazards {
    segment: Arc<Segment>,
    /// Towards the peer.
    there: Direction,
    /// Words in use, a bit each. Not in the segment: the peer could write it.
    taken: AtomicU32,
    /// Regions of ours that the peer used and that were withdrawn.
    withdrawn: AtomicU64,
}

impl Hazards {
    /// Those of the pair of `segment`; `there` is the way towards the peer.
    pub(crate) fn new(segment: &Arc<Segment>, there: Direction) -> Hazards {
        Hazards {
            segment: Arc::clone(segment),
            there,
            taken: AtomicU32::new(0),
            withdrawn: AtomicU64::new(0),
        }
    }

    /// This thread goes to `region` of the peer's. `None`: as many threads as can are at some.
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

    /// Regions that the peer says it has withdrawn.
    pub(crate) fn withdrawals(&self) -> &AtomicU64 {
        self.segment.word64(self.there.withdrawals_at())
    }

    /// A region of ours stands no more.
    pub(crate) fn withdraw(&self) {
        let count = self.withdrawn.fetch_add(1, Ordering::Relaxed) + 1;
        hazard::withdraw(self.segment.word64(self.there.reverse().withdrawals_at()), count);
    }

    /// Whether the peer is at `region` of ours, which was withdrawn.
    pub(crate) fn is_protected(&self, region: u64) -> bool {
        let word = |index| self.segment.word64(self.there.reverse().hazard_at(index));
        hazard::is_protected((0..HAZARDS).map(word), region)
    }

    /// Whether either side has closed or cut the connection.
    pub(crate) fn is_over(&self) -> bool {
        self.segment.is_closed()
    }
}

/// A thread of this side is at a region of the peer's. Dropped, it is back.
pub(crate) struct Hazard<'a> {
    hazards: &'a Hazards,
    index: u32,
    /// What the peer had withdrawn when it began.
    pub withdrawals: u64,
}

impl Drop for Hazard<'_> {
    fn drop(&mut self) {
        hazard::end(self.hazards.segment.word64(self.hazards.there.hazard_at(self.index)));
        self.hazards.taken.fetch_and(!(1 << self.index), Ordering::Release);
    }
}
