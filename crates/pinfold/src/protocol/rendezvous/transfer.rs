//! State of messages that are copied out of their senders' memory: each side's part.

use std::sync::Arc;

use crate::{
    PeerId,
    copy::Largest,
    memory::{arena::Mapping, cma_memory::Remote},
    protocol::handoff::parts::ExportedParts,
    wire::rendezvous::{Place, Request, Rts, Wrote},
};

/// Messages at least this long are copied by both sides.
pub(crate) const SHARED_FROM: u64 = 64 << 10;

/// The sender's part: a copy into the receiver's memory.
pub(crate) struct Putting {
    pub want: u64,
    /// The destination, as the receiver said.
    pub place: Place,
    pub to: There,
    /// True if the receiver took it to be mapped here.
    pub offered: bool,
    pub claim: u32,
    pub generation: u16,
    pub chunk_shift: u8,
    pub done: u32,
    pub copied: Copied,
}

impl Putting {
    /// Returns whether a thread copies a chunk of it.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.to, There::Lent)
    }
}

/// Amounts that this side has copied of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copied {
    /// Bytes copied at user level.
    pub user: u64,
    /// Bytes copied by the kernel.
    pub kernel: u64,
    pub by: Largest,
}

/// The receiver's part: a message that is being taken out of its sender's memory.
pub(crate) struct Get {
    pub peer: PeerId,
    pub sid: u32,
    pub tag: u64,
    /// The message's true length.
    pub len: u64,
    /// Bytes wanted: the length, or the room if that is less.
    pub want: u64,
    /// `There::Lent` as long as a part is.
    pub source: There,
    /// True if it lies in memory of the sender's that is mapped here.
    pub is_mapped: bool,
    /// True if the sender is gone and has left its memory here: all of the message is copied out
    /// of that once the part that is lent is back.
    pub is_left: bool,
    /// True if the sender took it to be mapped here.
    pub offered: bool,
    /// True if the sender gave its memory away.
    pub given: bool,
    /// Bytes this side has copied.
    pub copied: u64,
    /// Bytes before those, which came through the ring until this side took over.
    pub streamed: u64,
    pub by: Largest,
    /// Start of the transfer, ticks.
    pub started: u64,
    /// Ns since the start, or since something else came meanwhile.
    pub took_ns: u64,
    pub shared: Option<SharedGet>,
    /// True if this side reads, false if it leaves all of it to the sender.
    pub reads: bool,
    /// The `errno` that stopped this side, once something has.
    pub errno: u32,
    /// The `errno` that kept this side from reading, if the message is to come in another way.
    pub otherwise: u32,
    /// Range of bytes that the sender had claimed and could not write.
    pub left: Option<(u64, u64)>,
    /// True if memory of an arena that should have been present was missing: then all of it comes
    /// again, through the ring.
    pub again: bool,
}

impl Get {
    /// Returns whether the message was to come through the ring.
    pub(crate) fn is_taken_over(&self) -> bool {
        self.shared.is_none() && self.left.is_some()
    }

    /// Returns whether a thread copies a part of it outside of the engine.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.source, There::Lent)
    }

    /// Returns whether the sender may be writing to this receive's memory.
    pub(crate) fn awaits_sender(&self) -> bool {
        self.shared.is_some_and(|shared| shared.wrote.is_none() && shared.theirs != Some(0))
    }
}

/// Memory of the other side: the source or the destination of a message.
pub(crate) enum There {
    /// Memory that the kernel reaches.
    Remote(Remote),
    /// Memory in an arena of the peer's, mapped here, from `offset` on.
    Mapped { mapping: Arc<Mapping>, offset: u64 },
    /// The same in several parts.
    ExportedParts(ExportedParts),
    /// A thread copies a part of it outside of the engine, and has it meanwhile.
    Lent,
}

/// A pull that the sender helps with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedGet {
    pub claim: u32,
    pub generation: u16,
    pub chunks: u64,
    pub chunk_shift: u8,
    /// Chunks this side has copied.
    pub mine: u64,
    /// The number of chunks that the sender had claimed, once this side found nothing more to
    /// claim.
    pub theirs: Option<u64>,
    /// The sender's report.
    pub wrote: Option<Wrote>,
    /// The extent that the sender was told it can write the message to.
    pub offered: Option<u64>,
}

/// A message for which its sender was asked, and that may be taken over.
pub(crate) struct Requested {
    pub peer: PeerId,
    pub sid: u32,
    pub rts: Rts,
    pub want: u64,
    pub request: Request,
    /// When it was asked for, ticks.
    pub started: u64,
    /// The [pieces](Peer::pieces) that had come from the peer at the last look that found some,
    /// and the time of that look, ticks.
    pub(super) pieces: u64,
    pub(super) looked: u64,
    /// True if the rest was taken over, as soon as the pieces that were claimed have come.
    pub(super) is_over: bool,
}

impl Requested {
    /// Returns whether its receiver has to look after it.
    pub(crate) fn is_watched(&self) -> bool {
        !self.is_over
    }
}

pub(crate) fn errno_of(error: &std::io::Error) -> u32 {
    error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()).unsigned_abs()
}
