//! One direction of a pair: descriptors, bulk bytes, bells, and the credit the receiver gave.

mod holding;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

use std::sync::Arc;

pub(crate) use self::{rx::LaneRx, tx::LaneTx};
use super::segment::Segment;

/// Words of the cursor line after the ring cursor.
const RELEASED_AT: usize = 8;
const SPEED_AT: usize = 16;
const RETURNED_AT: usize = 24;
const OPEN_AT: usize = 32;

/// Whether the pair is still connected, for those who look at memory of the other side.
#[derive(Clone)]
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
