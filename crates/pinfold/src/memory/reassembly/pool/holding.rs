#![allow(unsafe_code)]
//! The pages that one message has of a pool.
//!
//! **Invariants.** The pages of a [`Holding`] are its own from `take` to drop: no other code in
//! this process reads or writes them, but through addresses that it gave out. In each page every
//! byte from `dirty` on is zero; so code that writes, or lets write, raises `dirty` first.

use std::{fmt, ops::Range, ptr::NonNull, sync::Arc};

use thiserror::Error;

use super::{
    super::{
        PAGE_BYTES,
        gather::{self, Backing},
    },
    Owner, Pages,
    account::{Piece, Pieces},
    shared::Shared,
};

/// Contiguous bytes of a pool in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub at: NonNull<u8>,
    /// Bytes.
    pub len: usize,
}

/// More bytes than there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{bytes} bytes do not fit into a message of {room} more")]
pub struct TooLong {
    /// Bytes that came.
    pub bytes: u64,
    /// Bytes that the message lacks.
    pub room: u64,
}

/// Pages, and their owner. Gives them back when dropped.
struct Holding<P: Pages> {
    shared: Arc<Shared<P>>,
    owner: Owner,
    pieces: Pieces,
}

impl<P: Pages> Holding<P> {
    fn address(&self, page: u32) -> NonNull<u8> {
        // SAFETY: a page of the pool, so within its memory.
        unsafe { self.shared.memory().base().add(page as usize * PAGE_BYTES) }
    }

    /// The bytes `from..to` of the message, piece by piece.
    fn spans(&self, from: u64, to: u64) -> impl Iterator<Item = Span> {
        let mut begin = 0;
        self.pieces.iter().filter_map(move |piece| {
            let end = begin + u64::from(piece.pages) * PAGE_BYTES as u64;
            let (first, last) = (from.max(begin), to.min(end));
            let skip = first.wrapping_sub(begin) as usize;
            begin = end;
            // SAFETY: within the piece wherever it is used, which is where the range is not empty.
            (first < last).then(|| unsafe {
                Span { at: self.address(piece.first).add(skip), len: (last - first) as usize }
            })
        })
    }

    /// The pages of the message from the page of byte `from` on, each with the number of its bytes
    /// among the first `to`.
    fn pages(&self, from: u64, to: u64) -> impl Iterator<Item = (u32, usize)> {
        let skip = from / PAGE_BYTES as u64;
        let pages = self.pieces.iter().flat_map(Piece::range).enumerate();
        pages.skip(skip as usize).map(move |(at, page)| {
            let begin = at as u64 * PAGE_BYTES as u64;
            (page, to.saturating_sub(begin).min(PAGE_BYTES as u64) as usize)
        })
    }

    /// Notes that the bytes `from..to` may be written.
    fn soil(&self, from: u64, to: u64) {
        for (page, bytes) in self.pages(from, to).take_while(|(_, bytes)| *bytes > 0) {
            if bytes > self.shared.dirty(page) {
                self.shared.set_dirty(page, bytes);
            }
        }
    }

    /// Clears all that is not zero behind byte `filled`.
    fn clear(&self, filled: u64) {
        for (page, bytes) in self.pages(filled, filled) {
            let dirty = self.shared.dirty(page);
            if dirty > bytes && zeroes() {
                // SAFETY: the page is this holding's, and both bounds lie within it.
                unsafe { self.address(page).add(bytes).write_bytes(0, dirty - bytes) };
                self.shared.set_dirty(page, bytes);
            }
        }
    }
}

impl<P: Pages> Drop for Holding<P> {
    fn drop(&mut self) {
        self.shared.give(self.owner, &self.pieces);
    }
}

/// A message that is arriving. Its pages may still hold others, and cannot be read.
///
/// Dropped before it is finished, it leaves no bytes that could be read.
pub struct Filling<P: Pages> {
    holding: Holding<P>,
    bytes: u64,
    filled: u64,
}

impl<P: Pages> Filling<P> {
    pub(super) fn new(
        shared: Arc<Shared<P>>,
        owner: Owner,
        pieces: Pieces,
        bytes: u64,
    ) -> Filling<P> {
        Filling { holding: Holding { shared, owner, pieces }, bytes, filled: 0 }
    }

    /// Bytes that have arrived, from the beginning on.
    pub fn filled(&self) -> u64 {
        self.filled
    }

    /// Bytes that are still to come.
    pub fn room(&self) -> u64 {
        self.bytes - self.filled
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`TooLong`] if the message is not so long; nothing is written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        let to = self.end(bytes.len() as u64)?;
        self.holding.soil(self.filled, to);
        let mut rest = bytes;
        for Span { at, len } in self.holding.spans(self.filled, to) {
            let (now, later) = rest.split_at(len);
            // SAFETY: the span is this holding's alone, so `bytes` cannot overlap it.
            unsafe { at.copy_from_nonoverlapping(NonNull::from(now).cast(), len) };
            rest = later;
        }
        self.filled = to;
        Ok(())
    }

    /// The memory for the next bytes, `bytes_max` at most: for a system call or a copy that is made
    /// elsewhere. The caller tells by [`assume_filled`](Filling::assume_filled) how much was really
    /// written.
    ///
    /// The memory may be written until this is finished or dropped, whichever is first; the writer
    /// has to keep to that.
    pub fn spare(&mut self, bytes_max: u64) -> impl Iterator<Item = Span> {
        let to = self.filled + bytes_max.min(self.room());
        self.holding.soil(self.filled, to);
        self.holding.spans(self.filled, to)
    }

    /// Says that all of the next `bytes` bytes have been written, at the addresses from
    /// [`spare`](Filling::spare). If they were not, the message shows the old contents: the only
    /// place where this pool has to believe its caller.
    ///
    /// # Errors
    /// [`TooLong`] if the message is not so long; nothing changes.
    pub fn assume_filled(&mut self, bytes: u64) -> Result<(), TooLong> {
        let to = self.end(bytes)?;
        self.holding.soil(self.filled, to);
        self.filled = to;
        Ok(())
    }

    /// The message as far as it has arrived. Clears the bytes that others left behind its end, up
    /// to the end of its last page.
    pub fn finish(self) -> Filled<P> {
        self.holding.clear(self.filled);
        Filled { holding: self.holding, bytes: self.filled }
    }

    fn end(&self, bytes: u64) -> Result<u64, TooLong> {
        let room = self.room();
        if bytes > room { Err(TooLong { bytes, room }) } else { Ok(self.filled + bytes) }
    }
}

/// A message that has arrived. Behind its last byte its pages are zero.
pub struct Filled<P: Pages> {
    holding: Holding<P>,
    bytes: u64,
}

impl<P: Pages> Filled<P> {
    /// Its length, bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The owner that its pages were taken for.
    pub fn owner(&self) -> Owner {
        self.holding.owner
    }

    /// The pages it lies in, in order. There may be more than it needs.
    pub fn pieces(&self) -> &[Piece] {
        &self.holding.pieces
    }

    /// The memory it lies in, in order. It may be read until this is dropped.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.holding.spans(0, self.bytes)
    }

    /// Its pieces as [`gather::plan`](crate::memory::reassembly::gather::plan) wants them; only
    /// those that it has bytes in.
    pub fn to_gather(&self) -> Vec<gather::Piece> {
        let mut pieces = Vec::new();
        self.gather_to(&mut pieces);
        pieces
    }

    /// The same, added to others.
    pub fn gather_to(&self, to: &mut Vec<gather::Piece>) {
        let memory = self.holding.shared.memory();
        let (file, movable) = (memory.file().is_some(), memory.is_movable());
        let of = |(span, piece): (Span, &Piece)| gather::Piece {
            at: span.at.as_ptr().expose_provenance() as u64,
            len: span.len as u64,
            room: u64::from(piece.pages) * PAGE_BYTES as u64,
            huge: piece.huge,
            backing: match (file, movable) {
                (true, _) => Backing::File { offset: u64::from(piece.first) * PAGE_BYTES as u64 },
                (_, true) => Backing::Anonymous,
                _ => Backing::Other,
            },
        };
        to.extend(self.spans().zip(&self.holding.pieces).map(of));
    }

    /// Copies its bytes from `offset` on to `to`, as many as there are and have room. Returns how
    /// many.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> usize {
        let end = self.bytes.min(offset.saturating_add(to.len() as u64));
        let mut done = 0;
        for Span { at, len } in self.holding.spans(offset, end) {
            let part = &mut to[done..done + len];
            // SAFETY: the span is this holding's, so no code writes to it, and `to` cannot overlap
            // it.
            unsafe { at.copy_to_nonoverlapping(NonNull::from(part).cast(), len) };
            done += len;
        }
        done
    }

    /// Says that from now on its pages may be written to as a whole, such as by a process that gets
    /// them mapped; also that other pages are back in their place. Bytes that
    /// [`read`](Filled::read) gives during such writes are arbitrary.
    pub fn expose(&mut self) {
        self.holding.soil(0, u64::MAX);
    }

    /// Says that the pages which lie wholly within `bytes` of the message, the last one as if the
    /// message filled it, were taken out of the pool's memory, as by `UFFDIO_MOVE`, and do not
    /// come back: the pool asks for fresh ones, which read as zero.
    ///
    /// After that those bytes must not be read here.
    pub fn left(&mut self, bytes: Range<u64>) {
        self.whole_pages(bytes, Shared::left);
    }

    /// Says that the huge pages among those which lie wholly within `bytes` of the message were
    /// torn into small ones, as by moving a part of them.
    pub fn torn(&mut self, bytes: Range<u64>) {
        self.whole_pages(bytes, Shared::torn);
    }

    /// The memory of its pool.
    pub fn memory(&self) -> &P {
        self.holding.shared.memory()
    }

    /// Calls `note` with the pages that lie wholly within some bytes, the last page as if the
    /// message filled it.
    fn whole_pages(&self, bytes: Range<u64>, note: impl Fn(&Shared<P>, Range<u32>)) {
        let page = PAGE_BYTES as u64;
        let full = self.bytes.next_multiple_of(page);
        let end = if bytes.end >= self.bytes { full } else { bytes.end };
        let mut begin = 0;
        for piece in &self.holding.pieces {
            let from = bytes.start.saturating_sub(begin).div_ceil(page).min(piece.pages.into());
            let to = (end.saturating_sub(begin) / page).min(piece.pages.into());
            begin += u64::from(piece.pages) * page;
            if from < to {
                let first = piece.first;
                note(&self.holding.shared, first + from as u32..first + to as u32);
            }
        }
    }
}

impl<P: Pages> fmt::Debug for Filling<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, pieces) = (self.holding.owner, &self.holding.pieces);
        write!(f, "Filling({} of {} bytes, {owner:?}, {pieces:?})", self.filled, self.bytes)
    }
}

impl<P: Pages> fmt::Debug for Filled<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, pieces) = (self.holding.owner, &self.holding.pieces);
        write!(f, "Filled({} bytes, {owner:?}, {pieces:?})", self.bytes)
    }
}

#[cfg(not(test))]
const fn zeroes() -> bool {
    true
}

/// A test turns clearing off to see that without it secrets are found.
#[cfg(test)]
fn zeroes() -> bool {
    super::tests::ZEROES.get()
}
