#![allow(unsafe_code)]
//! Requests in flight: raw ones, and those that own their buffers.
//!
//! **Invariant.** From when a request is opened until it has ended, only the engine reaches the two
//! buffers of a [`CopyRequest`]: they lie in a box that is known by its address alone, under one
//! shared borrow of the source and one unique borrow of the destination, both of which last until
//! the box is taken again. That is done once, after the end. A request that is leaked leaks the
//! box.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    ptr::NonNull,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    Work,
    core::Core,
    slots::Key,
    watch::{End, Until, Watch},
};

/// The copy was cancelled before all of it was made: the bytes at its destination may be old or
/// new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the copy was cancelled; its destination may hold some of it")
    }
}

impl std::error::Error for Cancelled {}

impl End {
    fn result(self) -> Result<(), Cancelled> {
        match self {
            End::Done => Ok(()),
            End::Cancelled => Err(Cancelled),
        }
    }
}

/// A raw request; a future of its end. To drop it changes nothing: the request goes on.
#[derive(Clone)]
#[must_use = "the memory is in use until the request has ended"]
pub struct Ticket {
    /// `None`: it was done when it was submitted.
    open: Option<(Arc<Core>, Key, Arc<Watch>)>,
}

impl Ticket {
    /// Submits work to an engine.
    ///
    /// # Safety
    /// As for [`Core::submit`].
    pub(super) unsafe fn submit(core: &Arc<Core>, work: Work) -> Ticket {
        // SAFETY: as the caller promised.
        let open = unsafe { core.submit(work) };
        Ticket { open: open.map(|(key, watch)| (Arc::clone(core), key, watch)) }
    }

    /// Returns whether this is a child of its process, where no thread goes on with it, nor touches
    /// its memory.
    fn is_left_behind(&self) -> bool {
        self.open.as_ref().is_some_and(|(core, ..)| core.is_child())
    }

    /// The end of the request, if it has ended. Never waits.
    pub fn poll_end(&self) -> Option<Result<(), Cancelled>> {
        let Some((core, _, watch)) = &self.open else { return Some(Ok(())) };
        if core.is_child() {
            return Some(Err(Cancelled));
        }
        if !core.notifies() {
            core.turn();
        }
        watch.ended().map(End::result)
    }

    /// Waits for its end, and helps to bring it about.
    ///
    /// # Errors
    /// [`Cancelled`]; also in a process forked from the one that submitted it.
    pub fn wait(&self) -> Result<(), Cancelled> {
        if self.is_left_behind() {
            return Err(Cancelled);
        }
        if let Some((core, _, watch)) = &self.open {
            core.wait(watch, Until::Ended);
        }
        self.poll_end().unwrap_or(Ok(()))
    }

    /// Takes back the parts that have not been started. Returns whether there were any: then it
    /// will end with [`Cancelled`], when the parts that were started have ended.
    pub fn cancel(&self) -> bool {
        match &self.open {
            Some((core, key, _)) if !core.is_child() => core.cancel(*key),
            _ => false,
        }
    }

    /// Has `then` called when it has ended: in this thread at once if it has already, else in the
    /// thread that finds out. It may submit requests and wait for others. One for each request.
    pub fn then(self, then: impl FnOnce(Result<(), Cancelled>) + Send + 'static) {
        match &self.open {
            Some((core, _, watch)) if !core.is_child() => {
                watch.then(Box::new(|end| then(end.result())));
            }
            Some(_) => then(Err(Cancelled)),
            None => then(Ok(())),
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(end) = self.poll_end() {
            return Poll::Ready(end);
        }
        let Some((core, _, watch)) = &self.open else { return Poll::Ready(Ok(())) };
        match watch.wake(context.waker()) {
            Some(end) => Poll::Ready(end.result()),
            None => {
                if !core.notifies() {
                    // Progress is made whenever it is polled.
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

/// Two buffers, known by their address alone.
struct Held<S, D>(NonNull<(S, D)>);

// SAFETY: it owns the buffers, as a box does.
unsafe impl<S: Send, D: Send> Send for Held<S, D> {}
// SAFETY: nothing can be done with a shared one.
unsafe impl<S, D> Sync for Held<S, D> {}

impl<S: AsRef<[u8]>, D: AsMut<[u8]>> Held<S, D> {
    fn new(from: S, to: D) -> Held<S, D> {
        Held(NonNull::from(Box::leak(Box::new((from, to)))))
    }

    /// The copy to be made. `None`: the lengths differ.
    fn work(&mut self) -> Option<Work> {
        // SAFETY: leaked when `self` was made, and freed by `take` alone.
        let (from, to) = unsafe { self.0.as_mut() };
        let (from, to) = (from.as_ref(), to.as_mut());
        (from.len() == to.len()).then(|| Work::copy(from.as_ptr(), to.as_mut_ptr(), to.len()))
    }
}

impl<S, D> Held<S, D> {
    /// # Safety
    /// No request is open for them.
    unsafe fn take(self) -> (S, D) {
        // SAFETY: leaked when it was made, and `self` is gone after this. There is no borrow any
        // more.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// Buffers of different lengths, given back.
pub struct Unequal<S, D>(pub S, pub D);

impl<S, D> fmt::Debug for Unequal<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("source and destination differ in length")
    }
}

/// A copy in flight that owns its buffers; a future of its end and the buffers.
///
/// Dropped early it is cancelled; the buffers are dropped when it has ended.
#[must_use = "dropping a request cancels it"]
pub struct CopyRequest<S: Send + 'static, D: Send + 'static> {
    ticket: Ticket,
    /// `None` when they have been handed out.
    held: Option<Held<S, D>>,
}

impl<S, D> CopyRequest<S, D>
where
    S: AsRef<[u8]> + Send + 'static,
    D: AsMut<[u8]> + Send + 'static,
{
    pub(super) fn submit(core: &Arc<Core>, from: S, to: D) -> Result<Self, Unequal<S, D>> {
        let mut held = Held::new(from, to);
        let Some(work) = held.work() else {
            // SAFETY: there is no request.
            let (from, to) = unsafe { held.take() };
            return Err(Unequal(from, to));
        };
        // SAFETY: both borrows last until the buffers are taken, which is after the end. Nothing
        // else knows the box.
        let ticket = unsafe { Ticket::submit(core, work.planned()) };
        Ok(CopyRequest { ticket, held: Some(held) })
    }
}

impl<S: Send + 'static, D: Send + 'static> CopyRequest<S, D> {
    /// # Safety
    /// The request has ended.
    unsafe fn hand_out(&mut self) -> Option<(S, D)> {
        // SAFETY: as the caller promised.
        self.held.take().map(|held| unsafe { held.take() })
    }

    /// The end of the request and the buffers, if it has ended. Never waits; `None` also when they
    /// were handed out before.
    pub fn try_wait(&mut self) -> Option<(Result<(), Cancelled>, S, D)> {
        let end = self.ticket.poll_end()?;
        // SAFETY: it has ended, or is the copy of a forked child, which no thread there goes on
        // with.
        let (from, to) = unsafe { self.hand_out() }?;
        Some((end, from, to))
    }

    /// Waits for its end, and helps to bring it about. `None`: the buffers were handed out before.
    pub fn wait(mut self) -> Option<(Result<(), Cancelled>, S, D)> {
        let _ = self.ticket.wait();
        self.try_wait()
    }

    /// As [`Ticket::cancel`].
    pub fn cancel(&self) -> bool {
        self.ticket.cancel()
    }

    /// Has `then` called with the buffers when it has ended; see [`Ticket::then`]. It is not called
    /// if the buffers were handed out before.
    pub fn then(mut self, then: impl FnOnce(Result<(), Cancelled>, S, D) + Send + 'static) {
        let Some(held) = self.held.take() else { return };
        self.ticket.clone().then(move |end| {
            let held = held;
            // SAFETY: it has ended.
            let (from, to) = unsafe { held.take() };
            then(end, from, to);
        });
    }
}

impl<S: Send + 'static, D: Send + 'static> Drop for CopyRequest<S, D> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            self.ticket.cancel();
            self.ticket.clone().then(move |_| {
                let held = held;
                // SAFETY: it has ended.
                drop(unsafe { held.take() });
            });
        }
    }
}

impl<S: Send + 'static, D: Send + 'static> Future for CopyRequest<S, D> {
    type Output = (Result<(), Cancelled>, S, D);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match Pin::new(&mut self.ticket).poll(context) {
            Poll::Pending => Poll::Pending,
            // Polled again after it was ready, it has nothing more to say.
            Poll::Ready(_) => self.try_wait().map_or(Poll::Pending, Poll::Ready),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl<S: Send + 'static, D: Send + 'static> fmt::Debug for CopyRequest<S, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyRequest").finish_non_exhaustive()
    }
}
