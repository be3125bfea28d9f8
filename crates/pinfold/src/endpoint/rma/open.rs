//! Memory of peers that is opened without a wait.

use std::{
    fmt,
    marker::PhantomData,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    ByAddress, ByOffset, RegionKey,
    access::{Inner, Owner},
    remote::{Addressing, Remote},
};
use crate::{
    Endpoint, Error, PeerId, Result,
    endpoint::request::{Request, request_methods},
    worker::op::Done,
};

/// The opening of memory of a peer that was asked for. Dropped early it is forgotten.
///
/// ```
/// use pinfold::{Endpoint, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-open-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::Read)?;
/// let opening = endpoint.open_region_request(itself, &region.key().unwrap());
/// region.write(0, b"meanwhile")?; // The program goes on while the owner is asked.
/// let remote = opening.wait()?;
/// let mut bytes = [0; 9];
/// remote.read(0, &mut bytes)?;
/// assert_eq!(&bytes, b"meanwhile");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, it opens nothing"]
pub struct OpenRequest<N: Addressing> {
    inner: Request<Asked>,
    addressing: PhantomData<N>,
}

/// The memory that was asked for, and the endpoint that did.
struct Asked {
    endpoint: std::sync::Weak<crate::worker::shared::Shared>,
    owner: Option<Owner>,
    key: RegionKey,
}

impl Endpoint {
    /// As [`Endpoint::open_region`], but does not wait for the owner.
    ///
    /// # Errors
    /// The result's: as [`Endpoint::open_region`].
    pub fn open_region_request(&self, peer: PeerId, key: &RegionKey) -> OpenRequest<ByOffset> {
        OpenRequest::post(self, peer, key)
    }

    /// As [`Endpoint::open_space`], but does not wait for the owner.
    ///
    /// # Errors
    /// The result's: as [`Endpoint::open_space`].
    pub fn open_space_request(&self, peer: PeerId, key: &RegionKey) -> OpenRequest<ByAddress> {
        OpenRequest::post(self, peer, key)
    }
}

impl<N: Addressing> OpenRequest<N> {
    fn post(endpoint: &Endpoint, peer: PeerId, key: &RegionKey) -> OpenRequest<N> {
        let shared = endpoint.shared();
        let (posted, owner) = match Inner::ask(shared, peer, key) {
            Ok((op, owner)) => (Ok(op), Some(owner)),
            Err(error) => (Err(error), None),
        };
        let asked = Asked { endpoint: Arc::downgrade(shared), owner, key: *key };
        OpenRequest { inner: Request::of(shared, posted, asked), addressing: PhantomData }
    }

    fn output((done, asked): (Result<Done>, Asked)) -> Result<Remote<N>> {
        let Asked { endpoint, owner, key } = asked;
        let (done, shared) = (done?, endpoint.upgrade().ok_or(Error::Closed)?);
        Inner::opened(&shared, owner.ok_or(Error::Closed)?, &key, Ok(done)).map(Remote::of)
    }

    request_methods!(Result<Remote<N>>);
}

impl<N: Addressing> fmt::Debug for OpenRequest<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRequest").finish_non_exhaustive()
    }
}
