#![allow(unsafe_code)]
//! Many copies from one memory to another: packing, unpacking, strided data.
//!
//! Neighbours that are next to each other on both sides are copied as one. That is sound only
//! within one memory on each side: a pointer to one of two slices is none to the other, wherever
//! they lie.
//!
//! **Invariant.** A piece is reached by a pointer to the memory that holds all of the pieces of its
//! side.

use super::{
    super::{Caller, Reader, Site},
    BlockError, Choose, Handler, Hints, Piece, SHORT,
    api::{learnt, locally},
    short,
};

/// The outcome of copying pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PiecesDone {
    /// Pieces that were given, also those without bytes.
    pub pieces: usize,
    /// Copies that were made of them.
    pub copies: usize,
    /// Pieces that were copied along with the one before. Together with the copies, as many as
    /// there were pieces with bytes.
    pub merged: usize,
    /// Bytes in all of them.
    pub bytes: usize,
}

impl<P: Choose> Handler<P> {
    /// Makes copies for `site`, in order, of pieces that are given by their addresses: sources are
    /// reached by `from`, destinations by `to`, which may be pointers to anywhere in their memory.
    /// Neighbours that are next to each other on both sides are made into one, unless they overlap
    /// so that this would change the result.
    ///
    /// A copy of less than 256 bytes takes about as long as `memcpy`; a piece that becomes part of
    /// another takes some two nanoseconds. Each copy of 256 bytes and more is one to the site and
    /// in the counts, as with [`Handler::copy`], and takes as long as that.
    ///
    /// # Safety
    /// Each piece must be readable by `from` and writable by `to`, and stay so while `pieces` is
    /// asked for more of them. Otherwise as for [`Handler::copy`].
    pub unsafe fn copy_pieces(
        &mut self,
        site: &mut Site,
        hints: Hints,
        from: *const u8,
        to: *mut u8,
        pieces: impl IntoIterator<Item = Piece>,
    ) -> PiecesDone {
        // SAFETY: as the caller promised.
        let long = |from, to, len| unsafe { self.copy_learning(site, hints, from, to, len) };
        // SAFETY: as the caller promised.
        let done = unsafe { merged(from, to, pieces, long) };
        self.tally.merged(done.merged);
        done
    }

    /// Makes one copy and tells its site. Not in line, for the sake of the loop that calls it.
    ///
    /// # Safety
    /// As for [`Handler::copy`].
    #[inline(never)]
    unsafe fn copy_learning(
        &mut self,
        site: &mut Site,
        hints: Hints,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) {
        // SAFETY: as the caller promised.
        let _ = learnt(site, |site| unsafe { self.copy(site, hints, from, to, len) });
    }
}

/// Copies `pieces`, merged, those of [`SHORT`] bytes and more by `long`.
///
/// # Safety
/// As for [`Handler::copy_pieces`].
#[inline(always)]
unsafe fn merged(
    from: *const u8,
    to: *mut u8,
    pieces: impl IntoIterator<Item = Piece>,
    mut long: impl FnMut(*const u8, *mut u8, usize),
) -> PiecesDone {
    let (mut given, mut empty, mut copies, mut bytes) = (0, 0, 0, 0);
    let mut last = Piece::EMPTY;
    for next in pieces {
        given += 1;
        if next.len == 0 {
            empty += 1;
            continue;
        }
        let Some(whole) = last.join(next).filter(|whole| whole.len > 0) else { continue };
        copies += 1;
        bytes += whole.len;
        let (source, target) = (from.with_addr(whole.from), to.with_addr(whole.to));
        if whole.len < SHORT {
            // SAFETY: as the caller promised.
            unsafe { short::copy(source, target, whole.len) };
        } else {
            long(source, target, whole.len);
        }
    }
    if last.len > 0 {
        copies += 1;
        bytes += last.len;
        long(from.with_addr(last.from), to.with_addr(last.to), last.len);
    }
    PiecesDone { pieces: given, copies, merged: given - empty - copies, bytes }
}

/// Makes copies from `from` to `to`, in order, which `reader` reads next. Pieces name sources and
/// destinations by offsets, in any order and over each other; neighbours that are next to each
/// other on both sides are copied as one.
///
/// The line this is called from is the site that learns, as with [`copy`](super::copy). It is
/// looked up once for all pieces, which takes some tens of nanoseconds; a copy of less than 256
/// bytes then takes about as long as `memcpy`, and a piece that becomes part of another some two
/// nanoseconds. Copies that `pieces` itself makes while it is asked are the C library's.
///
/// ```
/// # #[cfg(feature = "internals")]
/// # {
/// use pinfold::copy::{Piece, Reader, copy_pieces};
///
/// // The first two of four columns, in three rows.
/// let matrix = *b"ab..cd..ef..";
/// let mut packed = [0; 6];
/// let rows = (0..3).map(|row| Piece { from: row * 4, to: row * 2, len: 2 });
/// let done = copy_pieces(&mut packed, &matrix, rows, Reader::Me).unwrap();
/// assert_eq!((&packed, done.copies), (b"abcdef", 3));
/// # }
/// ```
///
/// # Errors
/// [`BlockError::Piece`] at the first piece that is not inside the slices. All before it are copied
/// then, and nothing else; no more are asked for.
#[track_caller]
pub fn copy_pieces(
    to: &mut [u8],
    from: &[u8],
    pieces: impl IntoIterator<Item = Piece>,
    reader: Reader,
) -> Result<PiecesDone, BlockError> {
    let caller = Caller::here();
    let (source_len, target_len) = (from.len(), to.len());
    let (source, target) = (from.as_ptr(), to.as_mut_ptr());
    let mut wrong = None;
    let inside = pieces.into_iter().map_while(|piece| {
        let fits = |start: usize, size: usize| piece.len <= size && start <= size - piece.len;
        if fits(piece.from, source_len) && fits(piece.to, target_len) {
            let (from, to) = (source.addr() + piece.from, target.addr() + piece.to);
            return Some(Piece { from, to, len: piece.len });
        }
        wrong = Some(piece);
        None
    });
    let hints = Hints { reader, ..Hints::default() };
    // Given to one of two, and by value: that keeps it in registers.
    let mut given = Some(inside);
    let done = locally(|local| {
        let pieces = given.take()?;
        let (site, count) = local.copies.entry(caller);
        // SAFETY: all lie inside the slices, as was checked, which are borrowed until all is done.
        let done = unsafe { local.handler.copy_pieces(site, hints, source, target, pieces) };
        count.copies += done.copies as u64;
        count.bytes += done.bytes as u64;
        Some(done)
    });
    let done = done.flatten().unwrap_or_else(|| {
        let long = |source, target, len| {
            // SAFETY: as above; the slices have no byte in common.
            unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
        };
        // SAFETY: as above.
        unsafe { merged(source, target, given.into_iter().flatten(), long) }
    });
    let wrong = wrong.map(|piece| BlockError::Piece {
        at: done.pieces,
        piece,
        from: source_len,
        to: target_len,
    });
    wrong.map_or(Ok(done), Err)
}

#[cfg(test)]
mod tests;
