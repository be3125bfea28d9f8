//! The layout of the memory that a pair of peers shares.
//!
//! One sealed memfd per pair, mapped by both. It is sparse: a page costs memory once it has been
//! touched, so the file has room for the largest rings and an idle pair pays for three pages.
//!
//! ```text
//! 0        control page: per direction the consumer's cursor line, the bell, the space bell;
//!          then the claim lines of transfers that both sides copy; then the lines by which one side
//!          says where it is in the other's memory
//! 4 KiB    descriptors, direction 0 (towards the connecting side)
//! 68 KiB   descriptors, direction 1 (towards the accepting side)
//! 256 KiB  bulk bytes, direction 0
//! 512 KiB  bulk bytes, direction 1
//! ```

use std::mem::size_of;

/// Bytes of one cache line; every word that one side writes and the other polls has its own.
pub(crate) const LINE: usize = 64;
/// Bytes of one descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 64;
/// Words of one descriptor.
pub(crate) const DESCRIPTOR_WORDS: usize = DESCRIPTOR_BYTES / size_of::<u64>();
/// Descriptors of a ring that has not grown: one page.
pub(crate) const RING_SLOTS_MIN: u32 = 64;
/// The most descriptors of a ring.
pub(crate) const RING_SLOTS_MAX: u32 = 1024;
/// Bulk bytes that a direction may always use: one page.
pub(crate) const BULK_BYTES_MIN: u32 = 4096;
/// The most bulk bytes of a direction.
pub(crate) const BULK_BYTES_MAX: u32 = 256 << 10;
/// Claim lines per direction: transfers that both sides copy at the same time.
pub(crate) const CLAIMS: u32 = 8;
/// Messages per direction that the receiver has asked for through the ring, and may take over.
/// Their words stand beside those of the claim lines.
pub(crate) const REQUESTS: u32 = CLAIMS * (LINE / size_of::<u64>() - 2) as u32;
/// Threads of one side that can use regions of the other through the kernel at the same time.
pub(crate) const HAZARDS: u32 = 32;

/// Pieces of a direction for which the producer can ask at the same time how long copying them out
/// took.
pub(crate) const SAMPLES: usize = 4;

/// Messages of a direction for which the producer can ask at the same time how long they took.
pub(crate) const FRAGMENT_SAMPLES: usize = 2;

const PAGE: usize = 4096;
const RING_BYTES: usize = RING_SLOTS_MAX as usize * DESCRIPTOR_BYTES;
const DIRECTION_CONTROL: usize = 1024;
const RINGS_AT: usize = PAGE;
const BULK_AT: usize = 256 << 10;

/// Bytes that one direction of a pair may grow by, in slots and bulk bytes, if the budget of its
/// sending endpoint has them.
#[cfg(feature = "internals")]
pub const LANE_GROWTH_MAX: usize = RING_BYTES - RING_SLOTS_MIN as usize * DESCRIPTOR_BYTES
    + (BULK_BYTES_MAX - BULK_BYTES_MIN) as usize;

/// Bytes of a pair whose lanes have not grown, and both have been used: the control page, and for
/// each direction a page of descriptors and one of bulk bytes.
#[cfg(feature = "internals")]
pub const PAIR_BYTES_MIN: usize =
    PAGE + 2 * (RING_SLOTS_MIN as usize * DESCRIPTOR_BYTES + BULK_BYTES_MIN as usize);

/// Bytes of the file behind one pair's segment.
pub(crate) const SEGMENT_BYTES: usize = BULK_AT + 2 * BULK_BYTES_MAX as usize;

const _: () = assert!(RINGS_AT + 2 * RING_BYTES <= BULK_AT);
const _: () = assert!(RING_SLOTS_MIN as usize * DESCRIPTOR_BYTES == PAGE);
const _: () = assert!(BULK_BYTES_MIN as usize == PAGE);
const _: () = assert!(BULK_AT.is_multiple_of(PAGE) && SEGMENT_BYTES.is_multiple_of(PAGE));
const HAZARDS_AT: usize = (3 + CLAIMS as usize) * LINE;
const WITHDRAWALS_AT: usize =
    HAZARDS_AT + (HAZARDS as usize * size_of::<u64>()).next_multiple_of(LINE);
const _: () = assert!(WITHDRAWALS_AT + LINE <= DIRECTION_CONTROL);
const _: () = assert!((1 + SAMPLES + FRAGMENT_SAMPLES) * size_of::<u64>() <= LINE);

/// The direction in which a lane carries messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the accepting to the connecting side.
    ToConnecting,
    /// From the connecting to the accepting side.
    ToAccepting,
}

impl Direction {
    const fn index(self) -> usize {
        match self {
            Direction::ToConnecting => 0,
            Direction::ToAccepting => 1,
        }
    }

    /// The other way.
    pub(crate) const fn reverse(self) -> Direction {
        match self {
            Direction::ToConnecting => Direction::ToAccepting,
            Direction::ToAccepting => Direction::ToConnecting,
        }
    }

    /// Offset of the line the consumer writes: descriptors consumed, credit released, speed,
    /// donated buffers given back, and whether all memory was let go of.
    pub(crate) const fn cursor_at(self) -> usize {
        self.index() * DIRECTION_CONTROL
    }

    /// Offset of the consumer's bell: set while it wants to be rung for new descriptors.
    pub(crate) const fn bell_at(self) -> usize {
        self.cursor_at() + LINE
    }

    /// Offset of the word in which the producer says when it last rang, on the clock of both, ns.
    pub(crate) const fn rung_at(self) -> usize {
        self.bell_at() + LINE / 2
    }

    /// Offset of the producer's bell: set while it wants to be rung for room.
    pub(crate) const fn space_bell_at(self) -> usize {
        self.cursor_at() + 2 * LINE
    }

    /// Offset of the word by which the producer says that it closes the lane, and whether it leaves
    /// the memory it gave.
    pub(crate) const fn closed_at(self) -> usize {
        self.space_bell_at() + LINE / 2
    }

    /// Offset of claim line `index`, below [`CLAIMS`].
    pub(crate) const fn claim_at(self, index: u32) -> usize {
        assert!(index < CLAIMS);
        self.cursor_at() + (3 + index as usize) * LINE
    }

    /// Offset of the word in which the sender reports the chunks that it has written of the
    /// transfer with claim line `index`.
    pub(crate) const fn report_at(self, index: u32) -> usize {
        self.claim_at(index) + size_of::<u64>()
    }

    /// Offset of the word of request `index`, below [`REQUESTS`].
    pub(crate) const fn request_at(self, index: u32) -> usize {
        assert!(index < REQUESTS);
        self.claim_at(index % CLAIMS) + (2 + (index / CLAIMS) as usize) * size_of::<u64>()
    }

    /// Offset of the word by which a thread of the producer's says which of the consumer's regions
    /// it uses; `index` is below [`HAZARDS`].
    pub(crate) const fn hazard_at(self, index: u32) -> usize {
        assert!(index < HAZARDS);
        self.cursor_at() + HAZARDS_AT + index as usize * size_of::<u64>()
    }

    /// Offset of the word in which the consumer counts the regions that it has withdrawn.
    pub(crate) const fn withdrawals_at(self) -> usize {
        self.cursor_at() + WITHDRAWALS_AT
    }

    /// Offset of the word in which the consumer says how long copying out the piece with sample
    /// number `number` took: the number in the upper byte, below it nanoseconds.
    pub(crate) const fn sample_at(self, number: u8) -> usize {
        self.withdrawals_at() + (1 + number as usize % SAMPLES) * size_of::<u64>()
    }

    /// Offset of the word in which the consumer says how long the message took whose first piece
    /// has sample number `number`: the number in the upper byte, below it nanoseconds.
    pub(crate) const fn fragment_sample_at(self, number: u8) -> usize {
        self.withdrawals_at()
            + (1 + SAMPLES + number as usize % FRAGMENT_SAMPLES) * size_of::<u64>()
    }

    /// Offset of the descriptor ring.
    pub(crate) const fn ring_at(self) -> usize {
        RINGS_AT + self.index() * RING_BYTES
    }

    /// Offset of the bulk bytes.
    pub(crate) const fn bulk_at(self) -> usize {
        BULK_AT + self.index() * BULK_BYTES_MAX as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        let mut parts = Vec::new();
        for way in [Direction::ToConnecting, Direction::ToAccepting] {
            parts.push((way.cursor_at(), LINE));
            parts.push((way.bell_at(), LINE));
            parts.push((way.space_bell_at(), LINE));
            parts.extend((0..CLAIMS).map(|i| (way.claim_at(i), size_of::<u64>())));
            parts.extend((0..CLAIMS).map(|i| (way.report_at(i), size_of::<u64>())));
            parts.extend((0..REQUESTS).map(|i| (way.request_at(i), size_of::<u64>())));
            parts.extend((0..HAZARDS).map(|i| (way.hazard_at(i), size_of::<u64>())));
            parts.push((way.withdrawals_at(), LINE));
            parts.push((way.ring_at(), RING_BYTES));
            parts.push((way.bulk_at(), BULK_BYTES_MAX as usize));
        }
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
        }
        let (at, len) = parts[parts.len() - 1];
        assert!(at + len <= SEGMENT_BYTES);
    }
}
