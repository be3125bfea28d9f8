//! Cache lines, 32 bytes an instruction.

use std::arch::asm;

use super::{Prefetch, Stores, lines};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has AVX2 and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised.
    unsafe { lines::copy::<Avx2>(prefetch, stores, from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has AVX2 and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { lines::zero::<Avx2>(prefetch, stores, to, len) };
}

/// A line as two registers of 32 bytes.
struct Avx2;

impl lines::Line for Avx2 {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "vmovdqu ymm0, [{from} + {at}]",
                    "vmovdqu ymm1, [{from} + {at} + 32]",
                    concat!($store, " [{to} + {at}], ymm0"),
                    concat!($store, " [{to} + {at} + 32], ymm1"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    out("xmm0") _, out("xmm1") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line and the instructions; streaming stores are aligned.
        unsafe {
            if STREAMING {
                line!("vmovntdq");
            } else {
                line!("vmovdqu");
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "vpxor xmm0, xmm0, xmm0",
                    concat!($store, " [{to} + {at}], ymm0"),
                    concat!($store, " [{to} + {at} + 32], ymm0"),
                    to = in(reg) to,
                    at = const AT,
                    out("xmm0") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: as in `copy`.
        unsafe {
            if STREAMING {
                line!("vmovntdq");
            } else {
                line!("vmovdqu");
            }
        }
    }

    /// Narrow instructions are slow while the wide registers are in use.
    #[inline(always)]
    unsafe fn leave() {
        // SAFETY: the caller promised the instructions. They change all registers of vectors, as
        // any call may.
        unsafe {
            asm!("vzeroupper", clobber_abi("sysv64"), options(nostack, nomem, preserves_flags));
        }
    }
}
