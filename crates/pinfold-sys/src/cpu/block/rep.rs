//! String instructions: the processor's own loop. They have no streaming form.

use std::arch::asm;

use super::{
    Prefetch, fetch, libc,
    sizes::{BLOCK, SHORT},
};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(prefetch: Prefetch, mut from: *const u8, mut to: *mut u8, len: usize) {
    if len < SHORT {
        // SAFETY: as the caller promised.
        return unsafe { libc::copy(prefetch, from, to, len) };
    }
    let mut left = len;
    while left > 0 {
        let block = block(prefetch, left);
        // SAFETY: the caller promised the bytes, and a block ends before `left` does. The direction
        // is forward wherever one function calls another.
        unsafe {
            fetch::copying(prefetch, from, to, block);
            asm!("rep movsb", inout("rcx") block => _, inout("rsi") from, inout("rdi") to,
                options(nostack, preserves_flags));
        }
        left -= block;
    }
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, mut to: *mut u8, len: usize) {
    if len < SHORT {
        // SAFETY: as the caller promised.
        return unsafe { libc::zero(prefetch, to, len) };
    }
    let mut left = len;
    while left > 0 {
        let block = block(prefetch, left);
        // SAFETY: as in `copy`.
        unsafe {
            fetch::zeroing(prefetch, to, block);
            asm!("rep stosb", inout("rcx") block => _, in("al") 0u8, inout("rdi") to,
                options(nostack, preserves_flags));
        }
        left -= block;
    }
}

/// Bytes that one instruction moves: it starts slowly, so all that need not wait for a fetch.
fn block(prefetch: Prefetch, left: usize) -> usize {
    match prefetch {
        Prefetch::None => left,
        Prefetch::Source | Prefetch::Destination => left.min(BLOCK),
    }
}
