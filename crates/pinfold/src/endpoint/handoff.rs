//! Memory of an arena that is given away: the message is the memory itself.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    request::{Request, request_methods},
    view::View,
};
use crate::{
    DonatedBuf, PeerId, Receipt, Result,
    protocol::handoff::{donate, vectored},
    worker::{
        abandoned,
        engine::Engine,
        fast_view::{self, Lent},
        matching::{Source, TagMatch},
        op::{Done, Keeps, OpKey},
        post,
        shared::{Inside, Shared},
    },
};

/// Waits for a message that may stay where it is.
///
/// # Errors
/// As [`Endpoint::recv`](crate::Endpoint::recv).
#[inline]
pub(crate) fn recv_view(shared: &Arc<Shared>, from: Source, tag: TagMatch) -> Result<View<'_>> {
    let lent = match shared.fast_path() {
        Some(mut engine) => {
            let lent = fast_view::view_fast(&mut engine, from, tag);
            let has_ended_others = !engine.core.wakes.is_empty();
            drop(engine);
            if has_ended_others {
                tell(shared);
            }
            lent
        }
        None => view_from_elsewhere(shared, from, tag)?,
    };
    match lent {
        Some(lent) => Ok(View::lent(shared, lent)),
        None => wait_for_view(shared, from, tag),
    }
}

/// Threads that wait for operations whose ends lay before the message hear of those.
#[cold]
#[inline(never)]
fn tell(shared: &Shared) {
    // In a child of this process nobody waits.
    drop(shared.enter());
}

/// A thread other than the owner's may be as quick.
#[inline(never)]
fn view_from_elsewhere(shared: &Shared, from: Source, tag: TagMatch) -> Result<Option<Lent>> {
    Ok(fast_view::view_fast(&mut *shared.enter()?, from, tag))
}

#[inline(never)]
fn wait_for_view(shared: &Arc<Shared>, from: Source, tag: TagMatch) -> Result<View<'_>> {
    ViewRequest::post(shared, from, tag).wait()
}

/// Leaves the operation to the engine.
fn go_on(engine: &mut Engine, key: OpKey, donation: DonatedBuf) {
    abandoned::let_go(engine, key, Keeps::DonatedBuf { donation });
}

/// Memory on its way to a receiver, or in the receiver's view; a future of the receipt and the
/// memory, once the receiver looks at it no more.
///
/// A hand-off can be dropped: the memory goes on to the receiver, and back to its arena in the end.
/// A program that drops hand-offs without a look whether they have ended is not held back by a slow
/// receiver; [`Endpoint::give`](crate::Endpoint::give) waits for one.
///
/// ```
/// use pinfold::{Arena, Endpoint, Path};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-handoff-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut frame = Arena::new()?.alloc(5)?;
/// frame.copy_from_slice(b"frame");
/// let handoff = endpoint.handoff(itself, 1, frame);
/// let view = endpoint.recv_view(peer, 1)?; // The receiver looks at the very memory.
/// assert_eq!(view.to_vec()?, b"frame");
/// drop(view);
/// let (receipt, donation) = handoff.wait();
/// assert_eq!(receipt?.path, Path::Handoff);
/// assert!(donation.into_arena_buf().is_some()); // The memory can be written anew.
/// # Ok(())
/// # }
/// ```
pub struct Handoff {
    inner: Request<DonatedBuf>,
}

impl Handoff {
    pub(crate) fn post(
        shared: &Arc<Shared>,
        peer: PeerId,
        tag: u64,
        donation: DonatedBuf,
    ) -> Handoff {
        let post = |mut engine: Inside<'_>| donate::hand_off(&mut engine, peer, tag, &donation);
        let posted = shared.enter().and_then(post);
        let inner = Request::of(shared, posted, donation);
        Handoff { inner: inner.abandoned_by(go_on) }
    }

    fn output((done, donation): (Result<Done>, DonatedBuf)) -> (Result<Receipt>, DonatedBuf) {
        (post::sent(done), donation)
    }

    request_methods!((Result<Receipt>, DonatedBuf));
}

impl Future for Handoff {
    type Output = (Result<Receipt>, DonatedBuf);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Handoff::output)
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff").finish_non_exhaustive()
    }
}

/// As [`Handoff`], of memory in several parts that are one message; a future of the receipt and the
/// parts, in their order.
///
/// ```
/// use pinfold::{Arena, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-handoff-vectored-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let arena = Arena::new()?;
/// let (mut head, mut body) = (arena.alloc(5)?, arena.alloc(4)?);
/// head.copy_from_slice(b"head ");
/// body.copy_from_slice(b"body");
/// let handoff = endpoint.handoff_vectored(itself, 1, [head, body]);
/// let view = endpoint.recv_view(peer, 1)?; // The parts are one message.
/// assert_eq!(view.to_vec()?, b"head body");
/// drop(view);
/// let (receipt, parts) = handoff.wait();
/// assert_eq!((receipt?.bytes, parts.len()), (9, 2));
/// # Ok(())
/// # }
/// ```
pub struct HandoffVectored {
    inner: Request<Vec<DonatedBuf>>,
}

impl HandoffVectored {
    pub(crate) fn post(
        shared: &Arc<Shared>,
        peer: PeerId,
        tag: u64,
        donations: Vec<DonatedBuf>,
    ) -> HandoffVectored {
        let post =
            |mut engine: Inside<'_>| vectored::hand_off_parts(&mut engine, peer, tag, &donations);
        let posted = shared.enter().and_then(post);
        let inner = Request::of(shared, posted, donations);
        HandoffVectored {
            inner: inner.abandoned_by(|engine, key, donations| {
                abandoned::let_go(engine, key, Keeps::DonatedBufs { donations })
            }),
        }
    }

    fn output(
        (done, donations): (Result<Done>, Vec<DonatedBuf>),
    ) -> (Result<Receipt>, Vec<DonatedBuf>) {
        (post::sent(done), donations)
    }

    request_methods!((Result<Receipt>, Vec<DonatedBuf>));
}

impl Future for HandoffVectored {
    type Output = (Result<Receipt>, Vec<DonatedBuf>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(HandoffVectored::output)
    }
}

impl fmt::Debug for HandoffVectored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandoffVectored").finish_non_exhaustive()
    }
}

/// A receive in flight of a message that may stay where it is; a future of the view. Dropped early
/// it is withdrawn; a message that has matched it goes to the next receive that matches, before all
/// later ones.
///
/// ```
/// use pinfold::{DraftBuf, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-view-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut receive = endpoint.recv_view_request(peer, 1);
/// assert!(receive.try_wait().is_none()); // Nothing was given yet.
/// let mut draft = DraftBuf::new(4096)?;
/// draft.fill(7);
/// endpoint.give(itself, 1, draft.freeze()?)?;
/// let view = receive.wait()?;
/// assert_eq!(view.bytes(), Some(&[7; 4096][..]));
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a request withdraws it"]
pub struct ViewRequest {
    inner: Request<()>,
}

impl ViewRequest {
    pub(crate) fn post(shared: &Arc<Shared>, from: Source, tag: TagMatch) -> ViewRequest {
        let posted = shared.enter().and_then(|mut engine| post::post_view(&mut engine, from, tag));
        ViewRequest { inner: Request::of(shared, posted, ()) }
    }

    fn output(&self, (done, ()): (Result<Done>, ())) -> Result<View<'static>> {
        post::arrived(done).and_then(|arrived| View::new(self.inner.shared(), arrived))
    }

    /// The view if a message has come, after one turn of progress. Never waits.
    pub fn try_wait(&mut self) -> Option<Result<View<'static>>> {
        let taken = self.inner.try_wait()?;
        Some(self.output(taken))
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// As [`Endpoint::recv`](crate::Endpoint::recv).
    pub fn wait(mut self) -> Result<View<'static>> {
        loop {
            if let Some(taken) = self.inner.wait(None) {
                return self.output(taken);
            }
        }
    }

    /// Waits at most `patience`. `None`: the receive goes on.
    pub fn wait_timeout(&mut self, patience: Duration) -> Option<Result<View<'static>>> {
        let taken = self.inner.wait(Instant::now().checked_add(patience))?;
        Some(self.output(taken))
    }

    /// Withdraws it if no message has matched it. Returns whether it will end as
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn cancel(&mut self) -> bool {
        self.inner.cancel()
    }
}

impl Future for ViewRequest {
    type Output = Result<View<'static>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.inner.poll(context) {
            Poll::Ready(taken) => Poll::Ready(self.output(taken)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl fmt::Debug for ViewRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewRequest").finish_non_exhaustive()
    }
}
