//! Blocks of memory, copied and zeroed by every algorithm there is: one file for each set of
//! instructions, all with the same functions, and one place that goes to them.
//!
//! The choice of one is made elsewhere. Contents may be written by others meanwhile (the memory may
//! be shared with another process): then any mixture arrives, and nothing worse. So the loops are
//! made of named instructions on raw pointers, which the compiler takes for nothing else.
#![allow(unsafe_code)]
// Invariant: nothing outside of `[from, from + len)` is read, nothing outside of `[to, to + len)`
// is written, no instruction is executed that the processor lacks, and streaming stores are fenced
// before the function returns.

mod algorithm;
mod dispatch;
mod fetch;
mod halves;
mod libc;
mod line;
mod lines;
mod sizes;
mod support;
#[cfg(test)]
mod tests;
mod word;

/// Compiled for processors that have them, not under Miri, which knows none of these
/// instructions.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx512;
#[cfg(all(target_arch = "aarch64", not(miri)))]
mod neon;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod rep;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod sse2;

pub use algorithm::{Algorithm, Isa, Prefetch, Stores, UnknownAlgorithm};
pub use halves::{copy_halves, has_halves};
pub use line::{fetch_start, flush, read_line_ticks};

impl Algorithm {
    /// Returns whether this processor, and the system on it, can execute it. A nanosecond.
    #[inline]
    pub fn is_supported(self) -> bool {
        support::has(self.id().into())
    }
}

/// Copies `len` bytes by `algorithm`; by [`Algorithm::LIBC`] where the processor lacks it.
///
/// A few nanoseconds, and the time of the copy. Streaming stores are visible to all others before
/// anything that this thread stores after it returns.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, and the two must not overlap.
#[inline]
pub unsafe fn copy(algorithm: Algorithm, from: *const u8, to: *mut u8, len: usize) {
    if algorithm == Algorithm::LIBC || !algorithm.is_supported() {
        // SAFETY: as the caller promised.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
    // SAFETY: as the caller promised, and the processor has the instructions.
    unsafe { copy_by(algorithm, from, to, len) };
}

/// Copies `len` bytes by `algorithm`, as [`copy`] does, but without its check that the processor
/// has it: a nanosecond less.
///
/// # Safety
/// As for [`copy`], and `algorithm` must be [supported](Algorithm::is_supported).
#[inline]
pub unsafe fn copy_by(algorithm: Algorithm, from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { dispatch::copying(algorithm)(to, from, len) };
}

/// Copies `len` bytes by [`Algorithm::LIBC_FETCHED`], in line: for blocks so short that a call
/// counts.
///
/// # Safety
/// As for [`copy_by`].
#[inline(always)]
pub unsafe fn copy_fetched(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe {
        fetch::copying(Prefetch::Destination, from, to, len);
        std::ptr::copy_nonoverlapping(from, to, len);
    }
}

/// Copies `len` bytes whose old and new places may overlap: by `algorithm` if they do not, else by
/// the C library's `memmove`.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline]
pub unsafe fn copy_overlapping(algorithm: Algorithm, from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised; overlapping bytes go the one way that allows it.
    unsafe {
        if overlaps(from, to, len) {
            libc::copy_overlapping(from, to, len);
        } else {
            copy(algorithm, from, to, len);
        }
    }
}

/// Returns whether `len` bytes at each of the two have a byte in common.
#[inline]
pub fn overlaps(from: *const u8, to: *const u8, len: usize) -> bool {
    from.addr().abs_diff(to.addr()) < len
}

/// Zeroes `len` bytes by `algorithm`; by [`Algorithm::LIBC`] where the processor lacks it.
///
/// Nothing is read, so there is no source to fetch. As for [`copy`] otherwise.
///
/// # Safety
/// `to` must be writable for `len` bytes.
#[inline]
pub unsafe fn zero(algorithm: Algorithm, to: *mut u8, len: usize) {
    if algorithm == Algorithm::LIBC || !algorithm.is_supported() {
        // SAFETY: as the caller promised.
        return unsafe { to.write_bytes(0, len) };
    }
    // SAFETY: as the caller promised, and the processor has the instructions.
    unsafe { dispatch::zeroing(algorithm)(to, len) };
}

/// Makes this thread's streaming stores visible before any store that comes after.
#[inline(always)]
fn fence() {
    #[cfg(test)]
    if tests::fence_left_out() {
        return;
    }
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 processor has the instruction, which orders memory and changes nothing.
    // It may touch memory as far as the compiler knows, so that nothing moves across it.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: every AArch64 processor has the instruction, which keeps stores before it from those
    // after it, for all processors that the kernel runs on; as above otherwise.
    unsafe {
        std::arch::asm!("dmb ishst", options(nostack, preserves_flags));
    }
}
