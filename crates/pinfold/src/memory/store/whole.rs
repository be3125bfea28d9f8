#![allow(unsafe_code)]
//! Messages out of the library's own memory, contiguous: where they lie, or folded.
//!
//! **Invariant.** The pages of a [`Row`] are its message's alone, all of one mapping and without
//! gaps, and no code writes there any more.

use std::{ops::Deref, ptr::NonNull, slice};

use smallvec::SmallVec;

use super::{Paged, Store};
use crate::memory::reassembly::{
    fold::{Folded, Place, Receipt, Unmoved, Why},
    pool::{AnonPages, Filled},
};

/// The bytes of a message that the library holds, in a row.
pub(crate) enum Whole {
    Heap(SmallVec<[u8; 64]>),
    Pages(Row),
    /// Out of several pieces.
    Contiguous(Box<Contiguous>),
}

impl Whole {
    /// Out of pages.
    pub(super) fn of(paged: Box<Paged>) -> Whole {
        match Row::of(paged) {
            Ok(row) => Whole::Pages(row),
            Err(pieces) => Whole::Contiguous(Box::new(Contiguous::of(*pieces))),
        }
    }

    /// The receipt of its folding, if it was in pieces.
    pub(crate) fn folded(&self) -> Option<&Receipt> {
        match self {
            Whole::Heap(_) | Whole::Pages(_) => None,
            Whole::Contiguous(contiguous) => Some(&contiguous.receipt),
        }
    }

    /// Bytes that were copied for the folding.
    pub(crate) fn copied(&self) -> u64 {
        self.folded().map_or(0, |receipt| receipt.copied)
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Whole::Heap(bytes) => bytes.into_vec(),
            Whole::Pages(row) => row.to_vec(),
            Whole::Contiguous(contiguous) => match contiguous.bytes {
                Joint::Folded(folded) => folded.to_vec(),
                Joint::Copied(bytes) => bytes,
            },
        }
    }
}

impl Deref for Whole {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Whole::Heap(bytes) => bytes,
            Whole::Pages(row) => row,
            Whole::Contiguous(contiguous) => contiguous,
        }
    }
}

/// A message with all its pages in a row.
pub(crate) struct Row {
    at: NonNull<u8>,
    len: usize,
    _pages: Box<Paged>,
}

// SAFETY: the pages belong to the message, not to a thread.
unsafe impl Send for Row {}
// SAFETY: as for `Send`; nothing is changed behind `&self`.
unsafe impl Sync for Row {}

impl Row {
    /// It, or the message as it is if there are gaps.
    fn of(paged: Box<Paged>) -> Result<Row, Box<Paged>> {
        match begin(&paged.filled) {
            Some(at) => Ok(Row { at, len: paged.filled.bytes() as usize, _pages: paged }),
            None => Err(paged),
        }
    }
}

/// The first byte of a message, if its pieces lie in a row; a dangling pointer if it has none.
fn begin(filled: &Filled<AnonPages>) -> Option<NonNull<u8>> {
    let mut spans = filled.spans();
    let Some(first) = spans.next() else { return Some(NonNull::dangling()) };
    let mut end = first.at.addr().get() + first.len;
    let in_a_row = spans.all(|span| {
        let follows = span.at.addr().get() == end;
        end += span.len;
        follows
    });
    in_a_row.then_some(first.at)
}

impl Deref for Row {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: pages of one mapping, all of them this message's, which were written before it
        // was finished and stay until this is dropped.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

/// A message that was in pieces.
pub(crate) struct Contiguous {
    bytes: Joint,
    receipt: Receipt,
}

// Values that hold it are boxed.
#[allow(clippy::large_enum_variant)]
enum Joint {
    Folded(Folded<Filled<AnonPages>>),
    /// Copied, where nothing folds.
    Copied(Vec<u8>),
}

impl Contiguous {
    fn of(Paged { filled, moves }: Paged) -> Contiguous {
        // In a child of `fork(2)` nothing is folded. Where there is no memory for it, the heap says
        // so.
        let (pieces, unmoved) = match Store::here() {
            Some(store) => match store.fold(filled, moves) {
                Ok((folded, receipt)) => {
                    return Contiguous { bytes: Joint::Folded(folded), receipt };
                }
                Err(unfolded) => (unfolded.message, None),
            },
            None => (filled, Some(Unmoved::Child)),
        };
        let len = pieces.bytes();
        let mut bytes = vec![0; len as usize];
        let read = pieces.read(0, &mut bytes);
        debug_assert_eq!(read as u64, len);
        let mut receipt = Receipt::new(len, pieces.pieces().len(), Place::Memory(Why::NoWindow));
        (receipt.copied, receipt.unmoved) = (len, unmoved);
        Contiguous { bytes: Joint::Copied(bytes), receipt }
    }
}

impl Deref for Contiguous {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Joint::Folded(folded) => folded,
            Joint::Copied(bytes) => bytes,
        }
    }
}
