//! The C library's, which the compiler calls for these, or does better for a length it knows.

use super::{Prefetch, fetch, sizes::BLOCK};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(prefetch: Prefetch, mut from: *const u8, mut to: *mut u8, len: usize) {
    let mut left = len;
    // SAFETY: as the caller promised; no block is longer than the rest.
    unsafe {
        // A fetched line must not have left the cache again before its turn.
        while prefetch != Prefetch::None && left > BLOCK {
            fetch::copying(prefetch, from, to, BLOCK);
            std::ptr::copy_nonoverlapping(from, to, BLOCK);
            (from, to) = (from.add(BLOCK), to.add(BLOCK));
            left -= BLOCK;
        }
        fetch::copying(prefetch, from, to, left);
        std::ptr::copy_nonoverlapping(from, to, left);
    }
}

/// Copies `len` bytes that may overlap.
///
/// # Safety
/// As for [`copy_overlapping`](super::copy_overlapping).
#[inline]
pub(super) unsafe fn copy_overlapping(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { std::ptr::copy(from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, mut to: *mut u8, len: usize) {
    let mut left = len;
    // SAFETY: as in `copy`.
    unsafe {
        while prefetch != Prefetch::None && left > BLOCK {
            fetch::zeroing(prefetch, to, BLOCK);
            std::ptr::write_bytes(to, 0, BLOCK);
            to = to.add(BLOCK);
            left -= BLOCK;
        }
        fetch::zeroing(prefetch, to, left);
        std::ptr::write_bytes(to, 0, left);
    }
}
