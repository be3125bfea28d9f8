#![allow(unsafe_code)]
//! The one translation stack of this process, of which each endpoint has a share: an account with a
//! limit and an io_uring of its own.
//!
//! It is made with the first share, and goes with the last. A child of `fork(2)` begins with none:
//! its endpoints share another one, and the shares it has inherited translate nothing.
//!
//! **Invariant.** A place that [`CURRENT`] has named is never freed, nor used by another process
//! than the one that made it. So a lock that a thread of the parent held at the fork is not taken
//! in the child.

use std::{
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicPtr, Ordering},
    },
};

use parking_lot::Mutex;
use pinfold_sys::{fork::ForkMark, mem::pin};

use super::{Account, Facility, Lack, OwnHold, OwnMemory, Why, backend::By};
use crate::memory::translate::pincache::{Budget, NoPin};

/// The place of a process's stack.
struct Place {
    mark: ForkMark,
    memory: Mutex<Weak<OwnMemory>>,
}

static CURRENT: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());

/// The place of this process. `None` if there is no memory for one.
fn place(current: &AtomicPtr<Place>) -> Option<&'static Place> {
    let mut at = current.load(Ordering::Acquire);
    loop {
        // SAFETY: null, or a place that is never freed, whose making came before by the release
        // below.
        let place = unsafe { at.as_ref() };
        if let Some(place) = place.filter(|place| !place.mark.is_child()) {
            return Some(place);
        }
        let place = Place { mark: ForkMark::new().ok()?, memory: Mutex::default() };
        let place = Box::into_raw(Box::new(place));
        at = match current.compare_exchange(at, place, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => place,
            Err(other) => {
                // SAFETY: made above, and named nowhere.
                drop(unsafe { Box::from_raw(place) });
                other
            }
        };
    }
}

/// An endpoint's share of the process's translation stack. What it has pinned is unpinned when it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<OwnMemory>,
    account: Account,
}

impl Share {
    /// A share that may have `bytes_max` bytes pinned, while all of the process have at most
    /// `process_bytes_max`, which counts when the stack is made.
    ///
    /// # Errors
    /// No memory is kept pinned here; the reason.
    pub(crate) fn open(bytes_max: u64, process_bytes_max: u64) -> Result<Share, Why> {
        Share::open_at(&CURRENT, bytes_max, process_bytes_max)
    }

    fn open_at(
        current: &AtomicPtr<Place>,
        bytes_max: u64,
        process_bytes_max: u64,
    ) -> Result<Share, Why> {
        let exhausted = Why::Lacks(Facility::Ring, Lack::Exhausted);
        let mut current = place(current).ok_or(exhausted)?.memory.lock();
        let memory = match current.upgrade() {
            Some(memory) => memory,
            None => {
                let made = OwnMemory::with_accounts(Budget::of_bytes(process_bytes_max));
                Arc::new(made.map_err(|_| exhausted)?)
            }
        };
        let standing = memory.standing();
        if let Some(why) = standing.not_kept {
            // If nothing is watched because nothing pins, the lack of the ring may pass.
            return Err(standing.no_ring.filter(|why| why.may_pass()).unwrap_or(why));
        }
        let account = memory.open(bytes_max)?;
        *current = Arc::downgrade(&memory);
        Ok(Share { memory, account })
    }

    /// The ring whose slots [holds](OwnHold::slot) name. `None` where another means pins.
    pub(crate) fn ring(&self) -> Option<Arc<pin::Registered>> {
        match &self.account.by {
            By::Ring(ring) => Some(Arc::clone(ring)),
            By::Lock(_) => None,
        }
    }

    /// As [`OwnMemory::begin`].
    ///
    /// # Errors
    /// As for [`OwnMemory::begin`].
    pub(crate) fn translate(&self, start: u64, len: u64) -> Result<OwnHold, NoPin> {
        self.memory.translate(self.account.id, start, len)
    }

    /// Ends a transfer. Returns whether its memory stays pinned.
    pub(crate) fn end(&self, hold: OwnHold) -> bool {
        self.memory.end_told(hold)
    }

    /// The number of this share among those of the process, from 1 on.
    pub(crate) fn number(&self) -> u64 {
        self.account.id.0
    }

    /// Bytes of this share that are pinned.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.account.gauges.pinned_bytes()
    }

    /// Areas of this share that had to give way to others.
    pub(crate) fn evictions(&self) -> u64 {
        self.account.gauges.evictions()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.close(&self.account);
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
