#![allow(unsafe_code)]
//! Operations on memory of peers that own their buffers: where the owner's endpoint performs them,
//! they go on while the caller does something else.
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
    remote::{Addressing, Remote},
    transfer::Does,
};
use crate::{
    Error, OwnedBuf, OwnedBufMut, Receipt, Result,
    endpoint::request::{Request, request_methods},
    memory::scatter::Part,
    protocol::rma::way::withdrawn,
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// A read or write that was posted; a future of its receipt and the buffer. See
/// [`Remote::write_owned`].
///
/// Dropped early it goes on to its end, and keeps the buffer until then.
///
/// ```
/// use pinfold::{Endpoint, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-copy-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// let writing = remote.write_owned(8, b"owned".to_vec());
/// let (receipt, buffer) = writing.wait(); // The buffer comes back.
/// assert_eq!((receipt?.bytes, &buffer[..]), (5, &b"owned"[..]));
/// assert_eq!(region.to_vec()?[8..13], buffer);
/// # Ok(())
/// # }
/// ```
#[must_use = "the result says whether the region stood"]
pub struct CopyRequest<B: Send + 'static> {
    inner: Request<B>,
}

/// An atomic operation that was posted; a future of the old value of its word. See
/// [`Remote::atomic`].
///
/// Dropped early it goes on to its end.
///
/// ```
/// use pinfold::{AtomicChange, Endpoint, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-atomic-request-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// let first = remote.atomic(0, AtomicChange::Add(1u64));
/// let second = remote.atomic(0, AtomicChange::Add(1u64)); // The first may not have ended yet.
/// assert_eq!((first.wait()?, second.wait()?), (0, 1)); // The old values of the word.
/// # Ok(())
/// # }
/// ```
#[must_use = "the result says whether the region stood"]
pub struct AtomicRequest<W: AtomicWord> {
    inner: Request<()>,
    word: PhantomData<fn() -> W>,
}

impl<N: Addressing> Remote<N> {
    /// Writes `buffer` at a place, and does not wait for the owner, if that performs the operation;
    /// elsewhere as [`Remote::write`], which has ended when this returns. Its end can go to a
    /// [`CompletionQueue`](crate::CompletionQueue).
    ///
    /// Operations on regions that are posted to one owner are performed in their order; those on
    /// memory by address are begun in it, and done in any.
    ///
    /// # Errors
    /// The result's: as for [`Remote::write`]; [`Error::Withdrawn`] if the peer is gone.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// # let name = format!("local:doc-space-{}", std::process::id());
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// use pinfold::{AtomicChange, Completed, CompletionQueue, Endpoint, Progress, Rights};
    ///
    /// // The owner lets peers use two words of its own.
    /// static WORDS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(40)];
    /// let owner = Endpoint::builder().listen(&name).progress(Progress::Dedicated).build()?;
    /// let start = WORDS.as_ptr().expose_provenance();
    /// // SAFETY: atomics may be changed by anybody at any time.
    /// let exposed = unsafe { owner.expose(start..start + 16, Rights::ReadWrite)? };
    ///
    /// // A peer knows the key, and uses them by their addresses.
    /// let user = Endpoint::new()?;
    /// let peer = user.connect(&name)?;
    /// let space = user.open_space(peer, &exposed.key())?;
    /// let at = space.addresses().start;
    /// let queue = CompletionQueue::new()?;
    /// queue.add(1, space.write_owned(at, 7u64.to_ne_bytes().to_vec()));
    /// queue.add(2, space.atomic(at + 8, AtomicChange::Add(2u64)));
    /// let mut ended = Vec::new();
    /// while queue.outstanding() > 0 {
    ///     queue.wait(&mut ended, 16, None)?;
    /// }
    /// for completion in ended {
    ///     match completion.result? {
    ///         Completed::Copied(receipt) => assert_eq!(receipt.bytes, 8),
    ///         Completed::Was(old) => assert_eq!((completion.context, old), (2, 40)),
    ///         other => panic!("{other:?}"),
    ///     }
    /// }
    /// assert_eq!(space.fetch_add(at + 8, 1u64)?, 42);
    /// exposed.revoke()?;
    /// assert_eq!(WORDS.each_ref().map(|word| word.load(Ordering::SeqCst)), [7, 43]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_owned<B: OwnedBuf + AsRef<[u8]>>(&self, at: u64, buffer: B) -> CopyRequest<B> {
        let data = buffer.as_ref();
        let here = self.offset(at, data.len()).and_then(|offset| {
            let done = self.0.write_here(offset, data).map_err(|error| self.told(error))?;
            Ok(done.ok_or(offset))
        });
        match here {
            Ok(Err(offset)) => CopyRequest::posted(&self.0.shared, buffer, |buffer| {
                let (ptr, len) = buffer.bytes();
                // SAFETY: `OwnedBuf` keeps the bytes in place; the request keeps the buffer until
                // the operation has ended.
                let memory = unsafe { Part::new(ptr.cast_mut(), len) };
                self.begin(offset, Does::Write(memory))
            }),
            done => CopyRequest::ended(&self.0.shared, ended(done), buffer),
        }
    }

    /// Reads the bytes at a place into `buffer`, likewise; as [`Remote::read`].
    ///
    /// # Errors
    /// The result's: as for [`Remote::read`]; [`Error::Withdrawn`] if the peer is gone.
    pub fn read_owned<B: OwnedBufMut + AsMut<[u8]>>(
        &self,
        at: u64,
        mut buffer: B,
    ) -> CopyRequest<B> {
        let into = buffer.as_mut();
        let here = self.offset(at, into.len()).and_then(|offset| {
            let done = self.0.read_here(offset, into).map_err(|error| self.told(error))?;
            Ok(done.ok_or(offset))
        });
        match here {
            Ok(Err(offset)) => CopyRequest::posted(&self.0.shared, buffer, |buffer| {
                let (ptr, len) = buffer.bytes_mut();
                // SAFETY: as in `write_owned`.
                let memory = unsafe { Part::new(ptr, len) };
                self.begin(offset, Does::Read(memory))
            }),
            done => CopyRequest::ended(&self.0.shared, ended(done), buffer),
        }
    }

    /// Changes the word at a place, likewise; as [`Remote::fetch_add`] and the other atomic
    /// operations.
    ///
    /// # Errors
    /// The result's: as for [`Remote::fetch_add`]; [`Error::Withdrawn`] if the peer is gone.
    pub fn atomic<W: AtomicWord>(&self, at: u64, change: AtomicChange<W>) -> AtomicRequest<W> {
        let here = self.offset(at, size_of::<W>()).and_then(|offset| {
            let was = self.0.change_here(offset, change).map_err(|error| self.told(error))?;
            Ok(was.ok_or(offset))
        });
        match here {
            Ok(Err(offset)) => {
                let posted = self.begin(offset, Does::Change(atomics::asked(change)));
                AtomicRequest::posted(&self.0.shared, posted)
            }
            done => AtomicRequest::ended(&self.0.shared, ended(done)),
        }
    }

    fn begin(&self, offset: u64, does: Does) -> Result<OpKey> {
        self.0.begin(offset, does).map_err(|error| self.told(error))
    }
}

/// The result of an operation that has ended, if it has.
fn ended<T>(done: Result<Result<T, u64>>) -> Result<T> {
    done.and_then(|done| done.map_err(|_| Error::Withdrawn))
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
