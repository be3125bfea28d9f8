//! From the number of an algorithm to the function that does it: one load and one call, for what is
//! copied may be over in 50 nanoseconds.

use super::{Algorithm, Isa, libc, word};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::{avx2, avx512, rep, sse2};

/// Copies so many bytes to the first from the second: as the C library's, which then is where it is gone to
/// as it was called.
type Copy = unsafe fn(*mut u8, *const u8, usize);

/// Zeroes so many bytes.
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

/// The algorithm of a number. Nobody has one of a number that there is none of.
const fn named(id: u8) -> Algorithm {
    match Algorithm::from_id(id) {
        Some(algorithm) => algorithm,
        None => Algorithm::LIBC,
    }
}

/// Copies by the algorithm of that number: a function for each, of which nothing is left to decide.
///
/// # Safety
/// As for [`copy`](super::copy), and the processor has what the algorithm takes.
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
            _ => libc::copy(prefetch, from, to, len),
        }
    }
}

/// Zeroes by the algorithm of that number.
///
/// # Safety
/// As for [`zero`](super::zero), and the processor has what the algorithm takes.
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
            _ => libc::zero(prefetch, to, len),
        }
    }
}

/// The functions of all numbers that a byte can have, so that none has to be looked at first.
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
        18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35);
    places
};
