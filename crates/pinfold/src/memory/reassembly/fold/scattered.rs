#![allow(unsafe_code)]
//! Messages that can be folded.
//!
//! **Invariant.** The pieces that a [`Scattered`] tells are its own while it lives: readable, and
//! changed in this process through it alone.

use std::{ops::Range, os::fd::BorrowedFd};

use super::super::{
    gather::{Backing, Piece},
    pool::{Filled, Pages, Unshared},
};

/// A message in pieces.
///
/// # Safety
/// From a call of [`gather`](Scattered::gather) on until the value is dropped, or one of the
/// methods with `&mut` is called, the pieces it told
/// - can be read, and no code in this process writes there;
/// - where they are [`Backing::File`], are mappings of the whole pages of [`file`](Scattered::file)
///   that they say, which stay in the file;
/// - where they are [`Backing::Anonymous`], lie in private memory whose whole pages, as far as the
///   room goes, may be taken away as long as that is told by [`left`](Scattered::left) or they are
///   put back; no code reads there meanwhile;
/// - overlap only where they are [`Backing::File`], and have addresses that were exposed.
pub unsafe trait Scattered: Send + Sync {
    /// Adds its pieces in the order of the message; none of them is empty.
    fn gather(&self, to: &mut Vec<Piece>);

    /// The file of piece `at` of those.
    fn file(&self, at: usize) -> Option<BorrowedFd<'_>>;

    /// The files of all those pieces, of which there are so many, added to others in their order.
    fn files<'a>(&'a self, pieces: usize, to: &mut Vec<Option<BorrowedFd<'a>>>) {
        to.extend((0..pieces).map(|at| self.file(at)));
    }

    /// Returns whether the memory of all pieces is private to this process and can be written.
    fn is_private(&self) -> bool {
        false
    }

    /// See [`Filled::left`].
    fn left(&mut self, bytes: Range<u64>);

    /// See [`Filled::torn`].
    fn torn(&mut self, bytes: Range<u64>);

    /// See [`Filled::expose`].
    fn expose(&mut self);
}

/// A message that no other process writes to.
///
/// # Safety
/// No other process writes to the pieces.
pub unsafe trait Quiet: Scattered {}

// SAFETY: a message has its pages alone, in memory that `Pages` describes; a pool's file is mapped
// from its beginning, and pages of a movable pool are told to the pool when they left.
unsafe impl<P: Pages> Scattered for Filled<P> {
    fn gather(&self, to: &mut Vec<Piece>) {
        self.gather_to(to);
    }

    fn file(&self, _: usize) -> Option<BorrowedFd<'_>> {
        self.memory().file()
    }

    fn is_private(&self) -> bool {
        self.memory().file().is_none()
    }

    fn left(&mut self, bytes: Range<u64>) {
        Filled::left(self, bytes);
    }

    fn torn(&mut self, bytes: Range<u64>) {
        Filled::torn(self, bytes);
    }

    fn expose(&mut self) {
        Filled::expose(self);
    }
}

// SAFETY: the pool's memory has no other writer.
unsafe impl<P: Unshared> Quiet for Filled<P> {}

/// A message of several parts.
// SAFETY: each part keeps to it, and no part is told of pages of another.
unsafe impl<M: Scattered> Scattered for Vec<M> {
    fn gather(&self, to: &mut Vec<Piece>) {
        self.iter().for_each(|part| part.gather(to));
    }

    fn file(&self, at: usize) -> Option<BorrowedFd<'_>> {
        let (mut at, mut pieces) = (at, Vec::new());
        for part in self {
            pieces.clear();
            part.gather(&mut pieces);
            match at.checked_sub(pieces.len()) {
                Some(rest) => at = rest,
                None => return part.file(at),
            }
        }
        None
    }

    // One after the other, since a search for each would look at all before it.
    fn files<'a>(&'a self, _: usize, to: &mut Vec<Option<BorrowedFd<'a>>>) {
        let mut pieces = Vec::new();
        for part in self {
            pieces.clear();
            part.gather(&mut pieces);
            part.files(pieces.len(), to);
        }
    }

    fn is_private(&self) -> bool {
        self.iter().all(Scattered::is_private)
    }

    fn left(&mut self, bytes: Range<u64>) {
        each(self, bytes, M::left);
    }

    fn torn(&mut self, bytes: Range<u64>) {
        each(self, bytes, M::torn);
    }

    fn expose(&mut self) {
        self.iter_mut().for_each(M::expose);
    }
}

// SAFETY: all parts are.
unsafe impl<M: Quiet> Quiet for Vec<M> {}

macro_rules! boxed {
    ($of:ty) => {
        // SAFETY: the value in the box keeps to it.
        unsafe impl Scattered for Box<$of> {
            fn gather(&self, to: &mut Vec<Piece>) {
                (**self).gather(to);
            }

            fn file(&self, at: usize) -> Option<BorrowedFd<'_>> {
                (**self).file(at)
            }

            fn files<'a>(&'a self, pieces: usize, to: &mut Vec<Option<BorrowedFd<'a>>>) {
                (**self).files(pieces, to);
            }

            fn is_private(&self) -> bool {
                (**self).is_private()
            }

            fn left(&mut self, bytes: Range<u64>) {
                (**self).left(bytes);
            }

            fn torn(&mut self, bytes: Range<u64>) {
                (**self).torn(bytes);
            }

            fn expose(&mut self) {
                (**self).expose();
            }
        }
    };
}

boxed!(dyn Scattered);
boxed!(dyn Quiet);

// SAFETY: the value in the box is.
unsafe impl Quiet for Box<dyn Quiet> {}

/// Tells each part which of its bytes are among `bytes`.
fn each<M: Scattered>(parts: &mut [M], bytes: Range<u64>, tell: impl Fn(&mut M, Range<u64>)) {
    let (mut begin, mut pieces) = (0, Vec::new());
    for part in parts {
        pieces.clear();
        part.gather(&mut pieces);
        let len: u64 = pieces.iter().map(|piece: &Piece| piece.len).sum();
        let end = begin + len;
        // Bytes beyond the end of the message are of its last part.
        if bytes.start < end && bytes.end > begin {
            tell(part, bytes.start.saturating_sub(begin)..bytes.end.min(end) - begin);
        }
        begin = end;
    }
}

/// Returns whether the bytes of a piece may be mapped from its file.
pub(super) fn is_file(piece: &Piece) -> bool {
    matches!(piece.backing, Backing::File { .. })
}
