#![allow(unsafe_code)]
//! Operations on regions, and other memory, of peers that own their buffers: where the owner's
//! endpoint performs them, they go on while the caller does something else.
//!
//! **Invariant.** As for all [requests](crate::endpoint::request): the bytes of a buffer are the
//! operation's until it has ended.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use super::{
    atomics::{self, AtomicChange, AtomicWord},
    remote::RemoteRegion,
    served::{withdrawn, words_of},
};
use crate::{
    Error, OwnedBuf, OwnedBufMut, Receipt, Result,
    endpoint::request::{Request, request_methods},
    memory::scatter::Scatter,
    wire::served_rma::BRIEF_MAX,
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// A read or write that was posted; a future of its receipt and the buffer. See
/// [`RemoteRegion::write_owned`] and [`RemoteSpace::write_owned`](crate::RemoteSpace::write_owned).
///
/// Dropped early it goes on to its end, and keeps the buffer until then.
#[must_use = "the result says whether the region stood"]
pub struct CopyRequest<B: Send + 'static> {
    inner: Request<B>,
}

/// An atomic operation that was posted; a future of the old value of its word. See
/// [`RemoteRegion::atomic`] and [`RemoteSpace::atomic`](crate::RemoteSpace::atomic).
///
/// Dropped early it goes on to its end.
#[must_use = "the result says whether the region stood"]
pub struct AtomicRequest<W: AtomicWord> {
    inner: Request<()>,
    word: PhantomData<fn() -> W>,
}

impl RemoteRegion {
    /// Writes `buffer` at `offset`, and does not wait for the region's owner, if that performs the
    /// operation; elsewhere as [`RemoteRegion::write`], which has ended when this returns.
    /// Operations that are posted to one owner are performed in their order.
    pub fn write_owned<B: OwnedBuf + AsRef<[u8]>>(&self, offset: u64, buffer: B) -> CopyRequest<B> {
        let Some(served) = self.served() else {
            let done = self.write(offset, buffer.as_ref());
            return CopyRequest::ended(self.shared(), done, buffer);
        };
        self.tallies().wrote(buffer.as_ref().len() as u64);
        let data = buffer.as_ref();
        let short = (data.len() <= BRIEF_MAX).then(|| words_of(data));
        CopyRequest::posted(served.shared(), buffer, |buffer| {
            let (ptr, len) = buffer.bytes();
            // SAFETY: `OwnedBuf` keeps the bytes in place; the request keeps the buffer until the
            // operation has ended.
            served.begin_write(offset, unsafe { Scatter::one(ptr.cast_mut(), len) }, short)
        })
    }

    /// Reads the bytes at `offset` into `buffer`, likewise; as [`RemoteRegion::read`].
    pub fn read_owned<B: OwnedBufMut + AsMut<[u8]>>(
        &self,
        offset: u64,
        mut buffer: B,
    ) -> CopyRequest<B> {
        let Some(served) = self.served() else {
            let done = self.read(offset, buffer.as_mut());
            return CopyRequest::ended(self.shared(), done, buffer);
        };
        self.tallies().read(buffer.as_mut().len() as u64);
        CopyRequest::posted(served.shared(), buffer, |buffer| {
            let (ptr, len) = buffer.bytes_mut();
            // SAFETY: as above.
            served.begin_read(offset, unsafe { Scatter::one(ptr, len) })
        })
    }

    /// Changes the word at `offset`, likewise; as [`RemoteRegion::fetch_add`] and the other atomic
    /// operations.
    pub fn atomic<W: AtomicWord>(&self, offset: u64, change: AtomicChange<W>) -> AtomicRequest<W> {
        let Some(served) = self.served() else {
            return AtomicRequest::ended(self.shared(), self.change(offset, change));
        };
        self.tallies().changed();
        let posted = served.begin_change(offset, atomics::asked(change));
        AtomicRequest::posted(served.shared(), posted)
    }
}

impl<B: Send + 'static> CopyRequest<B> {
    /// A request that has ended.
    pub(crate) fn ended(shared: &Arc<Shared>, done: Result<Receipt>, buffer: B) -> CopyRequest<B> {
        CopyRequest { inner: Request::ended(shared, done.map(Done::Sent), buffer) }
    }

    /// A request that `post` posts for the buffer, which does not move meanwhile.
    pub(crate) fn posted(
        shared: &Arc<Shared>,
        buffer: B,
        post: impl FnOnce(&mut B) -> Result<OpKey>,
    ) -> CopyRequest<B> {
        CopyRequest { inner: Request::post_with(shared, buffer, post) }
    }

    pub(crate) fn into_request(self) -> Request<B> {
        self.inner
    }

    pub(crate) fn receipt(done: Result<Done>) -> Result<Receipt> {
        match done.map_err(withdrawn)? {
            Done::Sent(receipt) => Ok(receipt),
            _ => Err(Error::Withdrawn),
        }
    }

    fn output((done, buffer): (Result<Done>, B)) -> (Result<Receipt>, B) {
        (CopyRequest::<B>::receipt(done), buffer)
    }

    request_methods!((Result<Receipt>, B));
}

impl<W: AtomicWord> AtomicRequest<W> {
    /// A request that has ended.
    pub(crate) fn ended(shared: &Arc<Shared>, was: Result<W>) -> AtomicRequest<W> {
        let done = was.map(|word| Done::Was(atomics::bits(word)));
        AtomicRequest { inner: Request::ended(shared, done, ()), word: PhantomData }
    }

    /// A request that was posted, or could not be.
    pub(crate) fn posted(shared: &Arc<Shared>, posted: Result<OpKey>) -> AtomicRequest<W> {
        AtomicRequest { inner: Request::of(shared, posted, ()), word: PhantomData }
    }

    pub(crate) fn into_request(self) -> Request<()> {
        self.inner
    }

    pub(crate) fn bits(done: Result<Done>) -> Result<u64> {
        match done.map_err(withdrawn)? {
            Done::Was(bits) => Ok(bits),
            _ => Err(Error::Withdrawn),
        }
    }

    fn output((done, ()): (Result<Done>, ())) -> Result<W> {
        AtomicRequest::<W>::bits(done).map(atomics::of_bits)
    }

    request_methods!(Result<W>);
}

impl<B: Send + Unpin + 'static> Future for CopyRequest<B> {
    type Output = (Result<Receipt>, B);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

impl<W: AtomicWord> Future for AtomicRequest<W> {
    type Output = Result<W>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context).map(Self::output)
    }
}

impl<B: Send + 'static> fmt::Debug for CopyRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyRequest").finish_non_exhaustive()
    }
}

impl<W: AtomicWord> fmt::Debug for AtomicRequest<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicRequest").finish_non_exhaustive()
    }
}
