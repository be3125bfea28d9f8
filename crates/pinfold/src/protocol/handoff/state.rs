//! The states of donated buffers: of those that are out, and of those whose giver is gone.

use super::parts::ExportedParts;
use crate::{
    endpoint::DonatedBuf, memory::imported_extents::Loan, transport::shm::lane,
    worker::op_key::OpKey,
};

/// State of a counted donated buffer.
pub(crate) enum Fate {
    /// The buffer is in flight, or the receiver is using it.
    Out { donation: DonatedBuf, tag: u64, is_frame: bool },
    /// The buffer is a send.
    Op(OpKey),
}

/// A message that its sender has left behind, in the memory that it gave.
pub(crate) enum Left {
    One(Box<Loan>),
    Parts { exported_parts: ExportedParts, sid: u32, tie: lane::Tie },
}
