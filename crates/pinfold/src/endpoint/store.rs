#![allow(unsafe_code)]
//! Memory of the library's own that messages lie in: those that nobody has asked for yet, and those of
//! receives that brought none.
//!
//! Long ones lie in pages of a pool, which are there already: fresh memory would have to be zeroed by the
//! kernel first. They are taken in as few pieces as there can be. A message in one piece is handed out where
//! it lies, one in several as a copy ([`Whole`]).
//!
//! **Invariant.** What a [`Landing`] hands out to be written is its own until it ends: nobody else reads or
//! writes it, and it stays in place.

mod whole;

use std::{io, sync::OnceLock};

use pinfold_sys::{fork::ForkMark, process::Segment};
use smallvec::SmallVec;

use self::whole::Spare;
pub(crate) use self::whole::Whole;
use super::scatter::Scatter;
use crate::{
    blockmem::Copier,
    link::shm::{lane::LaneRx, ring::Violation},
    reassembly::{
        PAGE_BYTES,
        pool::{AnonPages, Filled, Filling, Owner, Pool},
    },
    wire::descriptor::Piece,
};

/// Messages of less come to memory of the heap, which keeps that for the next one by itself.
const POOL_FROM: u64 = 128 << 10;

/// What all messages of this process may have of the pool, bytes. Beyond that they come to the heap.
const POOL_BYTES: usize = 32 << 20;

/// One that would take more of it does, too.
const POOL_MAX: u64 = POOL_BYTES as u64 / 4;

/// The pool of this process.
struct Store {
    pool: Pool<AnonPages>,
    spare: Spare,
    mark: ForkMark,
}

impl Store {
    fn new() -> io::Result<Store> {
        let mark = ForkMark::new()?;
        // No userfaultfd for this: to receive a message must not end a process whose filter kills whoever
        // asks for one, and it would hold a descriptor. Pieces are rare, and short ones are copied anyway.
        let pages = AnonPages::new((POOL_BYTES / PAGE_BYTES) as u32, None)?;
        // A child may look at messages of its parent's.
        pages.inherit()?;
        Ok(Store { pool: Pool::new(pages), spare: Spare::default(), mark })
    }

    /// The one of this process. `None`: there is no memory for it, or it is the parent's.
    fn here() -> Option<&'static Store> {
        static STORE: OnceLock<Option<Store>> = OnceLock::new();
        let store = STORE.get_or_init(|| {
            Store::new()
                .inspect_err(|error| tracing::debug!(%error, "messages come to the heap"))
                .ok()
        });
        store.as_ref().filter(|store| !store.mark.is_child())
    }
}

/// Room for a message. It is not cleared first.
#[derive(Debug)]
pub(crate) struct Landing(Room);

#[derive(Debug)]
enum Room {
    Heap(Vec<u8>),
    Pages(Filling<AnonPages>),
}

impl Landing {
    /// Room for `len` bytes and the way to write there; `None` if there is not so much memory.
    pub(crate) fn new(len: u64) -> Option<(Landing, Scatter)> {
        if let Some(found) = Landing::in_pool(len) {
            return Some(found);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(len).ok()?).ok()?;
        // SAFETY: the vector's heap memory stays where it is while the landing exists, and an
        // operation drops both together.
        let scatter = unsafe { Scatter::one(bytes.as_mut_ptr(), len as usize) };
        Some((Landing(Room::Heap(bytes)), scatter))
    }

    fn in_pool(len: u64) -> Option<(Landing, Scatter)> {
        if !(POOL_FROM..=POOL_MAX).contains(&len) {
            return None;
        }
        let mut filling = Store::here()?.pool.take(Owner(0), len).ok()?;
        let spans = filling.spare(len).map(|span| (span.at.as_ptr(), span.len));
        // SAFETY: the pages are the message's, and stay where they are while the landing exists, which an
        // operation drops together with this.
        let scatter = unsafe { Scatter::many(spans) };
        Some((Landing(Room::Pages(filling)), scatter))
    }

    /// The first `written` bytes.
    ///
    /// # Safety
    /// They have all been written.
    pub(crate) unsafe fn into_bytes(self, written: u64) -> Bytes {
        match self.0 {
            Room::Heap(mut bytes) => {
                assert!(written <= bytes.capacity() as u64);
                // SAFETY: within the capacity; initialised by contract.
                unsafe { bytes.set_len(written as usize) };
                Bytes::from_vec(bytes)
            }
            Room::Pages(mut filling) => {
                let fits = filling.assume_filled(written);
                assert!(fits.is_ok(), "more was written than there is room");
                Bytes::Pages(Box::new(filling.finish()))
            }
        }
    }
}

/// A message that comes in, and that nobody has asked for.
pub(crate) struct Kept {
    landing: Landing,
    memory: Scatter,
    len: u64,
}

impl Kept {
    /// Room for `len` bytes; `None` if there is not so much memory.
    pub(crate) fn new(len: u64) -> Option<Kept> {
        let (landing, memory) = Landing::new(len)?;
        Some(Kept { landing, memory, len: 0 })
    }

    /// Bytes that have come.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Appends a piece out of a lane; as much as there is room for.
    pub(crate) fn append(&mut self, lane: &mut LaneRx, piece: Piece) -> Result<(), Violation> {
        self.len += self.memory.drain(lane, piece, self.len)?;
        Ok(())
    }

    /// Where the next bytes go, as far as that is one part.
    pub(crate) fn next_part(&self) -> Option<Segment> {
        self.memory.part_at(self.len)
    }

    /// So many more have come, there.
    ///
    /// # Safety
    /// They have been written.
    pub(crate) unsafe fn came(&mut self, bytes: u64) {
        self.len += bytes;
    }

    /// The bytes that have come.
    pub(crate) fn into_bytes(self) -> Bytes {
        // SAFETY: `append`, and who called `came`, have written so many, from the beginning on.
        unsafe { self.landing.into_bytes(self.len) }
    }
}

/// The bytes of a message that the library holds.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// In a row.
    Heap(SmallVec<[u8; 64]>),
    /// In pages of the pool.
    Pages(Box<Filled<AnonPages>>),
}

impl Default for Bytes {
    fn default() -> Bytes {
        Bytes::Heap(SmallVec::new())
    }
}

impl Bytes {
    pub(crate) fn from_slice(bytes: &[u8]) -> Bytes {
        Bytes::Heap(SmallVec::from_slice(bytes))
    }

    pub(crate) fn from_vec(bytes: Vec<u8>) -> Bytes {
        Bytes::Heap(SmallVec::from_vec(bytes))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Bytes::Heap(bytes) => bytes.len() as u64,
            Bytes::Pages(filled) => filled.bytes(),
        }
    }

    /// Copies them to the beginning of some memory, as far as there is room. How many.
    pub(crate) fn write_to(&self, memory: &Scatter, copier: &mut Copier) -> u64 {
        match self {
            Bytes::Heap(bytes) => memory.write(copier, 0, bytes),
            Bytes::Pages(filled) => filled.spans().fold(0, |done, span| {
                // SAFETY: the message's own, which nobody writes to any more.
                let part = unsafe { std::slice::from_raw_parts(span.at.as_ptr(), span.len) };
                done + memory.write(copier, done, part)
            }),
        }
    }

    /// Them in a row.
    pub(crate) fn whole(self) -> Whole {
        match self {
            Bytes::Heap(bytes) => Whole::Heap(bytes),
            Bytes::Pages(filled) => Whole::of(filled),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Room for a message, filled with numbers.
    fn message(len: u64) -> Bytes {
        let (landing, memory) = Landing::new(len).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 4096) as u8).collect();
        let tally = std::sync::Arc::default();
        let mut copier = Copier::new(crate::blockmem::Reader::Me, &tally);
        assert_eq!(memory.write(&mut copier, 0, &bytes), len);
        // SAFETY: it was written just now.
        unsafe { landing.into_bytes(len) }
    }

    fn check(bytes: &[u8]) {
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == (at * 7 + at / 4096) as u8));
    }

    #[test]
    fn long_messages_lie_in_pages_and_come_in_a_row() {
        for len in
            [0, 1, 4096, POOL_FROM - 1, POOL_FROM, POOL_FROM + 5, 1 << 20, POOL_MAX, POOL_MAX + 1]
        {
            let bytes = message(len);
            let pooled = matches!(bytes, Bytes::Pages(_));
            assert_eq!(pooled, (POOL_FROM..=POOL_MAX).contains(&len), "{len}");
            assert_eq!(bytes.len(), len);
            let whole = bytes.whole();
            assert_eq!(whole.len() as u64, len);
            check(&whole);
            check(&whole.into_vec());
        }
    }

    /// More than there is of the pool: some of them come to the heap, and all are whole.
    #[test]
    fn nothing_fails_when_the_pool_is_full() {
        let mut held: Vec<Bytes> = (0..48).map(|at| message((1 << 20) + at * 4096)).collect();
        let heap = held.iter().filter(|bytes| matches!(bytes, Bytes::Heap(_))).count();
        assert!((16..48).contains(&heap), "{heap} of {} are in the heap", held.len());
        // With holes between those that stay, the next ones lie in pieces.
        let mut at = 0;
        held.retain(|_| {
            at += 1;
            at % 2 == 0
        });
        let wide: Vec<Bytes> = (0..4).map(|_| message(3 << 20)).collect();
        let pieces = |bytes: &Bytes| match bytes {
            Bytes::Pages(filled) => filled.spans().count(),
            Bytes::Heap(_) => 1,
        };
        assert!(wide.iter().any(|bytes| pieces(bytes) > 1), "none was in pieces");
        let (mut rows, mut copies) = (0, 0);
        for bytes in held.into_iter().chain(wide) {
            let (len, pieces) = (bytes.len(), pieces(&bytes));
            let whole = bytes.whole();
            check(&whole);
            match whole.copied() {
                0 => rows += 1,
                copied => {
                    assert!(copied == len && pieces > 1, "{copied} of {len} in {pieces}");
                    copies += 1;
                }
            }
            let at = whole.as_ptr();
            let is_copy = matches!(whole, Whole::Copied(_));
            let bytes = whole.into_vec();
            check(&bytes);
            assert!(!is_copy || bytes.as_ptr() == at, "copied twice");
        }
        assert!(rows > 0 && copies > 0, "{rows} in a row, {copies} copied");
    }
}
