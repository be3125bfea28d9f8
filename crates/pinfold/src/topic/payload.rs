//! Types that samples can be of.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A type that samples can be of: its bytes are all there is to it, and any bytes are one of it. It
/// is implemented for every type with `zerocopy`'s traits, which can be derived, and for slices of
/// them.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Pose {
///     at: [f64; 3],
///     turned: [f64; 4],
/// }
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-payload-{}", std::process::id());
/// let poses = Publisher::<Pose>::open(topic)?;
/// let subscriber = Subscriber::<Pose>::open(topic)?;
/// poses.send(&Pose { at: [1.0; 3], turned: [0.0; 4] })?;
/// assert_eq!(subscriber.recv()?.read()?.at, [1.0; 3]);
/// # Ok(())
/// # }
/// ```
pub trait Payload: FromBytes + IntoBytes + Immutable + KnownLayout + sealed::Sealed {
    /// The layout of a sample's memory.
    #[doc(hidden)]
    const SHAPE: Shape;
}

/// The layout of a type, or of the elements of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Shape {
    pub(super) bytes: u64,
    pub(super) align: u32,
    pub(super) is_slice: bool,
}

impl Shape {
    const fn of<T>(is_slice: bool) -> Shape {
        assert!(align_of::<T>() <= ALIGN_MAX, "samples are aligned to 4096 bytes at most");
        Shape { bytes: size_of::<T>() as u64, align: align_of::<T>() as u32, is_slice }
    }

    /// Returns whether so many bytes are a sample.
    pub(super) fn fits(&self, len: usize) -> bool {
        match (self.is_slice, self.bytes as usize) {
            (true, 0) => len == 0,
            (true, bytes) => len.is_multiple_of(bytes),
            (false, bytes) => len == bytes,
        }
    }
}

/// The coarsest alignment of a sample, bytes: a page, which all mappings keep.
const ALIGN_MAX: usize = 4096;

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Payload for T {
    const SHAPE: Shape = Shape::of::<T>(false);
}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout> Payload for [T] {
    const SHAPE: Shape = Shape::of::<T>(true);
}

mod sealed {
    pub trait Sealed {}
    impl<T> Sealed for T {}
    impl<T> Sealed for [T] {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_tell_types_apart() {
        let shapes = [
            <u64 as Payload>::SHAPE,
            <[u32; 2] as Payload>::SHAPE,
            <[u64] as Payload>::SHAPE,
            <[u8; 8] as Payload>::SHAPE,
        ];
        for (at, shape) in shapes.iter().enumerate() {
            assert!(shapes[..at].iter().all(|other| other != shape), "{shape:?}");
        }
    }

    #[test]
    fn lengths_fit_or_not() {
        assert!(<u64 as Payload>::SHAPE.fits(8) && !<u64 as Payload>::SHAPE.fits(16));
        assert!(<[u64] as Payload>::SHAPE.fits(16) && <[u64] as Payload>::SHAPE.fits(0));
        assert!(!<[u64] as Payload>::SHAPE.fits(12));
        assert!(<[()] as Payload>::SHAPE.fits(0) && !<[()] as Payload>::SHAPE.fits(1));
    }
}
