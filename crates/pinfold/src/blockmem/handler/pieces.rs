#![allow(unsafe_code)]
//! Many copies from one memory to another: packing, unpacking, strided data.
//!
//! Neighbours that are next to each other on both sides are copied as one. That is sound only within one
//! memory on each side: a pointer to one of two slices is none to the other, wherever they lie.
//!
//! **Invariant.** A piece is reached by a pointer to the memory that holds all of the pieces of its side.

use super::{
    super::{Caller, Reader, Site},
    BlockError, Choose, Done, Handler, Hints, Piece,
    api::{learnt, locally},
    merge,
};

/// What became of pieces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PiecesDone {
    /// Pieces that were given, also those without bytes.
    pub pieces: usize,
    /// Copies that were made of them.
    pub copies: usize,
    /// Pieces that were copied along with the one before. Together with the copies, as many as there
    /// were pieces with bytes.
    pub merged: usize,
    /// Bytes in all of them.
    pub bytes: usize,
}

impl<P: Choose> Handler<P> {
    /// Makes copies for `site`, in order, of pieces that are given by their addresses: sources are
    /// reached by `from`, destinations by `to`, which may be pointers to anywhere in their memory.
    /// Neighbours are merged ([`merge`]), which makes no difference to what is there afterwards.
    ///
    /// Some nanoseconds a piece on top of the copies. Each copy of 256 bytes and more is one to the
    /// site and in the counts, as with [`Handler::copy`].
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
        let done = merged(pieces, |Piece { from: source, to: target, len }| {
            let (source, target) = (from.with_addr(source), to.with_addr(target));
            // SAFETY: as the caller promised.
            learnt(site, |site| unsafe { self.copy(site, hints, source, target, len) })
        });
        self.tally.merged(done.merged);
        done
    }
}

/// Has `copy` make what is left to do of `pieces`.
#[inline]
fn merged(
    pieces: impl IntoIterator<Item = Piece>,
    mut copy: impl FnMut(Piece) -> Done,
) -> PiecesDone {
    let (mut given, mut empty) = (0, 0);
    let counted = pieces.into_iter().inspect(|piece| {
        given += 1;
        empty += usize::from(piece.len == 0);
    });
    let (mut copies, mut bytes) = (0, 0);
    for piece in merge(counted) {
        bytes += copy(piece).bytes;
        copies += 1;
    }
    PiecesDone { pieces: given, copies, merged: given - empty - copies, bytes }
}

/// Makes copies from `from` to `to`, in order, which `reader` reads next. Pieces say by offsets what goes
/// where, in any order and over each other; neighbours that are next to each other on both sides are
/// copied as one.
///
/// The line this is called from is the site that learns, as with [`copy`](super::copy). It is looked up once for all
/// pieces, which takes some tens of nanoseconds; a short piece then takes some nanoseconds on top of its
/// `memcpy`. Copies that `pieces` itself makes while it is asked are the C library's.
///
/// ```
/// use pinfold::blockmem::{Piece, Reader, copy_pieces};
///
/// // The first two of four columns, in three rows.
/// let matrix = *b"ab..cd..ef..";
/// let mut packed = [0; 6];
/// let rows = (0..3).map(|row| Piece { from: row * 4, to: row * 2, len: 2 });
/// let done = copy_pieces(&mut packed, &matrix, rows, Reader::Me)?;
/// assert_eq!((&packed, done.copies), (b"abcdef", 3));
/// # Ok::<(), pinfold::blockmem::BlockError>(())
/// ```
///
/// # Errors
/// [`BlockError::Piece`] at the first piece that is not inside the slices. All before it are copied then,
/// and nothing else; no more are asked for.
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
    let (mut at, mut wrong) = (0, None);
    let mut inside = pieces.into_iter().map_while(|piece| {
        let fits = |start: usize, len| start.checked_add(piece.len).is_some_and(|end| end <= len);
        if fits(piece.from, source_len) && fits(piece.to, target_len) {
            at += 1;
            let (from, to) = (source.addr() + piece.from, target.addr() + piece.to);
            return Some(Piece { from, to, len: piece.len });
        }
        wrong = Some(BlockError::Piece { at, piece, from: source_len, to: target_len });
        None
    });
    let hints = Hints { reader, ..Hints::default() };
    let done = locally(|local| {
        let (site, count) = local.copies.entry(caller);
        let pieces = inside.by_ref();
        // SAFETY: all lie inside the slices, as was checked, which are borrowed until all is done.
        let done = unsafe { local.handler.copy_pieces(site, hints, source, target, pieces) };
        count.copies += done.copies as u64;
        count.bytes += done.bytes as u64;
        done
    });
    let done = done.unwrap_or_else(|| {
        merged(inside, |Piece { from, to, len }| {
            let (source, target) = (source.with_addr(from), target.with_addr(to));
            // SAFETY: as above; the slices have no byte in common.
            unsafe { std::ptr::copy_nonoverlapping(source, target, len) };
            Done::by_libc(len)
        })
    });
    wrong.map_or(Ok(done), Err)
}

#[cfg(test)]
mod tests;
