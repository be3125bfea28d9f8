//! From 32 to 64 bytes in line, by registers that nothing else needs.
//!
//! On x86-64 two of the upper sixteen, of AVX-512: after a write to those, code need not clear them
//! for the sake of older instructions that come later, which would take longer than the copy. On
//! AArch64 two pairs of any.

use super::support;

/// Returns whether the processor has them. Half a nanosecond.
#[inline(always)]
pub fn has_halves() -> bool {
    support::has(support::HALVES)
}

/// Copies from 32 to 64 bytes, all of which are read before any is written: they may overlap. A
/// nanosecond.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, which is from 32 to 64, and the
/// processor must [have](has_halves) the registers.
#[inline(always)]
pub unsafe fn copy_halves(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!((32..=64).contains(&len));
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller promised the bytes and the registers; both halves are inside.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 ymm16, [{from}]",
            "vmovdqu64 ymm17, [{from} + {len} - 32]",
            "vmovdqu64 [{to}], ymm16",
            "vmovdqu64 [{to} + {len} - 32], ymm17",
            from = in(reg) from,
            to = in(reg) to,
            len = in(reg) len,
            out("xmm16") _, out("xmm17") _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above; every AArch64 processor has the registers.
    unsafe {
        std::arch::asm!(
            "ldp q0, q1, [{from}]",
            "ldp q2, q3, [{from_end}, #-32]",
            "stp q0, q1, [{to}]",
            "stp q2, q3, [{to_end}, #-32]",
            from = in(reg) from,
            from_end = in(reg) from.add(len),
            to = in(reg) to,
            to_end = in(reg) to.add(len),
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            options(nostack, preserves_flags),
        );
    }
    // Nobody else has them.
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    // SAFETY: as the caller promised.
    unsafe {
        std::ptr::copy(from, to, len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_is_moved_as_by_memmove() {
        if !has_halves() {
            return crate::skip::skip("this processor has no registers for halves");
        }
        for (len, from, to) in (32..=64).flat_map(|len| (0..70).map(move |at| (len, at, 69 - at))) {
            let before: Vec<u8> = (0..140).collect();
            let (mut here, mut there) = (before.clone(), before);
            here.copy_within(from..from + len, to);
            let memory = there.as_mut_ptr();
            // SAFETY: both are inside, and the processor has the registers.
            unsafe { copy_halves(memory.add(from), memory.add(to), len) };
            assert_eq!(here, there, "{len} bytes from {from} to {to}");
        }
    }
}
