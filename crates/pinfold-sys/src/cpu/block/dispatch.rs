//! The table from the number of an algorithm to its function: one load and one call, for a copy may
//! be over in 50 nanoseconds.

#[cfg(all(target_arch = "aarch64", not(miri)))]
use super::neon;
use super::{Algorithm, Isa, libc, word};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::{avx2, avx512, rep, sse2};

/// A function that copies so many bytes to the first address from the second: its parameters are in
/// the C library's order, so that a call of that one is a jump.
type Copy = unsafe fn(*mut u8, *const u8, usize);

/// A function that zeroes so many bytes.
type Zero = unsafe fn(*mut u8, usize);

/// The function that copies by `algorithm`.
#[inline(always)]
pub(super) fn copying(algorithm: Algorithm) -> Copy {
    PLACES[usize::from(algorithm.id())].0
}

/// The function that zeroes by `algorithm`.
#[inline(always)]
pub(super) fn zeroing(algorithm: Algorithm) -> Zero {
    PLACES[usize::from(algorithm.id())].1
}

/// The algorithm of a number; the C library's for a number that no algorithm has.
const fn named(id: u8) -> Algorithm {
    match Algorithm::from_id(id) {
        Some(algorithm) => algorithm,
        None => Algorithm::LIBC,
    }
}

/// Copies by the algorithm of that number: one function for each, with nothing left to decide.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has the algorithm's instructions.
unsafe fn copy<const ID: u8>(to: *mut u8, from: *const u8, len: usize) {
    let algorithm = const { named(ID) };
    let (prefetch, stores) = (algorithm.prefetch(), algorithm.stores());
    // SAFETY: as the caller promised.
    unsafe {
        match algorithm.isa() {
            Isa::Word => word::copy(prefetch, stores, from, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Rep => rep::copy(prefetch, from, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Sse2 => sse2::copy(prefetch, stores, from, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx2 => avx2::copy(prefetch, stores, from, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx512 => avx512::copy(prefetch, stores, from, to, len),
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            Isa::Neon => neon::copy(prefetch, stores, from, to, len),
            _ => libc::copy(prefetch, from, to, len),
        }
    }
}

/// Zeroes by the algorithm of that number.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has the algorithm's instructions.
unsafe fn zero<const ID: u8>(to: *mut u8, len: usize) {
    let algorithm = const { named(ID) };
    let (prefetch, stores) = (algorithm.prefetch(), algorithm.stores());
    // SAFETY: as the caller promised.
    unsafe {
        match algorithm.isa() {
            Isa::Word => word::zero(prefetch, stores, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Rep => rep::zero(prefetch, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Sse2 => sse2::zero(prefetch, stores, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx2 => avx2::zero(prefetch, stores, to, len),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Isa::Avx512 => avx512::zero(prefetch, stores, to, len),
            #[cfg(all(target_arch = "aarch64", not(miri)))]
            Isa::Neon => neon::zero(prefetch, stores, to, len),
            _ => libc::zero(prefetch, to, len),
        }
    }
}

/// The functions of all numbers that a byte can have, so that no number has to be checked first.
static PLACES: [(Copy, Zero); 256] = {
    let mut places: [(Copy, Zero); 256] = [(copy::<0>, zero::<0>); 256];
    macro_rules! put {
        ($($id:literal)+) => {
            $(places[$id] = (copy::<$id>, zero::<$id>);)+
            // Each number that an algorithm can have.
            const _: () = assert!([$($id),+].len() == Algorithm::COUNT);
        };
    }
    put!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17
        18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35
        36 37 38 39 40 41);
    places
};
