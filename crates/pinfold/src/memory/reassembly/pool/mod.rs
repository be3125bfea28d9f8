//! The page pool: memory for unexpected messages.
//!
//! - [`Pages`]: the memory, from the heap ([`HeapPages`]), private and movable ([`AnonPages`]), or
//!   from a memfd ([`MemfdPages`], [`SealedPages`]).
//! - `account`: the pages that are taken, their owners, and the pages with memory behind them.
//!   Pure.
//! - [`Pool`]: both together, for many threads.
//! - [`Filling`], [`Filled`]: the pages that a message has of it, before and after all of it has
//!   arrived.
//!
//! # Nothing is left behind
//!
//! The old contents of a page are never seen by its next owner. Clearing pages beforehand would
//! cost as much as a copy, and nearly all of it would be overwritten at once. So the pool knows for
//! each page how far anything may have been written since it was zero, and a message becomes
//! readable by [`Filling::finish`] alone, which clears from where the message ends to there: most
//! often some bytes of its last page. A message that breaks off is never readable at all.
//!
//! The pool's free pages do hold old messages. So the descriptor of a pool is only for processes
//! that may read the messages of all its owners.

mod account;
mod anon;
mod holding;
mod pages;
mod shared;
#[cfg(test)]
mod tests;

use std::io;

use thiserror::Error;

pub use self::{
    account::Piece,
    anon::AnonPages,
    holding::{Filled, Filling, Span, TooLong},
    pages::{HeapPages, MemfdPages, Pages, SealedPages, Unshared},
    shared::Pool,
};

/// The owner that pages are taken for: a number that the caller gives each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u64);

/// The reason why no pages were given out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The pool has fewer free pages. Wait until some come back.
    #[error(
        "the page pool is exhausted: {asked} pages are wanted, {free} of {budget} are free, and the \
         owner has {own}"
    )]
    Exhausted {
        /// Pages wanted.
        asked: u64,
        /// Pages that are free.
        free: u32,
        /// Pages there are, and never more.
        budget: u32,
        /// Pages that the owner has taken already.
        own: u32,
    },
    /// The system has no memory for pages that were not in use before.
    #[error("no memory for the page pool: {0}")]
    NoMemory(#[source] io::Error),
}

impl TakeError {
    /// Returns whether the error goes away when others give pages back.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, TakeError::Exhausted { .. })
    }
}

/// The fill level of a pool.
///
/// Identity: `taken <= pages`, and `taken` is the sum over all owners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCount {
    /// Pages there are: the budget.
    pub pages: u32,
    /// Pages that are taken.
    pub taken: u32,
    /// Pieces that they are in.
    pub pieces: u32,
    /// Pages that have memory.
    pub committed: u32,
    /// Blocks of 2 MiB that are huge pages.
    pub huge: u32,
    /// Owners that have some.
    pub owners: u32,
}
