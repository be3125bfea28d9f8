//! One direction of a pair: descriptors, bulk bytes, bells, and the credit the receiver gave.

mod holding;
mod rx;
#[cfg(test)]
mod tests;
mod tie;
mod tx;

pub(crate) use self::{
    rx::LaneRx,
    tie::{Left, Tie},
    tx::{LANE_TX_HOT, LaneTx},
};

/// Words of the cursor line after the ring cursor.
const RELEASED_AT: usize = 8;
const TOOK_AT: usize = 16;
const RETURNED_AT: usize = 24;
const OPEN_AT: usize = 32;
const LET_GO_AT: usize = 40;

/// The lane is closed, and given memory is its owner's again.
const CLOSED: u32 = 1;
/// The lane is closed, and given memory stays as it is until the consumer lets go of it.
const LEFT: u32 = 2;
