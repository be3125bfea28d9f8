//! `Holding`: the slots and bulk bytes of a lane's sending end that have memory.
//!
//! The segment is sparse, so bytes that are not held cost nothing. Every lane is entitled to the
//! first page of each; the rest is taken out of the endpoint's budget.

use std::sync::Arc;

use super::super::{budget::Budget, segment::Segment};
use crate::wire::layout::{BULK_BYTES_MIN, DESCRIPTOR_BYTES, Direction, RING_SLOTS_MIN};

/// The memory of a segment that one direction holds.
///
/// Accounting: `budgeted` are the bytes taken of the budget and not given back: all but the first
/// page of the slots and of the bulk bytes.
pub(super) struct Holding {
    segment: Arc<Segment>,
    way: Direction,
    /// Bulk bytes that have memory, from the first on.
    bulk: u32,
    budgeted: usize,
}

impl Holding {
    pub(super) fn new(segment: &Arc<Segment>, way: Direction) -> Holding {
        Holding { segment: Arc::clone(segment), way, bulk: 0, budgeted: 0 }
    }

    /// Reserves memory for slots `now..next`, too, if the budget allows. Returns whether it did.
    pub(super) fn grow_slots(&mut self, now: u32, next: u32, budget: &mut Budget) -> bool {
        let at = self.way.ring_at() + now as usize * DESCRIPTOR_BYTES;
        self.take(at, (next - now) as usize * DESCRIPTOR_BYTES, budget)
    }

    /// Bulk bytes that have memory.
    pub(super) fn bulk(&self) -> u32 {
        self.bulk
    }

    /// Reserves memory for `next` bulk bytes, if the budget allows. Returns whether they have it.
    pub(super) fn grow_bulk(&mut self, next: u32, budget: &mut Budget) -> bool {
        if self.bulk == 0 {
            let at = self.way.bulk_at();
            if self.segment.reserve(at..at + BULK_BYTES_MIN as usize).is_err() {
                return false;
            }
            self.bulk = BULK_BYTES_MIN;
        }
        if next > self.bulk {
            let at = self.way.bulk_at() + self.bulk as usize;
            if self.take(at, (next - self.bulk) as usize, budget) {
                self.bulk = next;
            }
        }
        next <= self.bulk
    }

    /// Gives bulk memory beyond the first page back. Only while nothing is in flight.
    pub(super) fn trim_bulk(&mut self, budget: &mut Budget) {
        if self.bulk <= BULK_BYTES_MIN {
            return;
        }
        let from = self.way.bulk_at() + BULK_BYTES_MIN as usize;
        let to = self.way.bulk_at() + self.bulk as usize;
        if let Err(error) = self.segment.release(from..to) {
            tracing::debug!(%error, "a lane keeps its memory");
            return;
        }
        self.bulk = BULK_BYTES_MIN;
        self.budgeted -= to - from;
        budget.give(to - from);
    }

    /// Reserves memory and accounts for it. Returns whether it did.
    fn take(&mut self, at: usize, bytes: usize, budget: &mut Budget) -> bool {
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

    /// Bytes of memory that it has for sure: slots and bulk bytes.
    pub(super) fn bytes(&self) -> usize {
        let first = RING_SLOTS_MIN as usize * DESCRIPTOR_BYTES;
        first + self.bulk.min(BULK_BYTES_MIN) as usize + self.budgeted
    }

    /// Bytes of the endpoint's budget that growing took.
    pub(super) fn budgeted(&self) -> usize {
        self.budgeted
    }
}
