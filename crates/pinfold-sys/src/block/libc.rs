//! The C library's, which the compiler calls for these, or does better for a length it knows.

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy).
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
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
/// As for [`zero`](super::zero).
#[inline]
pub(super) unsafe fn zero(to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { std::ptr::write_bytes(to, 0, len) };
}
