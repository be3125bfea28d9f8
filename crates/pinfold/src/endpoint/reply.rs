//! Requests to handlers of peers.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    message::Message,
    payload::{Payload, keep},
    request::Request,
};
use crate::{
    PeerId, Result,
    protocol::active::send,
    wire::active::{Label, Verb},
    worker::{
        op::{Done, OpKey},
        post,
        shared::Shared,
    },
};

/// A request on its way, or at its handler; a future of the answer. Its
/// [tag](Message::tag) is the handler's number.
///
/// Dropped early, the request is handled all the same, and the answer is dropped when it comes.
///
/// ```
/// use pinfold::{Endpoint, Progress};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-reply-{}", std::process::id());
/// let server = Endpoint::builder()
///     .listen(&name)
///     .progress(Progress::Dedicated)
///     .handle(1, |active| active.reply(&[active.payload()[0] + 1]).unwrap())
///     .build()?;
/// let client = Endpoint::new()?;
/// let peer = client.connect(&name)?;
/// // Both requests are out before the program waits for either.
/// let replies = [client.request(peer, 1, &[10]), client.request(peer, 1, &[20])];
/// for (reply, expected) in replies.into_iter().zip([11, 21]) {
///     assert_eq!(*reply.wait()?, [expected]);
/// }
/// # drop(server);
/// # Ok(())
/// # }
/// ```
#[must_use = "to send something that is not answered, call"]
pub struct Reply {
    inner: Request<()>,
}

impl Reply {
    /// Asks.
    pub(crate) fn ask(shared: &Arc<Shared>, peer: PeerId, id: u32, payload: impl Payload) -> Reply {
        let label = Label { verb: Verb::Request, id, token: 0 };
        Reply { inner: Request::of(shared, post_request(shared, peer, label, payload), ()) }
    }

    /// Asks the agent.
    pub(crate) fn ask_agent(shared: &Arc<Shared>, peer: PeerId, payload: impl Payload) -> Reply {
        let label = Label { verb: Verb::Serve, id: 0, token: 0 };
        Reply { inner: Request::of(shared, post_request(shared, peer, label, payload), ()) }
    }

    fn output((done, ()): (Result<Done>, ())) -> Result<Message> {
        post::arrived(done).map(Message::new)
    }

    pub(crate) fn into_request(self) -> Request<()> {
        self.inner
    }

    /// The answer if it has come, after one turn of progress. Never waits.
    pub fn try_wait(&mut self) -> Option<Result<Message>> {
        self.inner.try_wait().map(Reply::output)
    }

    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error::NotHandled`](crate::Error::NotHandled): there is no such handler, it panicked, or
    /// it did not answer. [`Error::PeerGone`](crate::Error::PeerGone),
    /// [`Error::UnknownPeer`](crate::Error::UnknownPeer),
    /// [`Error::PathRefused`](crate::Error::PathRefused) in strict mode,
    /// [`Error::Transfer`](crate::Error::Transfer), [`Error::Closed`](crate::Error::Closed),
    /// [`Error::Forked`](crate::Error::Forked).
    pub fn wait(mut self) -> Result<Message> {
        loop {
            if let Some(taken) = self.inner.wait(None) {
                return Reply::output(taken);
            }
        }
    }

    /// Waits at most `patience`. `None`: the answer may still come.
    pub fn wait_timeout(&mut self, patience: Duration) -> Option<Result<Message>> {
        self.inner.wait(Instant::now().checked_add(patience)).map(Reply::output)
    }
}

/// Sets a place aside for the answer, and sends the request.
fn post_request(
    shared: &Arc<Shared>,
    peer: PeerId,
    label: Label,
    payload: impl Payload,
) -> Result<OpKey> {
    // A handler's requests are charged as its answers are, or peers that never answer could make it
    // send requests without end.
    let origin = shared.origin_here();
    let short = payload.short();
    let mut engine = shared.enter()?;
    let answer = send::expect_answer(&mut engine, peer, label.id, origin)?;
    let label = Label { token: answer.index, ..label };
    if short.is_some_and(|short| send::call_at_once(&mut engine, peer, label, short)) {
        return Ok(answer);
    }
    drop(engine);
    // Outside the engine: the methods of a buffer are the user's code.
    let kept = keep(shared, payload);
    send::post_request(&mut *shared.enter()?, peer, label, answer, origin, kept)
}

impl Future for Reply {
    type Output = Result<Message>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Reply::output)
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
