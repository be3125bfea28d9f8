//! Waiting for a message without taking it, while the caller does something else: a request, which
//! is a future.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    Envelope,
    request::{Request, request_methods},
};
use crate::{
    Error, Result,
    worker::{
        matching::{Source, TagMatch},
        op::Done,
        probes,
        shared::Shared,
    },
};

/// A wait for a message that stays where it is ([`Endpoint::probe_request`]); a future of its
/// [`Envelope`].
///
/// It can be dropped at any time: nothing was taken.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// use pinfold::Endpoint;
///
/// let name = format!("local:doc-probing-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?;
/// let mut probe = endpoint.probe_request(endpoint.accept()?, ..);
/// assert!(probe.try_wait().is_none());
/// endpoint.send(itself, 7, b"here")?;
/// let envelope = probe.wait()?;
/// assert_eq!((envelope.tag, envelope.len), (7, 4));
/// assert_eq!(&*endpoint.recv(envelope.peer, 7)?, b"here");
/// # Ok(())
/// # }
/// ```
///
/// [`Endpoint::probe_request`]: crate::Endpoint::probe_request
#[must_use = "dropping a request ends the wait"]
pub struct ProbeRequest {
    inner: Request<()>,
}

impl ProbeRequest {
    pub(crate) fn post(shared: &Arc<Shared>, from: Source, tag: TagMatch) -> ProbeRequest {
        let posted = shared.enter().and_then(|mut engine| probes::post(&mut engine, from, tag));
        ProbeRequest { inner: Request::of(shared, posted, ()) }
    }

    fn output((done, ()): (Result<Done>, ())) -> Result<Envelope> {
        match done? {
            Done::Probed(envelope) => Ok(envelope),
            _ => Err(Error::Closed),
        }
    }

    request_methods!(Result<Envelope>);
}

impl Future for ProbeRequest {
    type Output = Result<Envelope>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

impl fmt::Debug for ProbeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeRequest").finish_non_exhaustive()
    }
}
