//! The stamp in front of a sample: its publisher and its number.

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U64, U128},
};

use super::payload::Shape;

/// Room for the stamp, bytes: a cache line, or what keeps the sample behind it aligned.
const ROOM_MIN: usize = 64;

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

/// Bytes from the beginning of a sample's memory to the sample.
pub(super) const fn room(shape: Shape) -> usize {
    if shape.align as usize > ROOM_MIN { shape.align as usize } else { ROOM_MIN }
}

const _: () = assert!(size_of::<Stamp>() <= ROOM_MIN);
