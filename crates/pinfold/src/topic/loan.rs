//! A sample that is being written.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use zerocopy::IntoBytes;

use super::{
    payload::Payload,
    stamp::{self, Stamp},
};
use crate::{Arena, ArenaBuf, DonatedBuf, Error, Result};

/// A sample that its publisher writes, where subscribers will read it. It dereferences to the
/// sample, which has the bytes of an earlier one, or zeros, at first. Dropping it unpublished gives
/// the memory back.
///
/// ```
/// use pinfold::topic::Publisher;
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-loan-{}", std::process::id());
/// let publisher = Publisher::<[u16]>::open(topic)?;
/// let mut line = publisher.loan_slice(640)?;
/// line.fill(0);
/// line[320] = 700;
/// publisher.publish(line)?;
/// # Ok(())
/// # }
/// ```
pub struct Loan<T: Payload + ?Sized> {
    buf: ArenaBuf,
    _lent: Lent,
    of: PhantomData<T>,
}

/// The loans of a publisher.
#[derive(Debug)]
pub(super) struct Loans {
    lent: Arc<AtomicUsize>,
    max: usize,
}

/// One of them.
struct Lent(Arc<AtomicUsize>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Loans {
    pub(super) fn new(max: usize) -> Loans {
        Loans { lent: Arc::default(), max }
    }

    /// # Errors
    /// [`Error::LimitReached`] if all are lent; as [`Arena::alloc`].
    #[inline]
    pub(super) fn lend<T: Payload + ?Sized>(&self, arena: &Arena, len: usize) -> Result<Loan<T>> {
        let before = self.lent.fetch_add(1, Relaxed);
        let lent = Lent(Arc::clone(&self.lent));
        if before >= self.max {
            return Err(Error::LimitReached {
                what: "the number of a publisher's loans",
                limit: self.max as u64,
                remedy: "publish or drop some, or raise PublisherBuilder::loans",
            });
        }
        let room = stamp::room(T::SHAPE);
        let whole = room.checked_add(len).ok_or(Error::LimitReached {
            what: "the length of a sample",
            limit: (usize::MAX - room) as u64,
            remedy: "use several samples",
        })?;
        let buf = arena.alloc_aligned(whole, stamp::align(T::SHAPE))?;
        Ok(Loan { buf, _lent: lent, of: PhantomData })
    }
}

impl<T: Payload + ?Sized> Loan<T> {
    const ROOM: usize = stamp::room(T::SHAPE);

    /// The sample as it is given to subscribers.
    #[inline]
    pub(super) fn stamped(mut self, stamp: Stamp) -> DonatedBuf {
        self.buf[..size_of::<Stamp>()].copy_from_slice(stamp.as_bytes());
        self.buf.into()
    }
}

impl<T: Payload + ?Sized> Deref for Loan<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        let sample = T::ref_from_bytes(&self.buf[Self::ROOM..]);
        // Its length fits, and `ROOM` is a multiple of its alignment.
        sample.unwrap_or_else(|_| unreachable!("a loan is a sample"))
    }
}

impl<T: Payload + ?Sized> DerefMut for Loan<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        let sample = T::mut_from_bytes(&mut self.buf[Self::ROOM..]);
        sample.unwrap_or_else(|_| unreachable!("a loan is a sample"))
    }
}

impl<T: Payload + ?Sized> fmt::Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.buf.len() - Self::ROOM;
        f.debug_struct("Loan").field("bytes", &bytes).finish_non_exhaustive()
    }
}
