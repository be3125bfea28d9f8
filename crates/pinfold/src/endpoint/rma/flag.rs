#![allow(unsafe_code)]
//! The word that says whether a peer's memory is still exposed, where it is mapped here.
//!
//! **Invariant.** The loan is given back when this is dropped, not before, and the endpoint is kept
//! until then. The word is reached atomically.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering, fence},
};

use crate::{
    PeerId, memory::imported_extents::Loan, protocol::rma::translate, wire::rendezvous::Exported,
    worker::shared::Shared,
};

pub(super) struct Flag {
    loan: Loan,
    /// The value of the word as long as the memory is exposed.
    stamp: u64,
    shared: Arc<Shared>,
}

impl Flag {
    /// The word there, if the peer has handed it over.
    pub(super) fn new(
        shared: &Arc<Shared>,
        peer: PeerId,
        exported: Exported,
        stamp: u64,
    ) -> Option<Flag> {
        let mut engine = shared.enter().ok()?;
        let loan = translate::lend_flag(&mut engine, peer, exported)?;
        drop(engine);
        Some(Flag { loan, stamp, shared: Arc::clone(shared) })
    }

    /// True if the memory was still exposed after all this thread's accesses.
    pub(super) fn stands(&self) -> bool {
        // The other half is the owner's barrier, when the exposure ends.
        fence(Ordering::SeqCst);
        // SAFETY: given back on drop only, and the engine is kept.
        let held = unsafe { self.loan.held() };
        held.mapping.get(self.loan.offset, 8).is_some_and(|at| {
            // SAFETY: eight bytes of the mapping, at a multiple of 8, reached atomically.
            let word = unsafe { AtomicU64::from_ptr(at.cast_mut().cast()) };
            word.load(Ordering::Acquire) == self.stamp
        })
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        if let Ok(mut engine) = self.shared.enter() {
            engine.core.imported.give_back(&self.loan);
        }
    }
}
