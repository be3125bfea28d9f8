//! `DeferredFree`: memory of regions that were withdrawn while peers were using it through the
//! kernel.
//!
//! `process_vm_writev(2)` writes to an address, no matter which memory is there by then. So the
//! addresses stay reserved until each of those peers has said that it has finished, or has ended. A
//! peer that does neither keeps them: at most [`DEFERRED_A_PEER`] regions, and those it had been
//! let into before that. Nothing is freed on the word of a connection that was closed: its threads
//! may still be copying.

use std::{sync::Arc, time::Duration};

use super::cma::CmaAccess;
use crate::memory::arena::ArenaRef;

/// Number of regions kept for one peer at which it is let into no other.
const DEFERRED_A_PEER: usize = 16;

/// Time between looks of an endpoint that sleeps: at first, and at most.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

struct Deferred {
    region: u64,
    /// Keeps the addresses reserved.
    memory: ArenaRef,
    /// Peers that are still using the memory, or were at the last look.
    guests: Vec<Arc<CmaAccess>>,
}

/// Memory that one endpoint keeps for its guests.
#[derive(Default)]
pub(crate) struct DeferredFree {
    deferred: Vec<Deferred>,
    pause: Duration,
}

impl DeferredFree {
    /// Takes the memory of a region that was withdrawn, for as long as any of `guests` uses it.
    pub(crate) fn add(&mut self, region: u64, memory: ArenaRef, guests: Vec<Arc<CmaAccess>>) {
        self.deferred.push(Deferred { region, memory, guests });
        self.pause = LOOK_MIN;
        self.look();
    }

    /// Frees the memory that no peer uses any more.
    pub(crate) fn look(&mut self) {
        self.deferred.retain_mut(|region| {
            region.guests.retain(|guest| guest.is_protected(region.region));
            !region.guests.is_empty()
        });
    }

    /// Returns whether nothing is kept.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.deferred.is_empty()
    }

    /// Bytes of address space that are kept; as many bytes of memory may be behind them.
    pub(crate) fn bytes(&self) -> u64 {
        self.deferred.iter().map(|region| region.memory.bytes_max()).sum()
    }

    /// Returns whether so much is kept for a peer that it is let into nothing more.
    pub(crate) fn is_full_of(&mut self, guest: &Arc<CmaAccess>) -> bool {
        let theirs =
            |region: &&Deferred| region.guests.iter().any(|other| Arc::ptr_eq(other, guest));
        if self.deferred.iter().filter(theirs).count() < DEFERRED_A_PEER {
            return false;
        }
        self.look();
        self.deferred.iter().filter(theirs).count() >= DEFERRED_A_PEER
    }

    /// Time to sleep before the next look; `None` if there is nothing to look at.
    pub(crate) fn pause(&mut self) -> Option<Duration> {
        self.look();
        if self.deferred.is_empty() {
            return None;
        }
        let pause = self.pause;
        self.pause = (2 * pause).min(LOOK_MAX);
        Some(pause)
    }
}

impl Drop for DeferredFree {
    fn drop(&mut self) {
        self.look();
        // A peer that still uses the memory may write at any time: the addresses are never given
        // back.
        self.deferred.drain(..).for_each(std::mem::forget);
    }
}
