//! Memory of a peer's as this side has opened it, and the operations for which its owner is asked:
//! plain state.

use std::{collections::VecDeque, sync::Arc};

use super::cma::CmaAccess;
use crate::{
    Error, PeerId, Refusal, Result, SharedBuf,
    error::inside,
    memory::imported_extents::Loan,
    sync::LightFence,
    wire::{
        region::{Extent, Open, Spot},
        served_rma::{Use, What},
        space::{Exposure, Refused},
    },
    worker::op_key::OpKey,
};

/// Memory of a peer's, as the peer has lent it.
#[derive(Debug)]
pub(crate) struct Lent {
    pub memory: Loan,
    pub flag: Loan,
    pub len: u64,
    pub writable: bool,
    /// The fence that has to come between an operation and a look at the flag.
    pub fence: LightFence,
}

/// Memory that is read and written where it is.
pub(crate) struct Reached {
    pub spot: Spot,
    pub cma_access: Arc<CmaAccess>,
    /// Reason why the memory is not mapped.
    pub why_not_mapped: Refusal,
}

/// Use of opened memory.
pub(crate) enum Way {
    Mapped {
        lent: Lent,
        stamp: u64,
    },
    Kernel(Reached),
    /// The owner of the region performs the operations.
    Owner(Refusal),
    /// Memory by address.
    Addresses(Exposed),
}

/// Exposed addresses, as their owner has said.
pub(crate) struct Exposed {
    pub exposure: Exposure,
    pub cma_access: Arc<CmaAccess>,
    /// Reason why nothing is mapped.
    pub why_not_mapped: Option<Refusal>,
}

impl Exposed {
    /// The reason why the kernel does not copy, if it does not.
    pub(crate) fn denied(&self) -> Option<Refusal> {
        match Refusal::from_code(self.exposure.cma) {
            Some(why) if self.exposure.cma != 0 => Some(why.mirrored()),
            _ => self.cma_access.there(self.exposure.writable).err(),
        }
    }
}

/// Memory that was opened.
pub(crate) struct Opening {
    pub extent: Extent,
    pub way: Way,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.way {
            Way::Mapped { .. } => "Mapped",
            Way::Kernel(_) => "Kernel",
            Way::Owner(_) => "Owner",
            Way::Addresses(_) => "Addresses",
        })
    }
}

/// Returns an error unless `len` bytes at `offset` may be used in this way.
pub(crate) fn check(extent: &Extent, offset: u64, len: u64, writes: bool) -> Result<()> {
    if writes && !extent.writable {
        return Err(Error::ReadOnly);
    }
    inside(offset, len, extent.len)
}

/// The error that the end of a connection means to a user of memory, as on one host.
pub(crate) fn withdrawn(error: Error) -> Error {
    match error {
        Error::PeerGone { .. } | Error::UnknownPeer { .. } | Error::Closed => Error::Withdrawn,
        other => other,
    }
}

/// A question that has not been answered.
pub(crate) struct Asked {
    pub peer: PeerId,
    pub(super) open: Open,
    /// Reason why the memory cannot be mapped, if that is settled.
    pub(super) why_not_mapped: Option<Refusal>,
}

/// Operations of one kind that one peer is asked for at most.
pub(crate) const OUT_MAX: usize = 16;

/// Questions that are out at a time for one operation by an agent.
pub(crate) const PARTS_OUT_MAX: usize = 4;

/// Operations that one peer is asked for: the number in flight, and those that wait.
#[derive(Default)]
pub(crate) struct ServedRma {
    pub out: usize,
    pub waiting: VecDeque<OpKey>,
}

impl ServedRma {
    /// The next operation that waits, if it may start: it counts as in flight.
    pub(crate) fn next(&mut self) -> Option<OpKey> {
        if self.out >= OUT_MAX {
            return None;
        }
        let key = self.waiting.pop_front()?;
        self.out += 1;
        Some(key)
    }

    /// Counts an operation as no longer in flight.
    pub(crate) fn end(&mut self) {
        self.out = self.out.saturating_sub(1);
    }
}

/// An operation that the owner of a region is asked for, as it was begun.
#[derive(Clone, Copy)]
pub(crate) struct ServedRequest {
    pub peer: PeerId,
    pub asked: Use,
    /// Bytes of the region, as its owner has said.
    pub size: u64,
}

/// Kind of a send that is no message.
pub(crate) enum Served {
    /// A write, and its owner's answer if that came while the memory is still in use.
    Write { using: ServedRequest, answer: Option<Result<(), Refused>> },
    /// The answer to a peer's read.
    Answer { number: u32, region: u64, offset: usize, memory: Arc<SharedBuf> },
}

/// Progress of a send that is no message, at its first step.
pub(crate) enum Begun {
    /// The bytes come next.
    Streams,
    /// All bytes are out.
    AllOut,
    Ended,
}

impl Served {
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Served::Write { .. })
    }
}

impl ServedRequest {
    /// The error for a refusal.
    pub(super) fn error(&self, why: Refused) -> Error {
        let (offset, size) = (self.asked.offset, self.size);
        match why {
            Refused::ReadOnly => Error::ReadOnly,
            Refused::Outside => Error::OutOfBounds { offset, len: self.len(), size },
            Refused::Misaligned => Error::Misaligned { offset, size: self.len() },
            _ => Error::Revoked,
        }
    }

    pub(super) fn len(&self) -> u64 {
        match self.asked.what {
            What::Read { len } | What::Write { len } => len,
            What::Brief { len, .. } => len as u64,
            What::Change(change) => change.word.size(),
        }
    }
}
