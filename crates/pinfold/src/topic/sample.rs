#![allow(unsafe_code)]
//! A sample that came.

use std::{fmt, marker::PhantomData};

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    payload::Payload,
    stamp::{self, Stamp},
};
use crate::{Error, PeerId, Result, View};

/// A sample, in its publisher's memory. Dropping it gives the memory back; it stays good when its
/// publisher is dropped or dies.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-sample-{}", std::process::id());
/// let publisher = Publisher::<[u32]>::open(topic)?;
/// let subscriber = Subscriber::<[u32]>::open(topic)?;
/// publisher.send(&[10, 20, 30])?;
/// let sample = subscriber.recv()?;
/// assert_eq!((sample.len(), sample.read_at(1)?), (3, 20));
/// assert_eq!(sample.to_vec()?, [10, 20, 30]);
/// assert_eq!((sample.number(), sample.missed()), (0, 0));
/// # Ok(())
/// # }
/// ```
pub struct Sample<'a, T: Payload + ?Sized> {
    view: View<'a>,
    stamp: Stamp,
    missed: u64,
    of: PhantomData<fn() -> Box<T>>,
}

impl<'a, T: Payload + ?Sized> Sample<'a, T> {
    const ROOM: usize = stamp::room(T::SHAPE);

    /// # Errors
    /// The view, if it is none of the type.
    #[inline]
    pub(super) fn new(view: View<'a>) -> std::result::Result<Sample<'a, T>, View<'a>> {
        let fits = view.len().checked_sub(Self::ROOM).is_some_and(|len| T::SHAPE.fits(len));
        let mut stamp = Stamp::new_zeroed();
        if !fits || view.read(0, stamp.as_mut_bytes()).is_err() {
            return Err(view);
        }
        Ok(Sample { view, stamp, missed: 0, of: PhantomData })
    }

    /// `missed` samples of its publisher's did not come before it.
    #[inline]
    pub(super) fn after(mut self, missed: u64) -> Sample<'a, T> {
        self.missed = missed;
        self
    }

    pub(super) fn publisher(&self) -> u128 {
        self.stamp.publisher()
    }

    /// The same sample, independent of the subscriber's handle.
    pub fn into_owned(self) -> Sample<'static, T> {
        let Sample { view, stamp, missed, of } = self;
        Sample { view: view.into_owned(), stamp, missed, of }
    }

    /// The connection to its publisher.
    pub fn peer(&self) -> PeerId {
        self.view.peer()
    }

    /// The number of samples that its publisher published before it.
    pub fn number(&self) -> u64 {
        self.stamp.number()
    }

    /// The number of samples between the one that came from the same publisher before it and this
    /// one: they were replaced by newer ones while this subscriber was slow. 0 for the first.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The message: [how it came](View::receipt), and its bytes, from offset 32 on, or from the
    /// type's alignment on if that is more.
    pub fn view(&self) -> &View<'a> {
        &self.view
    }

    /// The sample where it is.
    ///
    /// # Errors
    /// As [`Sample::read_at`]; [`Error::Misaligned`] if the memory could not be mapped, and the
    /// copy in its place is not aligned.
    ///
    /// # Safety
    /// Nothing writes the sample while it is used: the publisher's process is trusted not to, which
    /// a [`Publisher`](super::Publisher) never does.
    pub unsafe fn get(&self) -> Result<&T> {
        // SAFETY: by contract; and only dropping the subscriber closes the connection, after which
        // the bytes may be read all the same.
        let bytes = unsafe { self.view.as_slice() }?;
        T::ref_from_bytes(&bytes[Self::ROOM..]).map_err(|_| Error::Misaligned {
            offset: bytes.as_ptr().addr() as u64,
            size: T::SHAPE.align.into(),
        })
    }

    /// Copies bytes of the sample out.
    #[inline]
    fn read_bytes(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.view.read(Self::ROOM.saturating_add(offset), into)
    }
}

impl<T: Payload> Sample<'_, T> {
    /// A copy of the sample.
    ///
    /// # Errors
    /// [`Error::Withdrawn`] if the connection was cut by its publisher, or the subscriber dropped;
    /// [`Error::Os`] if the publisher has no memory behind its file; [`Error::Forked`].
    #[inline]
    pub fn read(&self) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read_bytes(0, value.as_mut_bytes())?;
        Ok(value)
    }
}

impl<E: FromBytes + IntoBytes> Sample<'_, [E]>
where
    [E]: Payload,
{
    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        (self.view.len() - Self::ROOM).checked_div(size_of::<E>()).unwrap_or(0)
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of an element.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] if there is none; [`Error::Withdrawn`] if the connection was cut by
    /// its publisher, or the subscriber dropped; [`Error::Os`] if the publisher has no memory
    /// behind its file; [`Error::Forked`].
    #[inline]
    pub fn read_at(&self, index: usize) -> Result<E> {
        let mut value = E::new_zeroed();
        self.read_bytes(index.saturating_mul(size_of::<E>()), value.as_mut_bytes())?;
        Ok(value)
    }

    /// Copies the elements from `first` on into a slice, which they fill.
    ///
    /// # Errors
    /// As [`Sample::read_at`].
    pub fn read_into(&self, first: usize, into: &mut [E]) -> Result<()> {
        self.read_bytes(first.saturating_mul(size_of::<E>()), into.as_mut_bytes())
    }

    /// A copy of all elements.
    ///
    /// # Errors
    /// As [`Sample::read_at`].
    pub fn to_vec(&self) -> Result<Vec<E>> {
        let mut all: Vec<E> = (0..self.len()).map(|_| E::new_zeroed()).collect();
        self.read_bytes(0, all.as_mut_bytes())?;
        Ok(all)
    }
}

impl<T: Payload + ?Sized> fmt::Debug for Sample<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("peer", &self.peer())
            .field("number", &self.number())
            .field("missed", &self.missed)
            .finish_non_exhaustive()
    }
}
