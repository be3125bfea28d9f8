#![allow(unsafe_code)]
//! Operations in flight that own their buffers: requests, which are futures.
//!
//! **Invariant.** From the moment a request is posted until its operation has ended, nothing but
//! the engine (and, through it, the peer) touches the bytes of its buffer. The buffer is kept in a
//! `MaybeUninit`, so that moving the request claims nothing about them. A request that is dropped
//! early hands its buffer to the engine, which drops it when the operation ends; one that is leaked
//! leaks its buffer, which therefore stays valid.

use std::{
    fmt,
    future::Future,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    blocking,
    buffers::{OwnedBuf, OwnedBufMut, to_fill, to_send},
    received::Received,
};
use crate::{
    Error, PeerId, Receipt, Result,
    memory::scatter::Scatter,
    protocol::active::send,
    wire::active::{Label, Verb},
    worker::{
        abandoned::{self, Early},
        cancel,
        engine::Engine,
        matching::{Source, TagMatch},
        next_message,
        op::{Done, Keeps, Op, OpKey, Taker},
        post,
        shared::Shared,
    },
};

/// The stage of a request.
enum State {
    /// The operation is in the engine's table.
    Posted(OpKey),
    /// The operation ended when it was posted.
    Ended(Result<Done>),
    /// Its result has been handed out.
    Spent,
}

impl From<Result<OpKey>> for State {
    fn from(posted: Result<OpKey>) -> State {
        match posted {
            Ok(key) => State::Posted(key),
            Err(error) => State::Ended(Err(error)),
        }
    }
}

/// The common part of sends and receives.
pub(crate) struct Request<B: Send + 'static> {
    shared: Arc<Shared>,
    state: State,
    /// The message of a receive that ended when it was posted.
    early: Option<Early>,
    /// Initialised until `state` is `Spent`.
    buffer: MaybeUninit<B>,
    /// The use of the buffer when this is dropped.
    abandon: fn(&mut Engine, OpKey, B),
}

/// Takes an operation back if that is possible.
fn take_back<B: Send + 'static>(engine: &mut Engine, key: OpKey, buffer: B) {
    abandoned::abandon(engine, key, Keeps::Buffer(Box::new(Kept(buffer))));
}

impl<B: Send + 'static> Request<B> {
    fn new(shared: &Arc<Shared>, state: State, buffer: MaybeUninit<B>) -> Request<B> {
        Request { shared: Arc::clone(shared), state, early: None, buffer, abandon: take_back }
    }

    /// An operation posted.
    pub(crate) fn of(shared: &Arc<Shared>, posted: Result<OpKey>, buffer: B) -> Request<B> {
        Request::new(shared, posted.into(), MaybeUninit::new(buffer))
    }

    /// An operation that has ended already.
    pub(crate) fn ended(shared: &Arc<Shared>, done: Result<Done>, buffer: B) -> Request<B> {
        Request::new(shared, State::Ended(done), MaybeUninit::new(buffer))
    }

    /// An operation that `post` posts for the buffer.
    pub(crate) fn post_with(
        shared: &Arc<Shared>,
        buffer: B,
        post: impl FnOnce(&mut B) -> Result<OpKey>,
    ) -> Request<B> {
        let mut buffer = MaybeUninit::new(buffer);
        // SAFETY: initialised just now.
        let state = post(unsafe { buffer.assume_init_mut() }).into();
        Request::new(shared, state, buffer)
    }

    /// Leaves the result to a taker, made around the buffer. Returns both if there is a result
    /// already.
    pub(crate) fn leave_to(
        mut self,
        make: impl FnOnce(B) -> Box<dyn Taker>,
    ) -> Option<(Result<Done>, Box<dyn Taker>)> {
        let state = std::mem::replace(&mut self.state, State::Spent);
        if let State::Spent = state {
            return None;
        }
        // SAFETY: initialised, since the state was not `Spent`, and read here once: it is now.
        let taker = make(unsafe { self.buffer.assume_init_read() });
        let key = match state {
            State::Posted(key) => key,
            State::Ended(done) => return Some((done, taker)),
            State::Spent => return None,
        };
        let mut engine = match self.shared.enter() {
            Ok(engine) => engine,
            Err(forked) => return Some((Err(forked), taker)),
        };
        let core = &mut engine.core;
        let left = core.ops.leave_to(key, taker, &mut core.wakes);
        // The thread that sleeps for all has to look for work that this left behind.
        engine.kick_if_needed();
        left
    }

    /// Returns whether its result has been handed out, and the buffer with it.
    pub(crate) fn is_spent(&self) -> bool {
        matches!(self.state, State::Spent)
    }

    /// The operation, while it is in the engine's table.
    pub(crate) fn key(&self) -> Option<OpKey> {
        match self.state {
            State::Posted(key) => Some(key),
            State::Ended(_) | State::Spent => None,
        }
    }

    /// The operation was taken off the table: `done` is its result from here on. Returns the one
    /// that it had before.
    pub(crate) fn end_with(&mut self, done: Result<Done>) -> Option<Result<Done>> {
        if let State::Spent = self.state {
            return None;
        }
        match std::mem::replace(&mut self.state, State::Ended(done)) {
            State::Ended(done) => Some(done),
            State::Posted(_) | State::Spent => None,
        }
    }

    /// The same request with another function for its drop.
    pub(crate) fn abandoned_by(mut self, abandon: fn(&mut Engine, OpKey, B)) -> Request<B> {
        self.abandon = abandon;
        self
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The result and the buffer if the operation has ended, after a turn of progress.
    pub(crate) fn try_wait(&mut self) -> Option<(Result<Done>, B)> {
        let done = match self.state {
            State::Posted(key) => self.shared.try_done(key)?,
            State::Ended(_) => match std::mem::replace(&mut self.state, State::Spent) {
                State::Ended(done) => done,
                _ => Err(Error::Closed),
            },
            State::Spent => return None,
        };
        Some((done, self.spend()))
    }

    /// The buffer, its operation having ended.
    fn spend(&mut self) -> B {
        self.state = State::Spent;
        // SAFETY: initialised when made and read here once: `state` was not `Spent` before and is
        // now. The operation has ended, so the bytes are the buffer's again.
        unsafe { self.buffer.assume_init_read() }
    }

    pub(crate) fn wait(&mut self, deadline: Option<Instant>) -> Option<(Result<Done>, B)> {
        let done = match self.state {
            State::Posted(key) => self.shared.wait_done(key, deadline)?,
            _ => return self.try_wait(),
        };
        Some((done, self.spend()))
    }

    pub(crate) fn cancel(&mut self) -> bool {
        match self.state {
            State::Posted(key) => {
                self.shared.enter().is_ok_and(|mut engine| cancel::cancel(&mut engine, key))
            }
            _ => false,
        }
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Result<Done>, B)> {
        self.poll_for(context, Request::try_wait, |op| op.done.is_some())
    }

    /// Takes something of the request, or has the task woken when the operation is ready for that.
    pub(crate) fn poll_for<T>(
        &mut self,
        context: &mut Context<'_>,
        mut take: impl FnMut(&mut Self) -> Option<T>,
        is_ready: fn(&Op) -> bool,
    ) -> Poll<T> {
        if let Some(taken) = take(self) {
            return Poll::Ready(taken);
        }
        let State::Posted(key) = self.state else {
            // Polled again after it was ready.
            return Poll::Pending;
        };
        // Wakers are user code: cloned before the engine is entered, dropped after it is left.
        let mut waker = Some(context.waker().clone());
        let ready = self.shared.enter().is_ok_and(|mut engine| {
            // The thread that sleeps for all has to look for work that this left behind.
            engine.kick_if_needed();
            match engine.core.ops.get_mut(key) {
                Some(op) if !is_ready(op) => {
                    std::mem::swap(&mut op.waker, &mut waker);
                    false
                }
                _ => true,
            }
        });
        drop(waker);
        if ready {
            return take(self).map_or(Poll::Pending, Poll::Ready);
        }
        if self.shared.start_driver().is_err() {
            // No thread would complete it: progress is made whenever it is polled, which is at
            // once.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<B: Send + 'static> Drop for Request<B> {
    fn drop(&mut self) {
        match &self.state {
            State::Spent => {}
            State::Posted(key) => {
                // SAFETY: initialised, and read here once: this is the end of `self`. The box
                // keeps the bytes in place until the engine drops it.
                let buffer = unsafe { self.buffer.assume_init_read() };
                // In a forked child it is a copy that nothing uses.
                if let Ok(mut engine) = self.shared.enter() {
                    (self.abandon)(&mut engine, *key, buffer);
                }
            }
            State::Ended(_) => {
                if let Some(early) = self.early.take()
                    && let State::Ended(Ok(Done::Arrived(arrived))) =
                        std::mem::replace(&mut self.state, State::Spent)
                    && let Ok(mut engine) = self.shared.enter()
                {
                    early.give_up(&mut engine, arrived);
                }
                // SAFETY: initialised, no longer or never posted, and dropped here once.
                unsafe { self.buffer.assume_init_drop() };
            }
        }
    }
}

/// A buffer whose bytes may still be in use; only ever dropped.
struct Kept<B>(#[allow(dead_code, reason = "kept for its drop")] B);

macro_rules! request_methods {
    ($output:ty) => {
        /// The result if the operation has ended, after one turn of progress. Never waits.
        pub fn try_wait(&mut self) -> Option<$output> {
            self.inner.try_wait().map(Self::output)
        }

        /// Waits for the end of the operation.
        pub fn wait(mut self) -> $output {
            loop {
                if let Some(taken) = self.inner.wait(None) {
                    return Self::output(taken);
                }
            }
        }

        /// Waits at most `patience`. `None`: the operation goes on.
        pub fn wait_timeout(&mut self, patience: Duration) -> Option<$output> {
            self.inner.wait(Instant::now().checked_add(patience)).map(Self::output)
        }

        /// Asks for the end of the operation if it has not met its counterpart yet. Returns whether
        /// it will end: then with [`Error::Cancelled`](crate::Error::Cancelled), unless the peer is
        /// faster. `false`: it has been matched, or has ended, and takes its course.
        pub fn cancel(&mut self) -> bool {
            self.inner.cancel()
        }
    };
}

pub(crate) use request_methods;

/// A send in flight that owns its buffer; a future of the receipt and the buffer.
///
/// Dropped early it is taken back if it has not been matched, else it goes on to its end; the
/// buffer is kept until then.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-send-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let sending = endpoint.send_owned(itself, 1, vec![5; 1 << 20]); // The call never waits.
/// assert_eq!(endpoint.recv(peer, 1)?.len(), 1 << 20);
/// let (receipt, buffer) = sending.wait();
/// assert_eq!(receipt?.bytes, buffer.len() as u64);
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a request takes it back"]
pub struct SendRequest<B: OwnedBuf> {
    inner: Request<B>,
}

impl<B: OwnedBuf> SendRequest<B> {
    pub(crate) fn post(shared: &Arc<Shared>, peer: PeerId, tag: u64, buffer: B) -> SendRequest<B> {
        let buffer = MaybeUninit::new(buffer);
        // SAFETY: initialised just now.
        let held = unsafe { buffer.assume_init_ref() };
        // SAFETY: the request keeps the buffer until the operation has ended.
        let memory = unsafe { to_send(held) };
        let mut chosen = None;
        let send = |part| blocking::send_now(shared, peer, tag, part, &mut chosen);
        let state = match memory.part().and_then(send) {
            Some(receipt) => State::Ended(Ok(Done::Sent(receipt))),
            None => shared
                .enter()
                .and_then(|mut engine| {
                    post::post_send(&mut engine, peer, tag, memory, None, chosen)
                })
                .into(),
        };
        SendRequest { inner: Request::new(shared, state, buffer) }
    }

    /// As [`SendRequest::post`], to handler `id` of the peer.
    pub(crate) fn call(shared: &Arc<Shared>, peer: PeerId, id: u32, buffer: B) -> SendRequest<B> {
        let buffer = MaybeUninit::new(buffer);
        // SAFETY: initialised just now.
        let (ptr, len) = unsafe { buffer.assume_init_ref() }.bytes();
        // SAFETY: as in `SendRequest::post`.
        let memory = unsafe { Scatter::one(ptr.cast_mut(), len) };
        let label = Label { verb: Verb::Call, id, token: 0 };
        let posted = shared
            .enter()
            .and_then(|mut engine| send::post_active(&mut engine, peer, label, memory));
        SendRequest { inner: Request::new(shared, posted.into(), buffer) }
    }

    fn output((done, buffer): (Result<Done>, B)) -> (Result<Receipt>, B) {
        (post::sent(done), buffer)
    }

    pub(crate) fn into_request(self) -> Request<B> {
        self.inner
    }

    request_methods!((Result<Receipt>, B));
}

impl<B: OwnedBuf + Unpin> Future for SendRequest<B> {
    type Output = (Result<Receipt>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

/// A receive in flight that owns its buffer; a future of the message's facts and the buffer.
///
/// Dropped early it is withdrawn if no message has matched it. A message that has goes to the next
/// receive that matches, before all later ones; one that is too long for the buffer is dropped with
/// it.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-recv-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let receiving = endpoint.recv_owned(peer, 1, vec![0; 100]);
/// endpoint.send(itself, 1, b"hello")?;
/// let (received, buffer) = receiving.wait(); // A future: `receiving.await` gives the same.
/// assert_eq!(&buffer[..received?.len as usize], b"hello");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a request withdraws it"]
pub struct RecvRequest<B: OwnedBufMut> {
    inner: Request<B>,
}

impl<B: OwnedBufMut> RecvRequest<B> {
    pub(crate) fn post(
        shared: &Arc<Shared>,
        from: Source,
        tag: TagMatch,
        buffer: B,
    ) -> RecvRequest<B> {
        let mut buffer = MaybeUninit::new(buffer);
        // SAFETY: initialised just now.
        let held = unsafe { buffer.assume_init_mut() };
        // SAFETY: as in `SendRequest::post`.
        let memory = unsafe { to_fill(held) };
        let mut early = None;
        let state = match shared.enter() {
            Err(forked) => State::Ended(Err(forked)),
            Ok(mut engine) => {
                let at_once = memory.part().and_then(|part| {
                    Some((part, next_message::recv_at_once(&mut engine, from, tag, part)?))
                });
                match at_once {
                    Some((part, took)) => {
                        early = Some(Early::new(&mut engine, part));
                        State::Ended(took.received().map(Done::from))
                    }
                    None => post::post_recv(&mut engine, from, tag, Some(memory)).into(),
                }
            }
        };
        let mut inner = Request::new(shared, state, buffer);
        inner.early = early;
        RecvRequest { inner }
    }

    /// A receive of a message that was claimed.
    pub(crate) fn of_claimed(
        shared: &Arc<Shared>,
        buffer: B,
        post: impl FnOnce(Scatter) -> Result<OpKey>,
    ) -> RecvRequest<B> {
        // SAFETY: as in `SendRequest::post`.
        let post = |buffer: &mut B| post(unsafe { to_fill(buffer) });
        RecvRequest { inner: Request::post_with(shared, buffer, post) }
    }

    fn output((done, buffer): (Result<Done>, B)) -> (Result<Received>, B) {
        (post::arrived(done).map(|arrived| Received::from(&arrived)), buffer)
    }

    pub(crate) fn into_request(self) -> Request<B> {
        self.inner
    }

    request_methods!((Result<Received>, B));
}

impl<B: OwnedBufMut + Unpin> Future for RecvRequest<B> {
    type Output = (Result<Received>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

impl<B: OwnedBuf> fmt::Debug for SendRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest").finish_non_exhaustive()
    }
}

impl<B: OwnedBufMut> fmt::Debug for RecvRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvRequest").finish_non_exhaustive()
    }
}
