//! Cache lines, 64 bytes an instruction.

use std::arch::asm;

use super::{Prefetch, Stores, lines};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has AVX-512F and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised.
    unsafe { lines::copy::<Avx512>(prefetch, stores, from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has AVX-512F and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { lines::zero::<Avx512>(prefetch, stores, to, len) };
}

/// A line as one register of 64 bytes, of the upper sixteen: after a write to those, code need not
/// clear them for the sake of older instructions that come later, which takes a nanosecond.
struct Avx512;

impl lines::Line for Avx512 {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "vmovdqu64 zmm16, [{from} + {at}]",
                    concat!($store, " [{to} + {at}], zmm16"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    out("xmm16") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line and the instructions; streaming stores are aligned.
        unsafe {
            if STREAMING {
                line!("vmovntdq");
            } else {
                line!("vmovdqu64");
            }
        }
    }

    /// All lines are loaded before any is stored: a load does not wait for a store to an address
    /// that looks like its own.
    #[inline(always)]
    unsafe fn copy_four<const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! lines {
            ($store:literal) => {
                asm!(
                    "vmovdqu64 zmm16, [{from}]",
                    "vmovdqu64 zmm17, [{from} + 64]",
                    "vmovdqu64 zmm18, [{from} + 128]",
                    "vmovdqu64 zmm19, [{from} + 192]",
                    concat!($store, " [{to}], zmm16"),
                    concat!($store, " [{to} + 64], zmm17"),
                    concat!($store, " [{to} + 128], zmm18"),
                    concat!($store, " [{to} + 192], zmm19"),
                    from = in(reg) from,
                    to = in(reg) to,
                    out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: as in `copy`, of four lines.
        unsafe {
            if STREAMING {
                lines!("vmovntdq");
            } else {
                lines!("vmovdqu64");
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "vpxorq zmm16, zmm16, zmm16",
                    concat!($store, " [{to} + {at}], zmm16"),
                    to = in(reg) to,
                    at = const AT,
                    out("xmm16") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: as in `copy`.
        unsafe {
            if STREAMING {
                line!("vmovntdq");
            } else {
                line!("vmovdqu64");
            }
        }
    }
}
