//! Blocks of memory, copied and zeroed by every algorithm there is: one file for each set of
//! instructions, all with the same functions, and one place that goes to them.
//!
//! Which one suits is decided elsewhere. Contents may be written by others meanwhile (the memory may
//! be shared with another process): then what arrives is any mixture, and nothing worse.
#![allow(unsafe_code)]
// Invariant: nothing outside of `[from, from + len)` is read, nothing outside of `[to, to + len)` is
// written, no instruction is executed that the processor lacks, and streaming stores are fenced
// before the function returns.

mod algorithm;

pub use algorithm::{Algorithm, Isa, Prefetch, Stores, UnknownAlgorithm};

impl Algorithm {
    /// Whether this processor, and the system on it, can execute it. A nanosecond.
    pub fn is_supported(self) -> bool {
        self.isa() == Isa::Libc
    }
}

/// Copies `len` bytes by `algorithm`; by [`Algorithm::LIBC`] where the processor lacks it.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, and the two must not overlap.
#[inline]
pub unsafe fn copy(algorithm: Algorithm, from: *const u8, to: *mut u8, len: usize) {
    let _ = algorithm;
    // SAFETY: as the caller promised.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// Zeroes `len` bytes by `algorithm`; by [`Algorithm::LIBC`] where the processor lacks it.
///
/// # Safety
/// `to` must be writable for `len` bytes.
#[inline]
pub unsafe fn zero(algorithm: Algorithm, to: *mut u8, len: usize) {
    let _ = algorithm;
    // SAFETY: as the caller promised.
    unsafe { std::ptr::write_bytes(to, 0, len) };
}
