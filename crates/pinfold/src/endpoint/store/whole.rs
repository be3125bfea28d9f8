#![allow(unsafe_code)]
//! Messages out of the library's own memory, in a row: where they lie, or as a copy.
//!
//! **Invariant.** The pages of a [`Row`] are its message's alone, all of one mapping and without gaps, and
//! nobody writes there any more.

use std::{ops::Deref, ptr::NonNull, slice};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::Store;
use crate::{
    blockmem::{self, Caller, Reader},
    reassembly::pool::{AnonPages, Filled},
};

/// What is kept of copies that are gone, bytes, and in how many parts.
const SPARE_BYTES: usize = 32 << 20;
const SPARE_MAX: usize = 32;

/// The bytes of a message that the library holds, in a row.
pub(crate) enum Whole {
    Heap(SmallVec<[u8; 64]>),
    Pages(Row),
    /// Out of several pieces.
    Copied(Joined),
}

impl Whole {
    /// Out of pages.
    pub(super) fn of(filled: Box<Filled<AnonPages>>) -> Whole {
        match Row::of(filled) {
            Ok(row) => Whole::Pages(row),
            Err(pieces) => Whole::Copied(Joined::of(&pieces)),
        }
    }

    /// Bytes that were copied to bring them into a row.
    pub(crate) fn copied(&self) -> u64 {
        match self {
            Whole::Heap(_) | Whole::Pages(_) => 0,
            Whole::Copied(copy) => copy.len() as u64,
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Whole::Heap(bytes) => bytes.into_vec(),
            Whole::Pages(row) => row.to_vec(),
            Whole::Copied(mut copy) => std::mem::take(&mut copy.0),
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
            Whole::Copied(copy) => copy,
        }
    }
}

/// A message whose pages lie in a row.
pub(crate) struct Row {
    at: NonNull<u8>,
    len: usize,
    _pages: Box<Filled<AnonPages>>,
}

// SAFETY: the pages belong to the message, not to a thread.
unsafe impl Send for Row {}
// SAFETY: as for `Send`; nothing is changed behind `&self`.
unsafe impl Sync for Row {}

impl Row {
    /// It, or the message as it is if there are gaps.
    fn of(filled: Box<Filled<AnonPages>>) -> Result<Row, Box<Filled<AnonPages>>> {
        match begin(&filled) {
            Some(at) => Ok(Row { at, len: filled.bytes() as usize, _pages: filled }),
            None => Err(filled),
        }
    }
}

/// Where a message begins whose pieces lie in a row; anywhere, if it has none.
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
        // SAFETY: pages of one mapping, all of them this message's, which were written before it was
        // finished and stay until this is dropped.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

/// A copy of a message in pieces. Its memory is kept for the next one: pages that are there already take
/// half the time.
pub(crate) struct Joined(Vec<u8>);

impl Joined {
    fn of(pieces: &Filled<AnonPages>) -> Joined {
        let mut bytes = Store::here().map(|store| store.spare.take(pieces.bytes() as usize));
        let bytes = bytes.get_or_insert_default();
        bytes.reserve_exact(pieces.bytes() as usize);
        for span in pieces.spans() {
            let to = bytes.spare_capacity_mut();
            assert!(span.len <= to.len());
            // SAFETY: the message's own, which nobody writes to any more, and as much room of the
            // vector's; all that is added to its length has been written.
            unsafe {
                let to = to.as_mut_ptr().cast();
                let (from, len) = (span.at.as_ptr(), span.len);
                let _ = blockmem::copy_for(Caller::Named("store"), Reader::Me, from, to, len);
                bytes.set_len(bytes.len() + span.len);
            }
        }
        Joined(std::mem::take(bytes))
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        if let Some(store) = Store::here() {
            store.spare.put(std::mem::take(&mut self.0));
        }
    }
}

impl Deref for Joined {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Memory of copies that are gone.
#[derive(Default)]
pub(super) struct Spare(Mutex<Vec<Vec<u8>>>);

impl Spare {
    /// Empty, with room for so many bytes if there is any such.
    fn take(&self, len: usize) -> Vec<u8> {
        let mut kept = self.0.lock();
        let room = |bytes: &Vec<u8>| bytes.capacity();
        let fit = |at: &usize| (len..=2 * len).contains(&room(&kept[*at]));
        let best = (0..kept.len()).filter(fit).min_by_key(|at| room(&kept[*at]));
        let mut bytes = best.map(|at| kept.remove(at)).unwrap_or_default();
        bytes.clear();
        bytes
    }

    /// Keeps it; what was kept longest goes.
    fn put(&self, bytes: Vec<u8>) {
        if bytes.capacity() == 0 {
            return;
        }
        let mut kept = self.0.lock();
        kept.push(bytes);
        let over = |kept: &Vec<Vec<u8>>| {
            kept.len() > SPARE_MAX || kept.iter().map(Vec::capacity).sum::<usize>() > SPARE_BYTES
        };
        while over(&kept) {
            kept.remove(0);
        }
    }
}
