//! Requests that lie next to each other, made into one.

use std::mem;

/// Bytes to be copied, by their addresses, or by offsets where a function says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The offset or address of the source.
    pub from: usize,
    /// The offset or address of the destination.
    pub to: usize,
    /// Bytes.
    pub len: usize,
}

impl Piece {
    /// The piece that a first piece is joined to.
    pub(super) const EMPTY: Piece = Piece { from: 0, to: 0, len: 0 };

    /// Both as one, if `next` goes on where this ends on both sides, and if it makes no difference
    /// that the bytes of both are then read before any is written.
    #[inline]
    fn with(self, next: Piece) -> Option<Piece> {
        let gap = |start: usize, next: usize| next.wrapping_sub(start) ^ self.len;
        // One branch for both sides: most that stay apart do so here.
        if gap(self.from, next.from) | gap(self.to, next.to) != 0 {
            return None;
        }
        // Not around the end of all addresses.
        let onwards = next.from >= self.from && next.to >= self.to;
        let whole = Piece { len: self.len.checked_add(next.len)?, ..self };
        let apart = whole.from.abs_diff(whole.to) >= whole.len;
        (onwards && apart).then_some(whole)
    }

    /// Makes `next` part of this if they can be one; otherwise becomes `next` and returns its old
    /// value, which is for the caller to copy.
    #[inline(always)]
    pub(super) fn join(&mut self, next: Piece) -> Option<Piece> {
        if let Some(whole) = self.with(next) {
            *self = whole;
            return None;
        }
        Some(mem::replace(self, next))
    }
}
