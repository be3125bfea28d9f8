//! A part of a message that a thread copies outside of the engine.
//!
//! **Invariant.** The memory of the operation stays until the copy has ended: an operation of which
//! a part is [lent](crate::worker::lent) does not end.

use std::sync::Arc;

use super::{
    get_part::{self, Got},
    put_part::{self, Went},
    transfer::There,
};
use crate::{
    PeerId, copy::CopyBytes, memory::scatter::Scatter, protocol::rma::cma::CmaAccess,
    wire::rendezvous::Place, worker::op_key::OpKey,
};

/// The direction of a copy.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    /// Out of the sender's memory.
    Get,
    /// Into the receiver's memory, which is `want` bytes long and lies at `place`.
    Put { place: Place, want: u64 },
}

/// A copy that is to be made.
pub(crate) struct CopyJob {
    pub key: OpKey,
    pub peer: PeerId,
    /// This side's memory: the part alone.
    pub memory: Scatter,
    pub there: There,
    pub cma_access: Arc<CmaAccess>,
    /// The first byte of the part in the message, and its length.
    pub part: (u64, u64),
    pub direction: Direction,
}

/// A copy that was made.
pub(crate) struct CopyDone {
    pub key: OpKey,
    pub peer: PeerId,
    pub there: There,
    pub copied: Copied,
}

/// The result of a copy.
pub(crate) enum Copied {
    In(Got),
    Out(Went),
}

impl CopyJob {
    /// Makes the copy. May wait as long as the memory of either side does.
    pub(crate) fn run(self, copier: &mut impl CopyBytes) -> CopyDone {
        let CopyJob { key, peer, memory, mut there, cma_access, part, direction } = self;
        let (here, cma_access) = ((&memory, 0), &*cma_access);
        let copied = match direction {
            Direction::Get => {
                Copied::In(get_part::get_part(&there, cma_access, here, part, copier))
            }
            Direction::Put { place, want } => {
                let place = (place, want);
                let to = &mut there;
                Copied::Out(put_part::put_part(to, place, cma_access, here, part, copier))
            }
        };
        CopyDone { key, peer, there, copied }
    }
}
