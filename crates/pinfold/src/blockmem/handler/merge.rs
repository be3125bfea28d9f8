//! Requests that lie next to each other made into one.

use std::iter::Peekable;

/// Bytes to be copied, by their addresses, or by offsets where a function says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where the source begins.
    pub from: usize,
    /// Where the destination begins.
    pub to: usize,
    /// Bytes.
    pub len: usize,
}

impl Piece {
    /// Both as one, if `next` goes on where this ends on both sides, and if it makes no difference
    /// that the bytes of both are then read before any is written.
    fn with(self, next: Piece) -> Option<Piece> {
        let ends = |start: usize| start.checked_add(self.len);
        if ends(self.from) != Some(next.from) || ends(self.to) != Some(next.to) {
            return None;
        }
        let whole = Piece { len: self.len.checked_add(next.len)?, ..self };
        let apart = whole.from.abs_diff(whole.to) >= whole.len;
        apart.then_some(whole)
    }
}

/// The same copies in the same order, neighbours that are next to each other on both sides made into
/// one, and those without bytes left out.
///
/// To make them one after the other has the same effect as the pieces given, whatever overlaps what:
/// neighbours that overlap stay apart. Some nanoseconds a piece.
///
/// Addresses say what overlaps. Offsets do so only within one memory: those in two would be kept apart
/// where they need not be.
pub fn merge<I: IntoIterator<Item = Piece>>(pieces: I) -> Merged<I::IntoIter> {
    Merged { pieces: pieces.into_iter().peekable() }
}

/// See [`merge`].
pub struct Merged<I: Iterator<Item = Piece>> {
    pieces: Peekable<I>,
}

impl<I: Iterator<Item = Piece>> Iterator for Merged<I> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut piece = self.pieces.find(|piece| piece.len > 0)?;
        while let Some(next) = self.pieces.peek() {
            if next.len > 0 {
                match piece.with(*next) {
                    Some(whole) => piece = whole,
                    None => break,
                }
            }
            self.pieces.next();
        }
        Some(piece)
    }
}
