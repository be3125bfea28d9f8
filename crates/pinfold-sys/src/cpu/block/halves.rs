//! From 32 to 64 bytes in line, by two registers that nothing else needs.
//!
//! The upper sixteen, of AVX-512: after a write to those, code need not clear them for the sake of
//! older instructions that come later, which would take longer than the copy.

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
    // Nobody else has them.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
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
            return eprintln!("SKIPPED: this processor lacks AVX-512's short registers");
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
