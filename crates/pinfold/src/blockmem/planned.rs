#![allow(unsafe_code)]
//! Copies by the plan alone: for what is copied too rarely to be learnt from.
//!
//! **Invariant.** What is copied is what the caller named.

use pinfold_sys::block;

use super::{
    Hints, plan,
    table::{CHOICE_MIN_AWAY, choice_min},
};

/// Copies `len` bytes by the algorithm that the plan of this process has for them, and learns nothing.
///
/// Below 3 KiB, or 768 B where all has to leave the caches ([`choice_min`]), that is the C library's after a
/// comparison or two. Else the choice takes a nanosecond or two.
///
/// # Safety
/// `from` is readable and `to` writable for so many bytes, and they do not overlap.
#[inline(always)]
pub unsafe fn copy_as_planned(hints: Hints, from: *const u8, to: *mut u8, len: usize) {
    // The shortest first, for whom each comparison counts.
    if len < CHOICE_MIN_AWAY || len < choice_min(hints.reader, hints.source, hints.destination) {
        // SAFETY: as the caller promised.
        return unsafe { from.copy_to_nonoverlapping(to, len) };
    }
    // SAFETY: as the caller promised.
    unsafe { copy_long_as_planned(hints, from, to, len) };
}

/// Apart, so that nothing of it is done for a short one.
///
/// # Safety
/// As for [`copy_as_planned`].
#[inline(never)]
unsafe fn copy_long_as_planned(hints: Hints, from: *const u8, to: *mut u8, len: usize) {
    let algorithm = plan().pick_long(&hints.block(from.addr(), to.addr(), len));
    // SAFETY: as the caller promised.
    unsafe { block::copy(algorithm, from, to, len) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blockmem::Reader;

    #[test]
    fn copies_of_every_length_are_copies() {
        for reader in Reader::ALL {
            let hints = Hints { reader, ..Hints::default() };
            for len in [0, 1, 64, 767, 768, 2048, 3071, 3072, 100_000] {
                let from: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
                let mut to = vec![0xA5; len + 1];
                // SAFETY: both are vectors of at least that length.
                unsafe { copy_as_planned(hints, from.as_ptr(), to.as_mut_ptr(), len) };
                assert!(to[..len] == from && to[len] == 0xA5, "{len} bytes, {reader:?}");
            }
        }
    }
}
