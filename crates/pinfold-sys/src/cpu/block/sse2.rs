//! Cache lines, 16 bytes an instruction.

use std::arch::asm;

use super::{Prefetch, Stores, lines};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has SSE2 and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn copy(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised.
    unsafe { lines::copy::<Sse2>(prefetch, stores, from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has SSE2 and the instructions of `prefetch`.
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { lines::zero::<Sse2>(prefetch, stores, to, len) };
}

/// A line as four registers of 16 bytes.
struct Sse2;

impl lines::Line for Sse2 {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "movdqu xmm0, [{from} + {at}]",
                    "movdqu xmm1, [{from} + {at} + 16]",
                    "movdqu xmm2, [{from} + {at} + 32]",
                    "movdqu xmm3, [{from} + {at} + 48]",
                    concat!($store, " [{to} + {at}], xmm0"),
                    concat!($store, " [{to} + {at} + 16], xmm1"),
                    concat!($store, " [{to} + {at} + 32], xmm2"),
                    concat!($store, " [{to} + {at} + 48], xmm3"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line and the instructions; streaming stores are aligned.
        unsafe {
            if STREAMING {
                line!("movntdq");
            } else {
                line!("movdqu");
            }
        }
    }

    #[inline(always)]
    unsafe fn zero<const AT: usize, const STREAMING: bool>(to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "pxor xmm0, xmm0",
                    concat!($store, " [{to} + {at}], xmm0"),
                    concat!($store, " [{to} + {at} + 16], xmm0"),
                    concat!($store, " [{to} + {at} + 32], xmm0"),
                    concat!($store, " [{to} + {at} + 48], xmm0"),
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
                line!("movntdq");
            } else {
                line!("movdqu");
            }
        }
    }
}
