//! Connecting and accepting while the caller does something else: requests, which are futures.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::request::{Request, request_methods};
use crate::{
    PeerId, Result,
    worker::{
        connections::{
            accepts,
            requests::{self, Called},
        },
        op::Done,
        post,
        shared::Shared,
    },
};

/// The endpoint of a request. It takes the place of a buffer, and so comes along to a queue.
pub(crate) type Home = Weak<Shared>;

fn output((done, _): (Result<Done>, Home)) -> Result<PeerId> {
    post::joined(done)
}

/// A call to another endpoint, in progress ([`Endpoint::connect_request`]); a future of the peer.
///
/// Dropped early it is given up: what it has opened is closed, and a peer that was connected
/// meanwhile is disconnected. One that is leaked goes on to its end, and its peer stays.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-connect-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let calling = endpoint.connect_request(&name); // The call goes on while the program does.
/// let caller = endpoint.accept()?;
/// let itself = calling.wait()?; // A future: `calling.await` gives the same.
/// endpoint.send(itself, 1, b"hello")?;
/// assert_eq!(&*endpoint.recv(caller, 1)?, b"hello");
/// # Ok(())
/// # }
/// ```
///
/// [`Endpoint::connect_request`]: crate::Endpoint::connect_request
#[must_use = "dropping a request gives the call up"]
pub struct ConnectRequest {
    inner: Request<Home>,
}

impl ConnectRequest {
    /// Calls the endpoint at `address`; with `patience`, an obstacle has so long to pass.
    pub(crate) fn post(
        shared: &Arc<Shared>,
        address: &str,
        patience: Option<Duration>,
    ) -> ConnectRequest {
        let posted = Called::parse(address)
            .and_then(|called| requests::post_connect(&mut *shared.enter()?, &called, patience));
        ConnectRequest { inner: Request::of(shared, posted, Arc::downgrade(shared)) }
    }

    fn output(ended: (Result<Done>, Home)) -> Result<PeerId> {
        output(ended)
    }

    pub(crate) fn into_request(self) -> Request<Home> {
        self.inner
    }

    request_methods!(Result<PeerId>);
}

impl Future for ConnectRequest {
    type Output = Result<PeerId>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(output)
    }
}

/// A wait for the next peer that calls, in progress ([`Endpoint::accept_request`]); a future of the
/// peer.
///
/// Dropped early it takes no peer: one that it has been given goes to the next that accepts, before
/// those that came later. One that is leaked keeps the peer that it gets.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-accept-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let mut accepting = endpoint.accept_request();
/// assert!(accepting.try_wait().is_none()); // Nobody has called yet.
/// endpoint.connect(&name)?;
/// let caller = accepting.wait()?;
/// assert_eq!(endpoint.peer(caller).map(|info| info.pid), Some(std::process::id()));
/// # Ok(())
/// # }
/// ```
///
/// [`Endpoint::accept_request`]: crate::Endpoint::accept_request
#[must_use = "dropping a request ends the wait"]
pub struct AcceptRequest {
    inner: Request<Home>,
}

impl AcceptRequest {
    pub(crate) fn post(shared: &Arc<Shared>) -> AcceptRequest {
        let posted = shared.enter().and_then(|mut engine| accepts::post_accept(&mut engine));
        AcceptRequest { inner: Request::of(shared, posted, Arc::downgrade(shared)) }
    }

    fn output(ended: (Result<Done>, Home)) -> Result<PeerId> {
        output(ended)
    }

    pub(crate) fn into_request(self) -> Request<Home> {
        self.inner
    }

    request_methods!(Result<PeerId>);
}

impl Future for AcceptRequest {
    type Output = Result<PeerId>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(output)
    }
}

impl fmt::Debug for ConnectRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectRequest").finish_non_exhaustive()
    }
}

impl fmt::Debug for AcceptRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptRequest").finish_non_exhaustive()
    }
}
