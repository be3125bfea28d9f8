//! Cache lines, 32 bytes an instruction: pairs of AArch64's registers of 16.
//!
//! Streaming stores are `stnp`, which says of a pair that it is not read soon. That is a hint: a
//! processor may keep such lines in its caches as any others. Loads are plain ones: `ldnp` gives
//! up an order of loads (Arm's *Architecture Reference Manual*, C3.2.4) and says nothing of where
//! the source is afterwards that `prfm` would not.

use std::arch::asm;

use super::{Prefetch, Stores, lines};

/// Copies `len` bytes.
///
/// # Safety
/// As for [`copy`](super::copy).
#[inline(always)]
pub(super) unsafe fn copy(
    prefetch: Prefetch,
    stores: Stores,
    from: *const u8,
    to: *mut u8,
    len: usize,
) {
    // SAFETY: as the caller promised.
    unsafe { lines::copy::<Neon>(prefetch, stores, from, to, len) };
}

/// Zeroes `len` bytes.
///
/// # Safety
/// As for [`zero`](super::zero).
#[inline(always)]
pub(super) unsafe fn zero(prefetch: Prefetch, stores: Stores, to: *mut u8, len: usize) {
    // SAFETY: as the caller promised.
    unsafe { lines::zero::<Neon>(prefetch, stores, to, len) };
}

/// A line as two pairs of registers.
struct Neon;

impl lines::Line for Neon {
    #[inline(always)]
    unsafe fn copy<const AT: usize, const STREAMING: bool>(from: *const u8, to: *mut u8) {
        macro_rules! line {
            ($store:literal) => {
                asm!(
                    "ldp q0, q1, [{from}, #{at}]",
                    "ldp q2, q3, [{from}, #{at} + 32]",
                    concat!($store, " q0, q1, [{to}, #{at}]"),
                    concat!($store, " q2, q3, [{to}, #{at} + 32]"),
                    from = in(reg) from,
                    to = in(reg) to,
                    at = const AT,
                    out("v0") _, out("v1") _, out("v2") _, out("v3") _,
                    options(nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller promised the line; the instructions are part of AArch64 as Rust
        // compiles for it.
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
                asm!(
                    "movi v0.2d, #0",
                    concat!($store, " q0, q0, [{to}, #{at}]"),
                    concat!($store, " q0, q0, [{to}, #{at} + 32]"),
                    to = in(reg) to,
                    at = const AT,
                    out("v0") _,
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
