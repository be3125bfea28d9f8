//! One-sided operations: memory that peers read, write and change by atomic operations while its
//! owner does something else.
//!
//! Memory of the owner:
//!
//! - `region`: [`Region`], memory of the library's, which can be handed over.
//! - `exposed`: [`Exposed`], memory of the program's by its addresses, wherever that lies: heap,
//!   stacks, globals, mapped files (the remote memory write of PM 1.2, Tezuka and others, *Pin-down
//!   Cache*, section 2). `registered`: [`Registered`], a buffer of the program's.
//! - `key`: [`RegionKey`], which a peer needs for any of them. `agent`: it answers peers that need
//!   the owner of addresses: it translates them, and copies where nothing else can. `crew`: its
//!   threads.
//!
//! The memory as a peer uses it:
//!
//! - `remote`: [`Remote`], which has the operations, by offsets or by addresses. `owned`: requests,
//!   which have a buffer of their own. `request`: reads and writes by a copy engine. `atomics`:
//!   words.
//! - `access`: the ways to the memory behind one face. `mapped`: it is mapped here; `cma`: the
//!   kernel copies; `served`: the owner of a region does all, for another host; `ways`: memory by
//!   address, each part in its own way.
//! - Of `ways`: `lookaside`, the addresses that it knows; `flag`, the word that says whether they
//!   stand; `transfer`, operations by the agent.
//!
//! # Regions
//!
//! A region's memory is a file of its own, which only those peers are handed that show its key. So
//! the kernel keeps all others out, keeps those in bounds that have it, and keeps them from writing
//! if they may only read. Operations are loads and stores of the peer's own processor, without the
//! owner's help and without a system call.
//!
//! A peer that cannot map it, but may read and write the owner's memory, is told the address. That
//! keeps out nothing: a process that may write some of another's memory may write all of it. Bounds
//! and rights are then the peer's own business, and hold for one that keeps to the rules.
//!
//! A peer on another host asks the owner's endpoint for each operation (`protocol/rma/served.rs`),
//! which needs the owner to make progress. The owner checks key, rights and bounds each time.
//!
//! # Addresses
//!
//! 1. *Mapped*: the address lies in an arena of the owner's. Its agent said so, when this side
//!    asked for the page, and handed the memory over. Loads and stores.
//! 2. *By the kernel*: `process_vm_readv(2)`, `process_vm_writev(2)`. The kernel looks up the
//!    memory behind the address when it copies, so it finds what is there then. It also breaks
//!    copy-on-write and pages in, on the time of the copying process.
//! 3. *Served*: where the kernel denies that, the agent copies, and the bytes go through the ring.
//!    For pages that are not in memory, the agent has a thread of its own page them in; others are
//!    served meanwhile.
//!
//! Words are changed by way 1, and otherwise by the agent. The first access to a page goes by 2 or
//! 3, whatever it is; nothing waits for a translation. Ways 2 and 3 keep nothing, so they are never
//! stale. Mapped memory keeps its meaning: the owner keeps an extent of an arena from when it was
//! handed over until the exposure ends, so its addresses cannot come to mean anything else.
//!
//! # Revocation
//!
//! A word that its users can only read says whether memory still stands. They look at it after each
//! operation: one that succeeds had its effect before the memory was revoked. The owner sets the
//! word, has every processor run a barrier (`membarrier(2)`; pairs without it use a fence in each
//! operation), and then moves the contents of a region to other memory. A peer that still writes
//! the old memory, late or malicious, changes nothing.
//!
//! The kernel copies at an address, also for a peer that is late. So a peer says in memory that
//! both share which memory it uses ([`hazard`](crate::transport::shm::hazard)): the owner of a
//! region keeps the old addresses until it has left (`protocol/rma/deferred_free.rs`); the owner of
//! addresses waits for it.

mod access;
mod agent;
pub(crate) mod atomics;
mod cma;
mod crew;
mod exposed;
mod flag;
mod key;
mod lookaside;
mod mapped;
mod open;
mod owned;
mod region;
mod registered;
mod remote;
mod request;
mod served;
mod transfer;
mod ways;

pub use self::{
    atomics::{AtomicChange, AtomicWord},
    exposed::Exposed,
    key::RegionKey,
    open::OpenRequest,
    owned::{AtomicRequest, CopyRequest},
    region::Region,
    registered::Registered,
    remote::{Addressing, ByAddress, ByOffset, Remote, RemoteRegion, RemoteSpace},
    request::RegionRequest,
};
pub use crate::memory::translate::Rights;
