//! The bytes of a piece that are whole pages, and their number.

use super::{
    super::{HUGE_BYTES, PAGE_BYTES},
    Bytes, Piece,
};

const PAGE: u64 = PAGE_BYTES as u64;
const HUGE: u64 = HUGE_BYTES as u64;

/// A piece at its place in the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Its bytes, by their offsets in the message.
    pub(super) all: Bytes,
    /// Those in pages that lie alike on both sides; may go beyond the end of the message, to the
    /// end of its last page. Empty if there are none.
    pub(super) pages: Bytes,
    /// Those in huge pages that lie alike.
    pub(super) huge: Bytes,
}

impl Shape {
    /// Of the piece that begins at byte `to` of the message, which begins at a multiple of `align`;
    /// `last` if no other piece comes behind it.
    pub(super) fn of(piece: &Piece, to: u64, align: u64, last: bool) -> Shape {
        let all = to..to + piece.len;
        let behind = if last { to + piece.room.max(piece.len) } else { all.end };
        let whole = |unit: u64| {
            let alike = align >= unit && piece.at % unit == to % unit;
            let start = to.next_multiple_of(unit);
            // No further than to the end of the unit that the last byte is in.
            let end = behind.min(all.end.next_multiple_of(unit)) / unit * unit;
            if alike && start < all.end && start < end { start..end } else { to..to }
        };
        let huge = if piece.huge { whole(HUGE) } else { to..to };
        let pages = whole(PAGE);
        Shape { all, pages, huge }
    }

    /// The bytes before and behind a part.
    pub(super) fn rest(&self, part: &Bytes) -> [Bytes; 2] {
        [self.all.start..part.start, part.end.min(self.all.end)..self.all.end]
    }

    /// Pages of 4 KiB in a part, without those in huge pages; and how many huge pages.
    pub(super) fn count(&self, part: &Bytes) -> (u64, u64) {
        let huge = (self.huge.end - self.huge.start) / HUGE;
        ((part.end - part.start) / PAGE - huge * (HUGE / PAGE), huge)
    }
}

/// The pages that some bytes touch.
pub(super) fn touched(bytes: &Bytes) -> u64 {
    if bytes.is_empty() { 0 } else { bytes.end.div_ceil(PAGE) - bytes.start / PAGE }
}
