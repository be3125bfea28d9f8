//! The stamp in front of a sample: its publisher and its number.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U64, U128},
};

use super::payload::Shape;

/// Room for the stamp, bytes, or more if that keeps the sample behind it aligned: so the first 32
/// bytes of most samples come with the stamp, in one cache line.
const ROOM_MIN: usize = 32;

const LINE_BYTES: usize = 64;

/// The first bytes of a sample's memory.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Stamp {
    publisher: U128,
    number: U64,
}

impl Stamp {
    /// Sample `number` of a publisher, from 0.
    pub(super) fn new(publisher: u128, number: u64) -> Stamp {
        Stamp { publisher: publisher.into(), number: number.into() }
    }

    pub(super) fn publisher(&self) -> u128 {
        self.publisher.get()
    }

    pub(super) fn number(&self) -> u64 {
        self.number.get()
    }
}

/// The alignment of a sample's memory: a cache line at least.
pub(super) const fn align(shape: Shape) -> usize {
    if room(shape) > LINE_BYTES { room(shape) } else { LINE_BYTES }
}

/// Bytes from the beginning of a sample's memory to the sample.
pub(super) const fn room(shape: Shape) -> usize {
    if shape.align as usize > ROOM_MIN { shape.align as usize } else { ROOM_MIN }
}

const _: () = assert!(size_of::<Stamp>() <= ROOM_MIN);
