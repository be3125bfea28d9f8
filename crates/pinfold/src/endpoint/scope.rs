#![allow(unsafe_code)]
//! Operations in flight on borrowed memory.
//!
//! **Invariant.** An operation posted in a scope borrows its memory for `'env`, which outlives the
//! scope; [`Endpoint::scope`](crate::Endpoint::scope) does not return, nor unwind, before every
//! operation posted in it has ended. The scope keeps their keys itself, so leaking a handle
//! changes nothing.

use std::{cell::RefCell, collections::VecDeque, marker::PhantomData, sync::Arc};

use super::{blocking, received::Received};
use crate::{
    Error, PeerId, Receipt, Result,
    memory::scatter::Part,
    scoped,
    worker::{
        abandoned::{self, Early},
        matching::{Source, TagMatch},
        next_message,
        op::{Arrived, Done, OpKey},
        post,
        shared::Shared,
    },
};

/// The scope of operations on borrowed memory; see [`Endpoint::scope`](crate::Endpoint::scope).
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-scope-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let (data, mut buffer) = (*b"borrowed", [0; 8]);
/// endpoint.scope(|scope| -> pinfold::Result<()> {
///     let receive = scope.recv_into(peer, 1, &mut buffer)?; // Neither of the calls waits.
///     let send = scope.send(itself, 1, &data)?;
///     receive.wait().0?;
///     send.wait()?;
///     Ok(())
/// })?; // From here on the memory is the program's again.
/// assert_eq!(buffer, data);
/// # Ok(())
/// # }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    shared: Arc<Shared>,
    open: RefCell<VecDeque<OpKey>>,
    /// Receives that ended when they were posted and that no handle has waited for.
    early: RefCell<Vec<(Early, Received)>>,
    // Invariant in both, as in `std::thread::Scope`: neither may shrink.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f` with a scope and ends all operations that it posted.
pub(crate) fn run<'env, R>(
    shared: &Arc<Shared>,
    f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
) -> R {
    let scope = Scope {
        shared: Arc::clone(shared),
        open: RefCell::new(VecDeque::new()),
        early: RefCell::new(Vec::new()),
        _scope: PhantomData,
        _env: PhantomData,
    };
    let end = |unwinding| {
        let early = scope.early.take();
        if !early.is_empty()
            && let Ok(mut engine) = scope.shared.enter()
        {
            for (early, received) in early {
                early.give_up(&mut engine, Arrived::of(received));
            }
        }
        for key in scope.open.take() {
            let shared = &scope.shared;
            if let Ok(mut engine) = shared.enter() {
                abandoned::end_of_scope(&mut engine, key, unwinding);
            }
            let _ = shared.wait_done(key, None);
        }
    };
    scoped::run(|| f(&scope), end)
}

impl<'scope, 'env> Scope<'scope, 'env> {
    fn note(&self, posted: Result<OpKey>) -> Result<OpKey> {
        let key = posted?;
        self.open.borrow_mut().push_back(key);
        Ok(key)
    }

    fn forget(&self, key: OpKey) {
        let mut open = self.open.borrow_mut();
        // Operations are mostly waited for in the order they were posted in.
        if let Some(at) = open.iter().position(|open| *open == key) {
            open.remove(at);
        }
    }

    /// Posts a send of `data`. It goes on until waited for, at the latest at the scope's end.
    ///
    /// # Errors
    /// As [`Endpoint::send`](crate::Endpoint::send), as far as they show at once.
    pub fn send(
        &'scope self,
        peer: PeerId,
        tag: u64,
        data: &'env [u8],
    ) -> Result<ScopedSend<'scope, 'env>> {
        // SAFETY: borrowed for `'env`, within which the operation ends.
        let memory = unsafe { Part::new(data.as_ptr().cast_mut(), data.len()) };
        let mut chosen = None;
        let stage = match blocking::send_now(&self.shared, peer, tag, memory, &mut chosen) {
            Some(receipt) => Stage::Ended(receipt),
            None => {
                let memory = memory.into();
                let posted =
                    post::post_send(&mut *self.shared.enter()?, peer, tag, memory, None, chosen);
                Stage::Posted(self.note(posted)?)
            }
        };
        Ok(ScopedSend { scope: self, stage })
    }

    /// Posts a receive into `buf`. If no message has matched it by the scope's end, it is
    /// withdrawn; the message of one that was matched, but not waited for, goes to the next receive
    /// that matches.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`](crate::Endpoint::recv_into), as far as they show at once.
    pub fn recv_into(
        &'scope self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buf: &'env mut [u8],
    ) -> Result<ScopedRecv<'scope, 'env>> {
        let (from, tag) = (from.into(), tag.into());
        let (ptr, len) = (buf.as_mut_ptr(), buf.len());
        // SAFETY: borrowed for `'env`, within which the operation ends; `ScopedRecv` gives the
        // borrow back only after that.
        let memory = unsafe { Part::new(ptr, len) };
        let mut engine = self.shared.enter()?;
        let stage = match next_message::recv_at_once(&mut engine, from, tag, memory) {
            Some(took) => {
                let result = took.received();
                let early = Early::new(&mut engine, memory);
                let arrival = early.arrival();
                if let Ok(received) = &result {
                    self.early.borrow_mut().push((early, *received));
                }
                Stage::Early(result, arrival)
            }
            None => Stage::Posted(self.note(post::post_recv(
                &mut engine,
                from,
                tag,
                Some(memory.into()),
            ))?),
        };
        Ok(ScopedRecv { scope: self, stage, ptr, len })
    }

    fn wait(&self, key: OpKey) -> Result<Done> {
        let done = self.shared.wait_done(key, None);
        self.forget(key);
        done.unwrap_or(Err(Error::Closed))
    }

    fn try_wait(&self, key: OpKey) -> Option<Result<Done>> {
        let done = self.shared.try_done(key);
        if done.is_some() {
            self.forget(key);
        }
        done
    }
}

/// A send posted in a scope.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-scoped-send-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let data = vec![6; 1 << 20];
/// endpoint.scope(|scope| -> pinfold::Result<()> {
///     let send = scope.send(itself, 1, &data)?;
///     assert_eq!(*endpoint.recv(peer, 1)?, data[..]); // The memory may be read, not written.
///     assert_eq!(send.wait()?.bytes, 1 << 20);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct ScopedSend<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    stage: Stage<Receipt>,
}

/// The stage of an operation.
enum Stage<T> {
    Posted(OpKey),
    /// The operation has ended.
    Ended(T),
    /// It ended when it was posted, with the message of this number.
    Early(T, u64),
}

impl ScopedSend<'_, '_> {
    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Endpoint::send`](crate::Endpoint::send).
    pub fn wait(self) -> Result<Receipt> {
        match self.stage {
            Stage::Posted(key) => post::sent(self.scope.wait(key)),
            Stage::Ended(receipt) | Stage::Early(receipt, _) => Ok(receipt),
        }
    }

    /// The result if it has ended. Never waits.
    pub fn try_wait(self) -> std::result::Result<Result<Receipt>, Self> {
        match self.stage {
            Stage::Posted(key) => self.scope.try_wait(key).map(post::sent).ok_or(self),
            Stage::Ended(receipt) | Stage::Early(receipt, _) => Ok(Ok(receipt)),
        }
    }
}

/// A receive posted in a scope.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-scoped-recv-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let (data, mut buffer) = (*b"borrowed", [0; 8]);
/// endpoint.scope(|scope| -> pinfold::Result<()> {
///     let receive = scope.recv_into(peer, 1, &mut buffer)?;
///     scope.send(itself, 1, &data)?.wait()?;
///     let (received, buffer) = receive.wait(); // The borrow comes back with the result.
///     assert_eq!((received?.len, &buffer[..]), (8, &b"borrowed"[..]));
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct ScopedRecv<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    stage: Stage<Result<Received>>,
    ptr: *mut u8,
    len: usize,
}

impl<'env> ScopedRecv<'_, 'env> {
    /// Waits for its end and gives the buffer back.
    pub fn wait(self) -> (Result<Received>, &'env mut [u8]) {
        let result = match self.stage {
            Stage::Posted(key) => received(self.scope.wait(key)),
            Stage::Ended(result) => result,
            Stage::Early(result, arrival) => {
                self.scope.early.borrow_mut().retain(|(early, _)| early.arrival() != arrival);
                result
            }
        };
        // SAFETY: the operation has ended, and this is the one handle that stands for the borrow
        // of `'env` it was made from.
        let buf = unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) };
        (result, buf)
    }

    /// The result if it has ended. Never waits.
    pub fn try_wait(mut self) -> std::result::Result<(Result<Received>, &'env mut [u8]), Self> {
        if let Stage::Posted(key) = self.stage {
            match self.scope.try_wait(key) {
                Some(done) => self.stage = Stage::Ended(received(done)),
                None => return Err(self),
            }
        }
        Ok(self.wait())
    }
}

fn received(done: Result<Done>) -> Result<Received> {
    post::arrived(done).map(|arrived| Received::from(&arrived))
}
