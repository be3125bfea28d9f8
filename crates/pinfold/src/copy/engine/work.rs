#![allow(unsafe_code)]
//! The bytes to be copied or zeroed: addresses, as raw as can be.
//!
//! **Invariant.** The maker of a [`Work`] promises that its memory may be used until the work has
//! ended; a piece of it names nothing beyond it.

use pinfold_sys::cpu::block;

use super::super::{Algorithm, Block, Reader, plan};

/// A block to copy or to zero.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Null for a block to zero.
    from: *const u8,
    to: *mut u8,
    len: usize,
    algorithm: Algorithm,
}

// SAFETY: its maker lets any thread use the memory, until the work has ended.
unsafe impl Send for Work {}
// SAFETY: it is plain addresses, which only the engine and its back end follow.
unsafe impl Sync for Work {}

impl Work {
    /// `len` bytes from `from` to `to`. They may overlap.
    pub const fn copy(from: *const u8, to: *mut u8, len: usize) -> Work {
        Work { from, to, len, algorithm: Algorithm::LIBC }
    }

    /// `len` zeros at `to`.
    pub const fn zero(to: *mut u8, len: usize) -> Work {
        Work { from: std::ptr::null(), to, len, algorithm: Algorithm::LIBC }
    }

    /// The same by another algorithm, where a processor does it.
    pub const fn by(self, algorithm: Algorithm) -> Work {
        Work { algorithm, ..self }
    }

    /// The same by the algorithm that the plan of this process has for it. Another core reads it
    /// next: the thread that waits is not the one that copies.
    pub fn planned(self) -> Work {
        let (len, reader) = (self.len, Reader::OtherCore);
        let to = self.to.addr();
        let from = self.from().map_or(to, <*const u8>::addr);
        let block = Block { len, from, to, reader, ..Block::default() };
        let algorithm =
            if self.from.is_null() { plan().pick_zero(&block) } else { plan().pick(&block) };
        self.by(algorithm)
    }

    /// The algorithm that does it.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The address of the source bytes; `None` if they are zeros.
    pub fn from(&self) -> Option<*const u8> {
        (!self.from.is_null()).then_some(self.from)
    }

    /// The address of the destination.
    pub const fn to(&self) -> *mut u8 {
        self.to
    }

    /// The number of bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes of it at `at`, both of which are inside.
    pub(super) fn piece(&self, at: usize, len: usize) -> Work {
        debug_assert!(at + len <= self.len);
        let from = if self.from.is_null() { self.from } else { self.from.wrapping_add(at) };
        Work { from, to: self.to.wrapping_add(at), len, algorithm: self.algorithm }
    }

    /// Returns whether source and destination have bytes in common: then it cannot be done in
    /// pieces.
    pub(super) fn overlaps_itself(&self) -> bool {
        self.from().is_some_and(|from| touches(from.addr(), self.len, self.to.addr(), self.len))
    }

    /// Returns whether it makes a difference which of the two is first.
    pub(super) fn conflicts(&self, other: &Work) -> bool {
        let writes = |a: &Work, b: &Work| {
            let reads =
                b.from().is_some_and(|from| touches(a.to.addr(), a.len, from.addr(), b.len));
            reads || touches(a.to.addr(), a.len, b.to.addr(), b.len)
        };
        writes(self, other) || writes(other, self)
    }

    /// Does it, now and in this thread. Never panics.
    ///
    /// # Safety
    /// The memory is there and may be used, by nothing else meanwhile.
    pub unsafe fn perform(&self) {
        match self.from() {
            // SAFETY: as the caller promised.
            None => unsafe { block::zero(self.algorithm, self.to, self.len) },
            Some(from) if self.overlaps_itself() => {
                // SAFETY: as the caller promised.
                unsafe { std::ptr::copy(from, self.to, self.len) }
            }
            // SAFETY: as the caller promised, and they do not overlap.
            Some(from) => unsafe { block::copy(self.algorithm, from, self.to, self.len) },
        }
    }
}

/// Returns whether two ranges have a byte in common.
fn touches(a: usize, a_len: usize, b: usize, b_len: usize) -> bool {
    // Compared by their distance: a range may end at the last address.
    if a <= b { b - a < a_len && b_len > 0 } else { a - b < b_len && a_len > 0 }
}
