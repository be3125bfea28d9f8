//! Memory of regions that were withdrawn while peers were at it through the kernel.
//!
//! `process_vm_writev(2)` goes to an address, whatever lies there by the time. So the addresses stay
//! what they were until each of those peers has said that it is back, or has ended. A peer that does
//! neither keeps them: at most [`DEFERRED_A_PEER`] regions, and those it had been let into before
//! that. Nothing is freed on the word of a connection that was closed: its threads may still be
//! there.

use std::{sync::Arc, time::Duration};

use super::cma::CmaAccess;
use crate::memory::arena::ArenaRef;

/// Regions kept for one peer before it is let into no other.
const DEFERRED_A_PEER: usize = 16;

/// Between looks of an endpoint that sleeps: at first, and at most.
const LOOK_MIN: Duration = Duration::from_millis(1);
const LOOK_MAX: Duration = Duration::from_secs(1);

struct Deferred {
    region: u64,
    /// Keeps the addresses.
    memory: ArenaRef,
    /// Who is, or was when last looked, still there.
    guests: Vec<Arc<CmaAccess>>,
}

/// What one endpoint keeps.
#[derive(Default)]
pub(crate) struct DeferredFree {
    deferred: Vec<Deferred>,
    pause: Duration,
}

impl DeferredFree {
    /// Takes the memory of a region that was withdrawn, as long as any of `guests` is there.
    pub(crate) fn add(&mut self, region: u64, memory: ArenaRef, guests: Vec<Arc<CmaAccess>>) {
        self.deferred.push(Deferred { region, memory, guests });
        self.pause = LOOK_MIN;
        self.look();
    }

    /// Frees what nobody is at any more.
    pub(crate) fn look(&mut self) {
        self.deferred.retain_mut(|region| {
            region.guests.retain(|guest| guest.is_protected(region.region));
            !region.guests.is_empty()
        });
    }

    /// Whether nothing is kept.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.deferred.is_empty()
    }

    /// Bytes of address space that are kept; as many may have memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.deferred.iter().map(|region| region.memory.bytes_max()).sum()
    }

    /// Whether so much is kept for a peer that it is let into nothing more.
    pub(crate) fn is_full_of(&mut self, guest: &Arc<CmaAccess>) -> bool {
        let theirs =
            |region: &&Deferred| region.guests.iter().any(|other| Arc::ptr_eq(other, guest));
        if self.deferred.iter().filter(theirs).count() < DEFERRED_A_PEER {
            return false;
        }
        self.look();
        self.deferred.iter().filter(theirs).count() >= DEFERRED_A_PEER
    }

    /// How long to sleep before the next look; `None` if there is nothing to look at.
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
        // Whoever is still there may write at any time: the addresses are never given back.
        self.deferred.drain(..).for_each(std::mem::forget);
    }
}
