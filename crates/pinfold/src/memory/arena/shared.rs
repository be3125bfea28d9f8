#![allow(unsafe_code)]
//! A buffer of an arena that peers can write.
//!
//! **Invariant.** The bytes of a [`SharedBuf`] are mapped until it is dropped, and reached by its
//! [`Cells`] only.

use std::{
    fmt,
    sync::atomic::{AtomicU32, AtomicU64},
};

use super::{SharedArena, cells::Cells, registry::ArenaRef, state::Block};
use crate::Result;

/// A buffer in a [`SharedArena`]. Dropping it frees its bytes.
///
/// ```
/// use std::sync::atomic::Ordering::SeqCst;
/// use pinfold::SharedArena;
///
/// # fn main() -> pinfold::Result<()> {
/// let buf = SharedArena::builder().build_shared()?.alloc(64)?;
/// buf.write(8, b"copied in"); // Peers may write meanwhile, so there is no slice of it.
/// let mut bytes = [0; 9];
/// buf.read(8, &mut bytes);
/// assert_eq!(&bytes, b"copied in");
/// assert_eq!(buf.word64(0).unwrap().fetch_add(1, SeqCst), 0);
/// # Ok(())
/// # }
/// ```
pub struct SharedBuf {
    cells: Cells,
    block: Block,
    arena: SharedArena,
}

impl SharedBuf {
    pub(super) fn new(arena: &SharedArena, len: usize, align: usize) -> Result<SharedBuf> {
        let (block, at) = arena.heap.alloc(len, align)?;
        // SAFETY: the heap's, until the block is freed; it begins at a multiple of 64.
        let cells = unsafe { Cells::new(at, len) };
        cells.fill(0);
        Ok(SharedBuf { cells, block, arena: arena.clone() })
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Returns whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The arena it is in.
    pub fn arena(&self) -> &SharedArena {
        &self.arena
    }

    /// Copies the bytes at `offset` out. Peers may write meanwhile: the copy has some or all of
    /// their bytes, eight aligned ones always together.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        self.cells.read(offset, into);
    }

    /// Copies bytes in at `offset`. Peers may read and write meanwhile: eight aligned bytes are
    /// always written together.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.cells.write(offset, from);
    }

    /// Makes all bytes the same.
    pub fn fill(&self, byte: u8) {
        self.cells.fill(byte);
    }

    /// The bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read(0, &mut bytes);
        bytes
    }

    /// The 32-bit word at `offset`, if all of it is inside and `offset` is a multiple of 4.
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        // SAFETY: mapped while `self` is borrowed.
        unsafe { self.cells.word32(offset) }
    }

    /// The 64-bit word at `offset`, if all of it is inside and `offset` is a multiple of 8.
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        // SAFETY: as in `word32`.
        unsafe { self.cells.word64(offset) }
    }

    /// The extent it is in, and its offset there.
    pub(crate) fn locate(&self) -> (ArenaRef, u64) {
        self.arena.heap.locate(self.block)
    }

    /// The addresses of its bytes in this process: to be [exposed](crate::Endpoint::expose), say.
    /// The bytes may be reached by the methods of this type, or by peers, but not by a pointer made
    /// of an address.
    pub fn addresses(&self) -> std::ops::Range<usize> {
        let start = self.as_ptr().expose_provenance();
        start..start + self.len()
    }

    /// Its first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.cells.as_ptr()
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        let fits = self.cells.has(offset, len);
        assert!(fits, "{len} bytes at {offset} of a buffer of {}", self.len());
    }
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        self.arena.heap.free(self.block);
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuf").field("len", &self.len()).finish_non_exhaustive()
    }
}
