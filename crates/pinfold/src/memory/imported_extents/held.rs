#![allow(unsafe_code)]
//! A mapping, and the notes by which parts of it are lent out.
//!
//! **Invariant.** A [`Loan`] points to a [`Held`] that stays, in place, until the loan has been
//! given back or the endpoint is gone. The code that makes a loan counts it, and lets go of no
//! [`Held`] of which loans are counted.

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use crate::{memory::arena::Mapping, transport::shm::lane::Tie};

/// A mapping, and whether its contents are still given.
pub(crate) struct Held {
    /// Its place in the back end.
    pub(super) slot: u32,
    pub mapping: Arc<Mapping>,
    pub tie: Tie,
    /// True if the peer is gone, as far as this side has noticed.
    pub orphaned: AtomicBool,
    /// Loans out of it. Written within the engine only.
    loans: AtomicU32,
}

impl Held {
    pub(super) fn new(slot: u32, mapping: Mapping, tie: Tie) -> Held {
        let (orphaned, loans) = (AtomicBool::new(false), AtomicU32::new(0));
        Held { slot, mapping: Arc::new(mapping), tie, orphaned, loans }
    }

    pub(super) fn loans(&self) -> u32 {
        self.loans.load(Ordering::Relaxed)
    }

    #[inline]
    fn add_loan(&self) {
        self.loans.store(self.loans() + 1, Ordering::Relaxed);
    }

    /// Ends a loan. Returns how many are left.
    #[inline]
    pub(super) fn end_loan(&self) -> u32 {
        let left = self.loans().saturating_sub(1);
        self.loans.store(left, Ordering::Relaxed);
        left
    }

    /// Returns whether another thread copies out of it or into it.
    pub(super) fn is_copied(&self) -> bool {
        Arc::strong_count(&self.mapping) > 1
    }
}

/// A part of a peer's memory that is looked at here. No more than a note: it is given back by hand.
#[derive(Debug)]
pub(crate) struct Loan {
    held: NonNull<Held>,
    pub offset: u64,
    /// The peer's number for the message.
    pub sid: u32,
    /// Its number among the donated buffers whose return is counted, or 0.
    pub number: u64,
}

// SAFETY: the mapping it points to can be used on any thread, and lives as long as the endpoint
// needs it.
unsafe impl Send for Loan {}
// SAFETY: as for `Send`.
unsafe impl Sync for Loan {}

impl Loan {
    /// Counts a loan of the bytes at `offset`, for message `sid`.
    #[inline(always)]
    pub(super) fn of(held: &Held, offset: u64, sid: u32) -> Loan {
        held.add_loan();
        Loan { held: NonNull::from(held), offset, sid, number: 0 }
    }

    /// Returns whether the loan is of this mapping.
    #[inline(always)]
    pub(super) fn is_of(&self, held: &Held) -> bool {
        NonNull::from(held) == self.held
    }

    /// The mapping that was lent.
    ///
    /// # Safety
    /// The loan has not been given back, and its endpoint's engine exists, as long as it is used.
    #[inline]
    pub(crate) unsafe fn held(&self) -> &Held {
        // SAFETY: stays in place by the module's invariant and by contract.
        unsafe { self.held.as_ref() }
    }
}
