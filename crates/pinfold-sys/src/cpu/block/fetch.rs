//! Prefetching: lines are brought into the cache before they are needed, on x86-64 and AArch64.
//! Other processors see to that themselves.

use super::Prefetch;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
use super::sizes::LINE;

/// Fetches before `len` bytes are copied from `from` to `to`.
///
/// # Safety
/// The processor has the instruction.
#[inline(always)]
pub(super) unsafe fn copying(prefetch: Prefetch, from: *const u8, to: *mut u8, len: usize) {
    match prefetch {
        Prefetch::None => {}
        // SAFETY: as the caller promised.
        Prefetch::Source => unsafe { to_read(from, len) },
        // SAFETY: as the caller promised.
        Prefetch::Destination => unsafe { to_write(to, len) },
    }
}

/// Fetches before `len` bytes at `to` are zeroed, which reads nothing: only the destination can be
/// fetched.
///
/// # Safety
/// The processor has the instruction.
#[inline(always)]
pub(super) unsafe fn zeroing(prefetch: Prefetch, to: *mut u8, len: usize) {
    match prefetch {
        Prefetch::None | Prefetch::Source => {}
        // SAFETY: as the caller promised.
        Prefetch::Destination => unsafe { to_write(to, len) },
    }
}

/// Fetches to read once, so that little else leaves the caches for it (Calhoun, section 4.2).
///
/// # Safety
/// None that matters: a hint faults nowhere.
#[inline(always)]
pub(super) unsafe fn to_read(from: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for from in lines(from.addr(), len) {
        // SAFETY: every x86-64 processor has the instruction, and it changes nothing.
        unsafe {
            std::arch::asm!("prefetchnta [{from}]", from = in(reg) from,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    for from in lines(from.addr(), len) {
        // SAFETY: every AArch64 processor has the instruction, and it changes nothing.
        unsafe {
            std::arch::asm!("prfm pldl1strm, [{from}]", from = in(reg) from,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = (from, len);
}

/// Fetches to write.
///
/// # Safety
/// The processor has the instruction.
#[inline(always)]
pub(super) unsafe fn to_write(to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for to in lines(to.addr(), len) {
        // SAFETY: the processor has the instruction; it faults nowhere and changes nothing.
        unsafe {
            std::arch::asm!("prefetchw [{to}]", to = in(reg) to,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    for to in lines(to.addr(), len) {
        // SAFETY: as in `to_read`.
        unsafe {
            std::arch::asm!("prfm pstl1keep, [{to}]", to = in(reg) to,
                options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = (to, len);
}

/// The first byte of `len` at `first`, and of each line after its own that has one of them.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
#[inline(always)]
fn lines(first: usize, len: usize) -> impl Iterator<Item = usize> {
    (first / LINE * LINE..first + len).step_by(LINE)
}
