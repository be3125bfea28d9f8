//! Zero-copy messages between Linux processes, from and into the memory they already use.
//!
//! An [`Endpoint`] connects to others and exchanges tagged messages with them. Each message takes
//! the [`Path`] that is cheapest for it on this machine now, and every completion carries a
//! [`Receipt`] that says which it was and why no other.
//!
//! The modules, top to bottom; each uses only those below it:
//!
//! - `endpoint`: the types that programs hold: endpoints, requests, completion queues, messages,
//!   views, regions.
//! - `worker`: the state under the lock: posting, tag matching, progress, peers; and waiting.
//! - `protocol`: rendezvous, handoff, active messages, remote memory access.
//! - `transport`: how bytes reach a peer: greeting (`transport::local`), shared-memory lanes
//!   (`transport::shm`), other hosts (`transport::tcp`).
//! - `memory`: arenas, which peers can map; `translate`: translations and pins that are kept;
//!   `reassembly`: messages that arrive in pieces, moved, mapped or copied into a row.
//! - `copy`: copying and zeroing blocks of memory, each by the algorithm that suits it.
//! - `policy`: `route` (the cost model, the choice of path, receipts), how long to spin and sleep.
//! - [`status`]: the status that endpoints publish, and reading it from outside.
//! - `wire`: the bytes two processes share; nothing else knows an offset.
//! - `sync`: the atomics, and a lock that is almost free for one thread.
//! - `persisted`: files that are kept from run to run.
//! - `failpoint`: numbered points at which tests kill the process.
//! - `fuzzing`: the decoders of peers' bytes, for a fuzzer.

// Under loom only the modelled items are compiled, and most of their callers are not.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(all(test, not(loom)))]
mod again;
#[cfg(all(not(loom), not(feature = "internals")))]
#[allow(dead_code, unused_imports)] // The rest is for those who measure.
mod copy;
#[cfg(all(not(loom), feature = "internals"))]
pub mod copy;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod error;
#[cfg(all(not(loom), not(feature = "internals")))]
#[allow(dead_code)] // The names of the points are for tests.
mod failpoint;
#[cfg(all(not(loom), feature = "internals"))]
pub mod failpoint;
#[cfg(all(not(loom), any(test, all(feature = "internals", feature = "tls"))))]
pub mod fuzzing;
mod memory;
#[cfg(not(loom))]
mod persisted;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod protocol;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
mod scoped;
#[cfg(not(loom))]
pub mod status;
mod sync;
mod transport;
mod wire;
#[cfg(not(loom))]
mod worker;

use std::fmt;

#[cfg(not(loom))]
pub use self::{
    copy::{
        Algorithm, Count as CopyCount, Counts as CopyCounts,
        engine::{CopyEngine, EngineConfig, EngineCounts, Shutdown},
    },
    endpoint::{
        AcceptRequest, Active, Addressing, Answer, AtomicChange, AtomicRequest, AtomicWord,
        Builder, ByAddress, ByOffset, Claimed, Completed, Completion, CompletionQueue,
        ConnectRequest, CopyRequest, DonatedBuf, Endpoint, Envelope, Exposed, Handoff,
        HandoffVectored, Message, MessageRequest, MultiReceived, MultiRecv, NotGiven, OpenRequest,
        OwnedBuf, OwnedBufMut, PeerInfo, Progress, Queueable, Received, RecvRequest, Region,
        RegionKey, RegionRequest, Registered, Remote, RemoteRegion, RemoteSpace, Reply, Rights,
        Scope, ScopedRecv, ScopedSend, SendRequest, Source, TagMatch, View, ViewRequest,
    },
    error::{Error, Gone, NotHandled, Outstanding, Result, Ungreeted, Untaken},
    memory::{
        arena::{Arena, ArenaBuf, ArenaBuilder, ArenaStats, SharedArena, SharedBuf},
        reassembly::fold::{
            Place as FoldPlace, Receipt as FoldReceipt, Unmoved, Why as NotInPlace,
        },
        translate::TranslationLevel,
    },
    policy::route::{Path, PathSet, Receipt, Refusal, SendDriver, SendMode},
    status::{Counters, OneSidedCount, PathCount},
    transport::{
        local::{Access, Who},
        versions::Versions,
    },
};
#[cfg(all(not(loom), feature = "internals"))]
pub use self::{
    memory::{reassembly, translate},
    policy::route,
    wire::layout::{LANE_GROWTH_MAX, PAIR_BYTES_MIN},
    worker::config::LANE_BYTES_MAX,
};

/// Names a peer of one endpoint. Never used again within the endpoint's life.
///
/// One number, and not two of half its width: a pattern or a result that carries one passes in
/// registers, and its parts are never read wider than they were written, which would wait for all
/// stores before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u64);

impl PeerId {
    pub(crate) const fn new(index: u32, generation: u32) -> PeerId {
        PeerId((generation as u64) << 32 | index as u64)
    }

    /// Its place among the peers, which others have after it.
    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }

    /// The number of peers that had the place before.
    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The identifier as a number, for programs and languages that keep it as one. Never
    /// `u64::MAX`.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The identifier that [`PeerId::to_bits`] made the number of. Any other number names no peer.
    pub const fn from_bits(bits: u64) -> PeerId {
        PeerId(bits)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId {{ index: {}, generation: {} }}", self.index(), self.generation())
    }
}
