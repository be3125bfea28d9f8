#![allow(unsafe_code)]
//! Memory of the library's own that messages lie in: unexpected messages, and those of receives
//! that brought no buffer.
//!
//! Long ones lie in pages of a pool, which are there already: fresh memory would have to be zeroed
//! by the kernel first. They are taken in as few pieces as there can be. A message in one piece is
//! handed out where it lies, one in several is folded ([`Whole`]): by moving its pages, or by
//! copying.
//!
//! **Invariant.** The memory that a [`Landing`] hands out to be written is its own until it ends:
//! no other code reads or writes it, and it stays in place.

mod folding;
#[cfg(all(test, not(loom)))]
mod tests;
mod whole;

use std::{io, sync::OnceLock};

use parking_lot::RwLock;
use pinfold_sys::{fork::ForkMark, process::Segment};
use rustix::param::page_size;
use smallvec::SmallVec;

use self::folding::{Folding, InARow};
pub(crate) use self::whole::Whole;
use super::scatter::Scatter;
use crate::{
    copy::Copier,
    memory::reassembly::{
        PAGE_BYTES,
        fold::Unfolded,
        pool::{AnonPages, Filled, Filling, Owner, Pool},
    },
    transport::shm::{lane::LaneRx, ring::Violation},
    wire::descriptor::Piece,
};

/// Messages of less come to memory of the heap, which keeps that for the next one by itself.
const POOL_FROM: u64 = 128 << 10;

/// Bytes of the pool that all messages of this process may have. Beyond that they come to the heap.
const POOL_BYTES: usize = 32 << 20;

/// Messages that would take more of it come to the heap, too.
const POOL_MAX: u64 = POOL_BYTES as u64 / 4;

/// The pool of this process, and the folding of its messages.
struct Store {
    /// Another one may take its place; messages that came to the one before stay there.
    pool: RwLock<Pool<AnonPages>>,
    folding: Folding,
    mark: ForkMark,
}

impl Store {
    fn new() -> io::Result<Store> {
        let mark = ForkMark::new()?;
        // Nothing that moves pages yet: pieces are rare.
        let pages = AnonPages::new((POOL_BYTES / PAGE_BYTES) as u32, None)?;
        // A child may look at messages of its parent's.
        pages.inherit()?;
        Ok(Store { pool: RwLock::new(Pool::new(pages)), folding: Folding::new()?, mark })
    }

    /// Makes the pieces of a message contiguous.
    fn fold(
        &self,
        message: Filled<AnonPages>,
        moves: Option<bool>,
    ) -> Result<InARow, Unfolded<Filled<AnonPages>>> {
        self.folding.fold(&self.pool, message, moves)
    }

    /// The store of this process. `None`: there is no memory for it now, or it is the parent's.
    fn here() -> Option<&'static Store> {
        // Longer pages than the pool's cannot be filled or moved one by one: messages come to the
        // heap.
        if page_size() != PAGE_BYTES {
            return None;
        }
        static STORE: OnceLock<Store> = OnceLock::new();
        let store = match STORE.get() {
            Some(store) => store,
            None => {
                let refused = |error: &_| tracing::debug!(%error, "a message comes to the heap");
                let made = Store::new().inspect_err(refused).ok()?;
                STORE.get_or_init(|| made)
            }
        };
        Some(store).filter(|store| !store.mark.is_child())
    }
}

/// Room for a message. It is not cleared first.
#[derive(Debug)]
pub(crate) struct Landing(Room);

#[derive(Debug)]
enum Room {
    Heap(Vec<u8>),
    /// In pages, and whether these may be moved; `None` if the program has not said.
    Pages(Filling<AnonPages>, Option<bool>),
}

impl Landing {
    /// Room for `len` bytes and the way to write there; `None` if there is not so much memory.
    /// `moves`: whether its pages may be moved when it is handed out, if the program has said
    /// so.
    pub(crate) fn new(len: u64, moves: Option<bool>) -> Option<(Landing, Scatter)> {
        if let Some(found) = Landing::in_pool(len, moves) {
            return Some(found);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(len).ok()?).ok()?;
        // SAFETY: the vector's heap memory stays where it is while the landing exists, and an
        // operation drops both together.
        let scatter = unsafe { Scatter::one(bytes.as_mut_ptr(), len as usize) };
        Some((Landing(Room::Heap(bytes)), scatter))
    }

    fn in_pool(len: u64, moves: Option<bool>) -> Option<(Landing, Scatter)> {
        if !(POOL_FROM..=POOL_MAX).contains(&len) {
            return None;
        }
        let mut filling = Store::here()?.pool.read().take(Owner(0), len).ok()?;
        let spans = filling.spare(len).map(|span| (span.at.as_ptr(), span.len));
        // SAFETY: the pages are the message's, and stay where they are while the landing exists,
        // which an operation drops together with this.
        let scatter = unsafe { Scatter::many(spans) };
        Some((Landing(Room::Pages(filling, moves)), scatter))
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
            Room::Pages(mut filling, moves) => {
                let fits = filling.assume_filled(written);
                assert!(fits.is_ok(), "more was written than there is room");
                Bytes::Pages(Box::new(Paged { filled: filling.finish(), moves }))
            }
        }
    }
}

/// An unexpected message that comes in.
pub(crate) struct Kept {
    landing: Landing,
    memory: Scatter,
    len: u64,
}

impl Kept {
    /// As [`Landing::new`].
    pub(crate) fn new(len: u64, moves: Option<bool>) -> Option<Kept> {
        let (landing, memory) = Landing::new(len, moves)?;
        Some(Kept { landing, memory, len: 0 })
    }

    /// Bytes that have come.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The first `want` bytes, at most 8, if they have come; zeros behind them.
    pub(crate) fn head(&self, want: u64) -> Option<[u8; 8]> {
        let head = self.memory.slice(0, want);
        (self.len >= want).then(|| head.read_words::<1>()[0].to_ne_bytes())
    }

    /// Appends a piece out of a lane; as much as there is room for.
    pub(crate) fn append(&mut self, lane: &mut LaneRx, piece: Piece) -> Result<(), Violation> {
        self.len += self.memory.drain(lane, piece, self.len)?;
        Ok(())
    }

    /// Appends the first `len` bytes of some memory; as much as there is room for. Returns how
    /// many.
    pub(crate) fn append_from(&mut self, from: &Scatter, len: u64, copier: &mut Copier) -> u64 {
        let copied = self.memory.copy_from(copier, self.len, from, len);
        self.len += copied;
        copied
    }

    /// The memory for the next bytes, as far as that is one part.
    pub(crate) fn next_part(&self) -> Option<Segment> {
        self.memory.part_at(self.len)
    }

    /// So many more bytes have come, there.
    ///
    /// # Safety
    /// They have been written.
    pub(crate) unsafe fn came(&mut self, bytes: u64) {
        self.len += bytes;
    }

    /// The bytes that have come.
    pub(crate) fn into_bytes(self) -> Bytes {
        // SAFETY: `append`, and the caller of `came`, have written so many, from the beginning on.
        unsafe { self.landing.into_bytes(self.len) }
    }
}

/// The bytes of a message that the library holds.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// In a row.
    Heap(SmallVec<[u8; 64]>),
    /// In pages of the pool.
    Pages(Box<Paged>),
}

/// A message in pages of the pool.
#[derive(Debug)]
pub(crate) struct Paged {
    filled: Filled<AnonPages>,
    /// The program's word on moving them; `None` if it has not said.
    moves: Option<bool>,
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
            Bytes::Pages(paged) => paged.filled.bytes(),
        }
    }

    /// The first of them, as many as lie in a row.
    pub(crate) fn first(&self) -> &[u8] {
        match self {
            Bytes::Heap(bytes) => bytes,
            Bytes::Pages(paged) => paged.filled.spans().next().map_or(&[], |span| {
                // SAFETY: the message's own, which no code writes to any more.
                unsafe { std::slice::from_raw_parts(span.at.as_ptr(), span.len) }
            }),
        }
    }

    /// Copies them to the beginning of some memory, as far as there is room. Returns how many.
    pub(crate) fn write_to(&self, memory: &Scatter, copier: &mut Copier) -> u64 {
        match self {
            Bytes::Heap(bytes) => memory.write(copier, 0, bytes),
            Bytes::Pages(paged) => paged.filled.spans().fold(0, |done, span| {
                // SAFETY: the message's own, which no code writes to any more.
                let part = unsafe { std::slice::from_raw_parts(span.at.as_ptr(), span.len) };
                done + memory.write(copier, done, part)
            }),
        }
    }

    /// The bytes, contiguous.
    pub(crate) fn whole(self) -> Whole {
        match self {
            Bytes::Heap(bytes) => Whole::Heap(bytes),
            Bytes::Pages(paged) => Whole::of(paged),
        }
    }
}
