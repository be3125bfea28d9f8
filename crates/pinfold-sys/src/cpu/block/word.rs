//! Words of 8 bytes: every processor can move those.

use super::{Prefetch, Stores, lines};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised.
    unsafe { lines::copy::<Word>(prefetch, stores, from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { lines::zero::<Word>(prefetch, stores, to, len) };
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
use Portable as Word;

/// A line as eight words, by instructions that are named.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
struct Word;

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl lines::Line for Word {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                std::arch::asm!(
                    "mov {a}, [{from} + {at}]",
                    "mov {b}, [{from} + {at} + 8]",
                    "mov {c}, [{from} + {at} + 16]",
                    "mov {d}, [{from} + {at} + 24]",
                    concat!($store, " [{to} + {at}], {a}"),
                    concat!($store, " [{to} + {at} + 8], {b}"),
                    concat!($store, " [{to} + {at} + 16], {c}"),
                    concat!($store, " [{to} + {at} + 24], {d}"),
                    "mov {a}, [{from} + {at} + 32]",
                    "mov {b}, [{from} + {at} + 40]",
                    "mov {c}, [{from} + {at} + 48]",
                    "mov {d}, [{from} + {at} + 56]",
                    concat!($store, " [{to} + {at} + 32], {a}"),
                    concat!($store, " [{to} + {at} + 40], {b}"),
                    concat!($store, " [{to} + {at} + 48], {c}"),
                    concat!($store, " [{to} + {at} + 56], {d}"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    a = out(reg) _,
                    b = out(reg) _,
                    c = out(reg) _,
                    d = out(reg) _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line; every x86-64 processor has the instructions.
        unsafe {
            if STREAMING {
                line!("movnti");
            } else {
                line!("mov");
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                std::arch::asm!(
                    concat!($store, " [{to} + {at}], {zero}"),
                    concat!($store, " [{to} + {at} + 8], {zero}"),
                    concat!($store, " [{to} + {at} + 16], {zero}"),
                    concat!($store, " [{to} + {at} + 24], {zero}"),
                    concat!($store, " [{to} + {at} + 32], {zero}"),
                    concat!($store, " [{to} + {at} + 40], {zero}"),
                    concat!($store, " [{to} + {at} + 48], {zero}"),
                    concat!($store, " [{to} + {at} + 56], {zero}"),
                    to = in(reg) to,
                    at = const AT,
                    zero = in(reg) 0u64,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: as in `copy`.
        unsafe {
            if STREAMING {
                line!("movnti");
            } else {
                line!("mov");
            }
        }
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
impl lines::Line for Word {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                std::arch::asm!(
                    "ldp {a}, {b}, [{from}, #{at}]",
                    "ldp {c}, {d}, [{from}, #{at} + 16]",
                    concat!($store, " {a}, {b}, [{to}, #{at}]"),
                    concat!($store, " {c}, {d}, [{to}, #{at} + 16]"),
                    "ldp {a}, {b}, [{from}, #{at} + 32]",
                    "ldp {c}, {d}, [{from}, #{at} + 48]",
                    concat!($store, " {a}, {b}, [{to}, #{at} + 32]"),
                    concat!($store, " {c}, {d}, [{to}, #{at} + 48]"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    a = out(reg) _,
                    b = out(reg) _,
                    c = out(reg) _,
                    d = out(reg) _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line; every AArch64 processor has the instructions.
        unsafe {
            if STREAMING {
                line!("stnp");
            } else {
                line!("stp");
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                std::arch::asm!(
                    concat!($store, " xzr, xzr, [{to}, #{at}]"),
                    concat!($store, " xzr, xzr, [{to}, #{at} + 16]"),
                    concat!($store, " xzr, xzr, [{to}, #{at} + 32]"),
                    concat!($store, " xzr, xzr, [{to}, #{at} + 48]"),
                    to = in(reg) to,
                    at = const AT,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: as in `copy`.
        unsafe {
            if STREAMING {
                line!("stnp");
            } else {
                line!("stp");
            }
        }
    }
}

/// A line as eight words, in plain Rust, which cannot ask for streaming.
#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, test))]
pub(super) struct Portable;

#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, test))]
impl lines::Line for Portable {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        // Nothing says that the bytes were ever written.
        type Word = std::mem::MaybeUninit<u64>;
        for at in (AT..AT + super::sizes::LINE).step_by(size_of::<Word>()) {
            // SAFETY: the caller promised the line.
            unsafe {
                let word = from.add(at).cast::<Word>().read_unaligned();
                to.add(at).cast::<Word>().write_unaligned(word);
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        for at in (AT..AT + super::sizes::LINE).step_by(size_of::<u64>()) {
            // SAFETY: the caller promised the line.
            unsafe { to.add(at).cast::<u64>().write_unaligned(0) };
        }
    }
}
