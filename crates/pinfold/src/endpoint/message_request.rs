//! Receives that bring no memory: their result is the message.

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
    request::{Request, request_methods},
};
use crate::{
    Result,
    worker::{
        matching::{Source, TagMatch},
        op::{Done, OpKey},
        post,
        shared::Shared,
    },
};

/// A receive in flight that brings no memory; a future of the message. Dropped early it is
/// withdrawn; a message that has matched it goes to the next receive that matches, before all later
/// ones.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-message-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let mut receive = endpoint.recv_request(peer, 7);
/// assert!(receive.try_wait().is_none()); // Nothing has come yet.
/// endpoint.send(itself, 7, b"now")?;
/// assert_eq!(&*receive.wait()?, b"now"); // A future: `receive.await` gives the same.
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping a request withdraws it"]
pub struct MessageRequest {
    inner: Request<()>,
}

impl MessageRequest {
    pub(crate) fn post(shared: &Arc<Shared>, from: Source, tag: TagMatch) -> MessageRequest {
        let posted =
            shared.enter().and_then(|mut engine| post::post_recv(&mut engine, from, tag, None));
        MessageRequest::of(shared, posted)
    }

    /// An operation posted.
    pub(crate) fn of(shared: &Arc<Shared>, posted: Result<OpKey>) -> MessageRequest {
        MessageRequest { inner: Request::of(shared, posted, ()) }
    }

    fn output((done, ()): (Result<Done>, ())) -> Result<Message> {
        post::arrived(done).map(Message::new)
    }

    pub(crate) fn into_request(self) -> Request<()> {
        self.inner
    }

    request_methods!(Result<Message>);
}

impl Future for MessageRequest {
    type Output = Result<Message>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

impl fmt::Debug for MessageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRequest").finish_non_exhaustive()
    }
}
