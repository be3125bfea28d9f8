//! Zero-copy messages between Linux processes, from and into the memory they already use.
//!
//! An [`Endpoint`] connects to others and exchanges tagged messages with them. Each message takes
//! the [`Path`] that is cheapest for it on this machine now, and every completion carries a
//! [`Receipt`] that says which it was and why no other.
//!
//! The modules, top to bottom; each uses only those below it:
//!
//! - `endpoint`: endpoints, posting, tag matching, completing, waiting.
//! - [`status`]: what endpoints tell about themselves, and reading it from outside.
//! - [`route`]: the cost model, its calibration, the choice of path, receipts.
//! - [`translate`]: translations and pins that are kept, and how they are given up.
//! - `arena`: memory of this process that its peers can map.
//! - [`reassembly`]: messages that arrive in pieces: pages for them, addresses in a row, and what to
//!   move, map or copy there.
//! - [`blockmem`]: copying and zeroing blocks of memory, each by the algorithm that suits it.
//! - `link`: how bytes reach a peer: greeting (`link::local`), shared-memory lanes (`link::shm`), other
//!   hosts (`link::tcp`).
//! - `wire`: the bytes two processes share; nothing else knows an offset.
//! - `sync`: the atomics, and a lock that is almost free for one thread.
//! - `kept`: files that are kept from run to run.
//! - `rest`: when to try again what failed.
//! - `failpoint`: numbered points at which tests kill the process.
//! - `fuzzing`: the decoders of peers' bytes, for a fuzzer.

// Under loom only what is modelled is compiled, and most of its callers are not.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(not(loom))]
mod arena;
#[cfg(not(loom))]
pub mod blockmem;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
pub mod error;
#[cfg(not(loom))]
pub mod failpoint;
#[cfg(all(not(loom), any(test, feature = "fuzzing")))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(not(loom))]
mod kept;
mod link;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
pub mod reassembly;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
pub mod route;
#[cfg(not(loom))]
mod scoped;
#[cfg(not(loom))]
pub mod status;
mod sync;
pub mod translate;
mod wire;

#[cfg(not(loom))]
pub use self::{
    arena::{Arena, ArenaBuf, ArenaBuilder, ArenaStats, SharedArena, SharedBuf},
    endpoint::{
        Active, Answer, AtomicWord, Builder, Endpoint, Envelope, Exposed, Gift, Handoff,
        HandoffVectored, Message, MessageRequest, NotGiven, Outstanding, OwnedBuf, OwnedBufMut,
        PeerInfo, Progress, Received, RecvRequest, Region, RegionKey, RegionRequest, RemoteRegion,
        RemoteSpace, Reply, Rights, Scope, ScopedRecv, ScopedSend, SendRequest, Source, TagMatch,
        View, ViewRequest,
    },
    error::{Error, Gone, NotHandled, Result, Ungreeted, Untaken},
    link::local::{Access, Who},
    route::{Path, PathSet, Receipt, Refusal, SendDriver, SendMode},
    status::{Counters, OneSidedCount, PathCount},
};

/// Names a peer of one endpoint. Never used again within the endpoint's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}
