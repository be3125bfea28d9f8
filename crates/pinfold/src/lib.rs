//! Messages between Linux programs, straight from and into the memory they already use.
//!
//! ```
//! use pinfold::{DraftBuf, Endpoint, Path};
//!
//! fn main() -> pinfold::Result<()> {
//!     let name = format!("local:front-{}", std::process::id());
//!     let server = Endpoint::listen(&name)?;
//!     let client = std::thread::spawn(move || -> pinfold::Result<()> {
//!         let client = Endpoint::new()?;
//!         let server = client.connect(&name)?;
//!         client.send(server, 7, b"a message, under tag 7")?;
//!         let mut frame = DraftBuf::new(16 << 20)?;
//!         frame.fill(42);
//!         client.give(server, 8, frame.freeze()?)?; // The memory itself: nothing is copied.
//!         assert_eq!(&*client.recv(server, 9)?, b"thanks");
//!         Ok(())
//!     });
//!     let client_peer = server.accept()?;
//!     assert_eq!(&*server.recv(client_peer, 7)?, b"a message, under tag 7");
//!     let frame = server.recv_view(client_peer, 8)?;
//!     assert_eq!(frame.bytes().map(|bytes| bytes[0]), Some(42));
//!     assert_eq!(frame.receipt().path, Path::Handoff); // Each transfer says how it went.
//!     server.send(client_peer, 9, b"thanks")?;
//!     client.join().expect("the client")
//! }
//! ```
//!
//! # Which of them
//!
//! | the data | take | copies |
//! |---|---|---|
//! | lie anywhere, any size, any host | a *message*: [`Endpoint::send`], [`Endpoint::recv`] | one; two if short |
//! | long, sent again and again from the same memory | the same, out of an [`Arena`] | one, by the receiver alone |
//! | made once, then only read, here and there or further on | a *handoff*: [`Endpoint::give`] of an [`ArenaBuf`], or of a [`FrozenBuf`] that nobody can write any more; [`Endpoint::recv_view`] | none |
//! | a state that stays and that several look at or change | a [`Region`], by a key; atomic operations on its words | one, by its user; the owner need not answer |
//! | memory of a peer's that cannot be moved to a region | *by address*: [`Endpoint::expose`], [`RemoteSpace`] | one, by mapping, kernel or the owner's agent |
//! | one stream with many readers, which come and go | a [`topic`]: [`Publisher`](topic::Publisher), [`Subscriber`](topic::Subscriber) | none |
//! | a question that a program answers | an *active message*: [`Endpoint::handle`], [`Endpoint::request`] | as a message |
//!
//! # How calls are named
//!
//! `recv` waits; `recv_timeout` waits at most so long; `try_recv_into` never waits;
//! `recv_request` is a request: it can be waited for, polled, cancelled, awaited as a future, or
//! left to a [`CompletionQueue`], which takes requests of any number of endpoints and is waited on
//! in one place. `_owned` takes a buffer along and gives it back ([`OwnedBuf`]: vectors, boxes,
//! `Arc<[u8]>`, buffers of arenas, and `Bytes` with the feature `bytes`); within an
//! [`Endpoint::scope`] it may be borrowed. Receives name a peer or `..`, and a tag, `(tag, bits to
//! ignore)` or `..`.
//!
//! # Concepts
//!
//! - [`concepts::arenas`]: memory that others can map; what they see of it.
//! - [`concepts::receipts`]: which path a transfer took, why no faster one, and `strict`.
//! - [`concepts::waiting`]: blocking calls, event loops, futures, queues, threads of its own.
//! - [`concepts::death`]: peers that end, connections that break, endpoints that close.
//! - [`concepts::security`]: who may connect, what a peer can see, and what it cannot do.
//!
//! Spans and events of `tracing` are under the targets `pinfold::connections` and
//! `pinfold::messages` (messages of 16 KiB and more).
//!
//! # Modules within
//!
//! Each uses only those below it:
//!
//! - [`topic`]: publish and subscribe.
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
//! - `persisted`: files that are kept from run to run; `failpoint`: points at which tests kill the
//!   process; `fuzzing`: the decoders of peers' bytes, for a fuzzer.

// Under loom only the modelled items are compiled, and most of their callers are not.
#![cfg_attr(loom, allow(dead_code, unused_imports))]

#[cfg(all(test, not(loom)))]
mod again;
#[cfg(all(not(loom), any(doc, doctest, test)))]
pub mod concepts;
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
#[cfg(not(loom))]
pub mod topic;
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
        AcceptRequest, Active, Addressing, AtomicChange, AtomicRequest, AtomicWord, Builder,
        ByAddress, ByOffset, Claimed, Completed, Completion, CompletionQueue, ConnectRequest,
        CopyRequest, DonatedBuf, Endpoint, Envelope, Exposed, Handoff, HandoffVectored, Message,
        MessageRequest, MultiReceived, MultiRecv, NotGiven, OpenRequest, OwnedBuf, OwnedBufMut,
        PeerInfo, ProbeRequest, Progress, Queueable, Received, RecvRequest, Region, RegionKey,
        RegionRequest, Registered, Remote, RemoteRegion, RemoteSpace, Replier, Reply, Rights,
        Scope, ScopedRecv, ScopedSend, SendRequest, Source, TagMatch, View, ViewRequest,
    },
    error::{Error, Gone, NotHandled, Outstanding, Result, Ungreeted, Untaken},
    memory::{
        arena::{
            Arena, ArenaBuf, ArenaBuilder, ArenaStats, DraftBuf, FrozenBuf, SharedArena, SharedBuf,
        },
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
///
/// ```
/// use std::collections::HashMap;
/// use pinfold::{Endpoint, PeerId};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-peer-id-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut names = HashMap::from([(peer, "the caller")]);
/// endpoint.send(itself, 1, b"hello")?;
/// let from: PeerId = endpoint.recv(.., 1)?.peer();
/// assert_eq!(names.remove(&from), Some("the caller"));
/// assert_eq!(PeerId::from_bits(from.to_bits()), from);
/// # Ok(())
/// # }
/// ```
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
