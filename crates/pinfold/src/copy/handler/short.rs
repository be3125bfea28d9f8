#![allow(unsafe_code)]
//! Copies too short to be worth a call, made in line: as many bytes from the start as from the end,
//! of a power of two, which overlap in the middle.
//!
//! **Invariant.** All bytes of the source are read before any is written: blocks may overlap.

use std::mem::MaybeUninit;

use pinfold_sys::cpu::block;

/// Any 16 bytes.
type Sixteen = MaybeUninit<u128>;

/// Copies `len` bytes, up to 64 of them in line. Takes one or two nanoseconds then.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes.
#[inline(always)]
pub(in crate::copy) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // Not a `match`, which would become a table, and wait for it. The longer ones are first.
    // SAFETY: as the caller promised, and there are as many bytes as each branch needs.
    unsafe {
        if len > 64 {
            std::ptr::copy(from, to, len);
        } else if len >= 32 {
            if block::has_halves() {
                block::copy_halves(from, to, len);
            } else {
                four(from, to, len);
            }
        } else if len >= 16 {
            two::<u128>(from, to, len);
        } else if len >= 8 {
            two::<u64>(from, to, len);
        } else if len >= 4 {
            two::<u32>(from, to, len);
        } else if len >= 2 {
            two::<u16>(from, to, len);
        } else if len == 1 {
            to.cast::<MaybeUninit<u8>>().write(from.cast::<MaybeUninit<u8>>().read());
        }
    }
}

/// Copies from one to two times the bytes of a `T`.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn two<T>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: as the caller promised: both are inside, and the value of their bytes does not
    // matter.
    unsafe {
        let head = from.cast::<MaybeUninit<T>>().read_unaligned();
        let tail = from.add(last).cast::<MaybeUninit<T>>().read_unaligned();
        to.cast::<MaybeUninit<T>>().write_unaligned(head);
        to.add(last).cast::<MaybeUninit<T>>().write_unaligned(tail);
    }
}

/// Copies from 32 to 64 bytes.
///
/// # Safety
/// As for [`copy`].
#[inline(always)]
unsafe fn four(from: *const u8, to: *mut u8, len: usize) {
    let places = [0, 16, len - 32, len - 16];
    // SAFETY: as the caller promised: all four are inside, and the value of their bytes does not
    // matter.
    unsafe {
        let read = places.map(|at| from.add(at).cast::<Sixteen>().read_unaligned());
        to.cast::<Sixteen>().write_unaligned(read[0]);
        to.add(places[1]).cast::<Sixteen>().write_unaligned(read[1]);
        to.add(places[2]).cast::<Sixteen>().write_unaligned(read[2]);
        to.add(places[3]).cast::<Sixteen>().write_unaligned(read[3]);
    }
}
