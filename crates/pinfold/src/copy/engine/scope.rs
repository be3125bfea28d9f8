#![allow(unsafe_code)]
//! Copies in flight between borrowed memory.
//!
//! **Invariant.** A copy submitted in a scope borrows its memory for `'env`, which outlives the
//! scope; [`CopyEngine::scope`](super::CopyEngine::scope) does not return, nor unwind, before every
//! copy submitted in it has ended. The scope keeps their tickets itself, so leaking a handle
//! changes nothing.

use std::{cell::RefCell, marker::PhantomData, sync::Arc};

use super::{
    super::BlockError,
    Work,
    core::Core,
    request::{Cancelled, Ticket},
};
use crate::scoped;

/// The scope of copies between borrowed memory; see
/// [`CopyEngine::scope`](super::CopyEngine::scope).
pub struct CopyScope<'scope, 'env: 'scope> {
    core: Arc<Core>,
    open: RefCell<Vec<Ticket>>,
    // Invariant in both, as in `std::thread::Scope`: neither may shrink.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope and ends all that it submitted.
pub(super) fn run<'env, R>(
    core: &Arc<Core>,
    f: impl for<'scope> FnOnce(&'scope CopyScope<'scope, 'env>) -> R,
) -> R {
    let scope = CopyScope {
        core: Arc::clone(core),
        open: RefCell::new(Vec::new()),
        _scope: PhantomData,
        _env: PhantomData,
    };
    let end = |unwinding| {
        let open = scope.open.take();
        if unwinding {
            open.iter().for_each(|ticket| {
                ticket.cancel();
            });
        }
        open.iter().for_each(|ticket| {
            let _ = ticket.wait();
        });
    };
    scoped::run(|| f(&scope), end)
}

impl<'scope, 'env> CopyScope<'scope, 'env> {
    /// Submits a copy. It goes on until waited for, at the latest at the scope's end.
    ///
    /// # Errors
    /// [`BlockError::Lengths`] if the two differ in length; nothing is copied.
    pub fn copy(
        &'scope self,
        to: &'env mut [u8],
        from: &'env [u8],
    ) -> Result<ScopedCopy<'env>, BlockError> {
        if to.len() != from.len() {
            return Err(BlockError::Lengths { from: from.len(), to: to.len() });
        }
        let work = Work::copy(from.as_ptr(), to.as_mut_ptr(), to.len());
        Ok(self.submit(work))
    }

    /// Submits a block to be zeroed, likewise.
    pub fn zero(&'scope self, to: &'env mut [u8]) -> ScopedCopy<'env> {
        self.submit(Work::zero(to.as_mut_ptr(), to.len()))
    }

    fn submit(&self, work: Work) -> ScopedCopy<'env> {
        // SAFETY: borrowed for `'env`, within which the copy ends: at the latest in `run`.
        let ticket = unsafe { Ticket::submit(&self.core, work.planned()) };
        let mut open = self.open.borrow_mut();
        // A request that has ended need not be kept.
        open.retain(|ticket| ticket.poll_end().is_none());
        open.push(ticket.clone());
        ScopedCopy { ticket, ptr: work.to(), len: work.len(), _env: PhantomData }
    }
}

/// A copy submitted in a scope.
#[derive(Debug)]
pub struct ScopedCopy<'env> {
    ticket: Ticket,
    ptr: *mut u8,
    len: usize,
    _env: PhantomData<&'env mut [u8]>,
}

impl<'env> ScopedCopy<'env> {
    /// Waits for its end, and gives the destination back.
    pub fn wait(self) -> (Result<(), Cancelled>, &'env mut [u8]) {
        let end = self.ticket.wait();
        // SAFETY: the copy has ended, and this is the one handle that stands for the borrow of
        // `'env` it was made from.
        (end, unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) })
    }

    /// The same if it has ended. Never waits.
    pub fn try_wait(self) -> Result<(Result<(), Cancelled>, &'env mut [u8]), Self> {
        if self.ticket.poll_end().is_some() { Ok(self.wait()) } else { Err(self) }
    }

    /// As [`Ticket::cancel`].
    pub fn cancel(&self) -> bool {
        self.ticket.cancel()
    }
}
