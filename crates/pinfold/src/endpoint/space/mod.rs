//! Memory by address: a peer reads, writes and changes memory that a process has exposed of its
//! own, wherever that lies: heap, stacks, globals, mapped files (the remote memory write of PM 1.2,
//! Tezuka and others, *Pin-down Cache*, section 2).
//!
//! - `owner`: [`Exposed`], the exposed memory, and the right to end the exposure. `agent`: it
//!   answers peers that need the owner: it translates addresses, and copies where nothing else can.
//!   `crew`: its threads.
//! - `remote`: [`RemoteSpace`], the memory as a peer uses it. `ways`: the ways to it, and which one
//!   is taken. `owned`: operations with a buffer of their own, and atomic ones. `lookaside`: the
//!   addresses that it knows. `served`: operations by the agent. `flag`: the word that says whether
//!   it stands.
//!
//! # Which way
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
//! Words are changed by way 1, and otherwise by the agent ([`owned`]).
//!
//! The first access to a page goes by 2 or 3, whatever it is; nothing waits for a translation.
//!
//! # Never stale
//!
//! Ways 2 and 3 keep nothing. Mapped memory keeps its meaning: the owner keeps an extent of an
//! arena from when it was handed over until the exposure ends, so its addresses cannot come to mean
//! anything else. The end is seen by all: a thread that uses the memory, by any way, says so before
//! it looks whether the exposure stands ([`hazard`](crate::transport::shm::hazard)), and the owner
//! waits for those threads.

mod agent;
mod crew;
mod flag;
mod lookaside;
mod owned;
mod owner;
mod remote;
mod served;
mod ways;

pub(crate) use self::flag::Flag;
pub use self::{owner::Exposed, remote::RemoteSpace};
