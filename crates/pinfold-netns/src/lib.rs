//! Networks within this machine, as a ground for measurements and tests; the library itself uses
//! none of it.
//!
//! - [`Namespace`]: a network of its own, which lives as long as a descriptor, a thread or a
//!   process holds it. It has no name that could stay behind. Programs within can have a `/sys`
//!   that shows it.
//! - [`Link`]: an interface in one; its state, addresses, neighbours, counters and losses.
//! - [`veth::pair`]: a cable between two. [`bridge::create`]: a switch for more.
//! - [`user`]: the way for a process without privileges to be allowed all of this.
//!
//! The kernel is spoken to by `rtnetlink(7)`; no program is run. All of it takes `CAP_SYS_ADMIN`
//! and `CAP_NET_ADMIN`, which root has, and anybody within a user namespace of their own.

pub mod bridge;
mod counters;
mod error;
mod link;
mod loss;
mod namespace;
mod route;
mod sysfs;
#[cfg(test)]
mod tests;
pub mod user;
pub mod veth;

pub use self::{
    counters::Counters,
    error::{Error, Reason},
    link::{Hardware, Link, NOBODY},
    namespace::Namespace,
};
