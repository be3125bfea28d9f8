//! The status of endpoints, published, and read from outside.
//!
//! Each endpoint keeps its counters in a memfd of its own that it maps for writing and that the
//! kernel lets no other process write. There is no name for it in any directory: it is found among
//! the descriptors of its process, as `/proc/PID/fd` shows them, and gone with the process.
//! [`endpoints`] looks there. It only reads, by its own mapping: no process is asked, woken or
//! waited for, and the kernel decides which process may look at which (`PTRACE_MODE_READ_FSCREDS`
//! in `ptrace(2)`).
//!
//! ```
//! # fn main() -> pinfold::Result<()> {
//! let endpoint = pinfold::Endpoint::builder().label("worker").build()?;
//! let all = pinfold::status::endpoints_of(std::process::id())?.endpoints;
//! assert!(all.iter().any(|one| one.label == "worker" && one.peers.is_empty()));
//! # Ok(())
//! # }
//! ```
//!
//! - `layout`: the layout of the page.
//! - `page`: the memory, written and read.
//! - `publish`: the endpoint's side; `tallies`: counters outside its lock.
//! - `counters`, `view`: the types that a reader gets.
//! - `report`: counters of closed endpoints, left for the program that started the process.
//! - `translations`: how memory was found, sent to the program that asked for it.
//! - `decode`: from a copy of a page to those; `discover`: all the pages there are.

mod counters;
mod decode;
mod discover;
mod layout;
mod page;
mod publish;
mod report;
mod tallies;
pub(crate) mod translations;
mod view;

#[cfg(test)]
mod tests;

use crate::sync::{AtomicU64, Ordering};

pub(crate) use self::layout::VERSION;
pub use self::{
    counters::{Counters, OneSidedCount, PathCount, PeerCounters},
    discover::{endpoints, endpoints_of},
    view::{EndpointStatus, PeerStatus, Problem, State, Trouble, View},
};
pub(crate) use self::{
    layout::{flags, state},
    publish::{Identity, Introduction, PeerRecord, Status},
    tallies::{Tallies, UnlockedWords},
};
#[doc(hidden)]
pub use self::{
    report::{DIRECTORY, Report, report, reports},
    translations::SOCKET,
};

/// The credit that one unexpected message costs beside its bytes: the receiver's bookkeeping for
/// it.
pub(crate) const MESSAGE_COST: u64 = 128;

/// A number that one thread writes at a time, the one inside the endpoint's lock, and that any
/// thread may read. It orders nothing.
pub(crate) trait Tally {
    /// Adds to a counter. A load and a store, as cheap as for a number that no other thread reads.
    fn add(&self, more: u64);
    /// Sets a gauge. An unchanged value is not stored again.
    fn set(&self, value: u64);
    fn get(&self) -> u64;
}

impl Tally for AtomicU64 {
    #[inline(always)]
    fn add(&self, more: u64) {
        self.store(self.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline(always)]
    fn set(&self, value: u64) {
        if self.load(Ordering::Relaxed) != value {
            self.store(value, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }
}
