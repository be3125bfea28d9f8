//! Messages that are copied out of their senders' memory: how far each side's part in it is.

use std::sync::Arc;

use crate::{
    PeerId,
    copy::Largest,
    memory::{arena::Mapping, cma_memory::Remote},
    protocol::handoff::vectored::ExportedParts,
    wire::rendezvous::{Place, Wrote},
};

/// A copy into the receiver's memory.
pub(crate) struct Putting {
    pub want: u64,
    /// Where it goes, as the receiver said.
    pub place: Place,
    pub to: There,
    /// Whether the receiver took it to be mapped here.
    pub offered: bool,
    pub claim: u32,
    pub generation: u16,
    pub chunk_shift: u8,
    pub done: u32,
    pub copied: Copied,
}

/// What this side has copied of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copied {
    /// Bytes at user level.
    pub user: u64,
    /// Bytes by the kernel.
    pub kernel: u64,
    pub by: Largest,
}

/// A message that is being taken out of its sender's memory.
pub(crate) struct Get {
    pub peer: PeerId,
    pub sid: u32,
    pub tag: u64,
    /// The message's true length.
    pub len: u64,
    /// Bytes wanted: the length, or the room if that is less.
    pub want: u64,
    pub source: There,
    /// Whether the sender took it to be mapped here.
    pub offered: bool,
    /// Whether the sender gave its memory away.
    pub given: bool,
    /// Bytes this side has copied.
    pub copied: u64,
    pub by: Largest,
    /// When it began, ticks.
    pub started: u64,
    /// Ns since then, or since something else came meanwhile.
    pub took_ns: u64,
    pub shared: Option<SharedGet>,
    /// Whether this side reads, or leaves it all to the sender.
    pub reads: bool,
    /// What stopped this side, once something has.
    pub errno: u32,
    /// What has kept this side from reading, if it is to come in another way.
    pub otherwise: u32,
    /// Bytes, from the one to the other, that the sender had claimed and could not write.
    pub left: Option<(u64, u64)>,
    /// Whether memory of an arena was not there that should have been: then all of it comes again,
    /// through the ring.
    pub again: bool,
}

impl Get {
    /// Whether the sender may be writing to this receive's memory.
    pub(crate) fn awaits_sender(&self) -> bool {
        self.shared.is_some_and(|shared| shared.wrote.is_none() && shared.theirs != Some(0))
    }
}

/// Memory of the other side: where a message is, or where it goes.
pub(crate) enum There {
    /// Memory that the kernel reaches.
    Remote(Remote),
    /// In an arena of the peer's, mapped here, from `offset` on.
    Mapped { mapping: Arc<Mapping>, offset: u64 },
    /// The same in several parts.
    ExportedParts(ExportedParts),
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
    /// Whether this side found nothing more to claim, and what the sender had claimed.
    pub theirs: Option<u64>,
    /// What the sender reported.
    pub wrote: Option<Wrote>,
    /// The extent that the sender was told it can write the message to.
    pub offered: Option<u64>,
}
