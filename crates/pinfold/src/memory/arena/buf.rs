#![allow(unsafe_code)]
//! A buffer of an arena that peers cannot write.
//!
//! **Invariant.** An [`ArenaBuf`] alone has the `len` bytes at `at`: the heap gives no two buffers
//! the same bytes, they are mapped and have memory until the buffer is freed, and only [`Arena`]
//! makes such buffers, whose extents no peer can map writable: the kernel refuses it, or the
//! descriptor is not given away. Every byte of the mapping is initialised, by the kernel at first.
//! So references to them are sound. Peers that read meanwhile see any of the bytes, old or new.

use std::{
    fmt,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use super::{Arena, registry::ArenaRef, state::Block};
use crate::Result;

/// A buffer in an [`Arena`]. It dereferences to its bytes; dropping it frees them.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// let arena = pinfold::Arena::new()?;
/// let mut buf = arena.alloc_zeroed(8)?;
/// buf[..5].copy_from_slice(b"bytes"); // A buffer is a slice.
/// assert_eq!(&*buf, b"bytes\0\0\0");
/// drop(buf);
/// assert_eq!(arena.stats().buffers, 0);
/// # Ok(())
/// # }
/// ```
pub struct ArenaBuf {
    at: NonNull<u8>,
    len: usize,
    block: Block,
    arena: Arena,
}

// SAFETY: the bytes belong to this buffer alone, as those of a box do.
unsafe impl Send for ArenaBuf {}
// SAFETY: as for `Send`; `&ArenaBuf` gives nothing but `&[u8]`.
unsafe impl Sync for ArenaBuf {}

impl ArenaBuf {
    #[inline]
    pub(super) fn new(arena: &Arena, len: usize, align: usize) -> Result<ArenaBuf> {
        let (block, at) = arena.heap.alloc(len, align)?;
        Ok(ArenaBuf { at, len, block, arena: arena.clone() })
    }

    /// The arena it is in.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The extent it is in, and its offset there.
    pub(crate) fn locate(&self) -> (ArenaRef, u64) {
        self.arena.heap.locate(self.block)
    }
}

impl Drop for ArenaBuf {
    #[inline]
    fn drop(&mut self) {
        self.arena.heap.free(self.block);
    }
}

impl Deref for ArenaBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for ArenaBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: see the invariant.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for ArenaBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for ArenaBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for ArenaBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaBuf").field("len", &self.len).finish_non_exhaustive()
    }
}
