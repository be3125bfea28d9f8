//! The bytes that arrive are those of the source; and nothing else changes.

use proptest::prelude::*;

use super::*;
use crate::cpu::block::{lines, word};

/// A way to copy and a way to zero: one of the algorithms, or the plain loop in Rust, which
/// processors with instructions to name do not use.
#[derive(Clone, Copy, Debug)]
enum Way {
    By(Algorithm),
    Portable(Prefetch, Stores),
}

impl Way {
    fn all() -> impl Iterator<Item = Way> {
        let plain = [Stores::Temporal, Stores::Streaming].map(|s| Way::Portable(Prefetch::None, s));
        supported().map(Way::By).chain(plain)
    }

    unsafe fn copy(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        unsafe {
            match self {
                Way::By(algorithm) => copy(algorithm, from, to, len),
                Way::Portable(p, s) => lines::copy::<word::Portable>(p, s, from, to, len),
            }
        }
    }

    unsafe fn zero(self, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        unsafe {
            match self {
                Way::By(algorithm) => zero(algorithm, to, len),
                Way::Portable(p, s) => lines::zero::<word::Portable>(p, s, to, len),
            }
        }
    }
}

/// A source whose bytes tell where they are from, and a destination that shows changes.
struct Bench {
    from: Guarded,
    to: Guarded,
    /// The bytes of a zeroed destination of any length.
    zeroes: Vec<u8>,
}

/// The byte that fills the destination: no byte of the source, and not 0.
const OLD: u8 = 0xff;

/// Bytes around the destination that are looked at for changes.
const AROUND: usize = 130;

/// No two places closer than 251 bytes have the same byte, and blocks differ from each other.
fn source(at: usize) -> u8 {
    ((at + at / 251 * 7) % 251) as u8 + 1
}

impl Bench {
    fn new(len: usize) -> Bench {
        let (from, to) = (Guarded::new(len), Guarded::new(len));
        let zeroes = vec![0; to.bytes().len()];
        let bench = Bench { from, to, zeroes };
        bench.from.fill(source);
        bench.to.fill(|_| OLD);
        bench
    }

    /// Copies and zeroes `len` bytes between two places in the memory, and looks at the result.
    fn check(&self, way: Way, from: *const u8, to: *mut u8, len: usize) {
        let what = || {
            let at = |base: *mut u8, place: *const u8| place.addr() - base.addr();
            let (from, to) = (at(self.from.start(), from), at(self.to.start(), to));
            format!("{way:?}: {len} bytes from {from} to {to}")
        };
        let at = from.addr() - self.from.start().addr();
        let expected = &self.from.bytes()[at..at + len];
        // SAFETY: the callers stay within the memory, and the two are different.
        unsafe { way.copy(from, to, len) };
        assert!(self.written(to, len) == expected, "{}", what());
        assert!(self.around(to, len), "beside the copy: {}", what());
        // SAFETY: as above.
        unsafe { way.zero(to, len) };
        assert!(self.written(to, len) == &self.zeroes[..len], "zeroing: {}", what());
        assert!(self.around(to, len), "beside the zeroes: {}", what());
        // SAFETY: as above.
        unsafe { to.write_bytes(OLD, len) };
    }

    fn written(&self, to: *mut u8, len: usize) -> &[u8] {
        let at = to.addr() - self.to.start().addr();
        &self.to.bytes()[at..at + len]
    }

    /// Returns whether the bytes before and behind are old.
    fn around(&self, to: *mut u8, len: usize) -> bool {
        let at = to.addr() - self.to.start().addr();
        let all = self.to.bytes();
        let before = &all[at.saturating_sub(AROUND)..at];
        let behind = &all[at + len..(at + len + AROUND).min(all.len())];
        before.iter().chain(behind).all(|&byte| byte == OLD)
    }

    /// Copies and zeroes in the middle, at these distances from multiples of a line.
    fn check_aligned(&self, way: Way, from: usize, to: usize, len: usize) {
        // SAFETY: the memory is longer than that by some lines.
        let (from, to) =
            unsafe { (self.from.start().add(128 + from), self.to.start().add(128 + to)) };
        self.check(way, from, to, len);
    }

    /// Copies and zeroes beside the guards of both.
    fn check_guarded(&self, way: Way, len: usize) {
        for from in [self.from.start(), self.from.last(len)] {
            for to in [self.to.start(), self.to.last(len)] {
                self.check(way, from, to, len);
            }
        }
    }
}

/// The lengths at which the loops begin, end, and go round once more.
#[cfg(not(miri))]
fn boundaries() -> impl Iterator<Item = usize> {
    let around = [512, 1 << 10, 1280, 1536, 4 << 10, 8 << 10, (8 << 10) + 64, 16 << 10, 64 << 10];
    around.into_iter().flat_map(|len| len - 65..=len + 65)
}

#[test]
#[cfg(not(miri))]
fn every_alignment() {
    let bench = Bench::new(18 << 10);
    let lens = [1, 7, 255, 256, 257, 300, 511, 600, 1000, 8191, 8300, 16_500];
    for way in Way::all() {
        for one in 0..64 {
            for other in [0, 1, 8, 31, 63] {
                for len in lens {
                    bench.check_aligned(way, one, other, len);
                    bench.check_aligned(way, other, one, len);
                }
            }
        }
    }
}

#[test]
#[cfg(not(miri))]
fn every_short_length() {
    let bench = Bench::new(1 << 10);
    for way in Way::all() {
        for len in 0..=300 {
            bench.check_guarded(way, len);
            for to in 0..64 {
                for from in [0, 17] {
                    bench.check_aligned(way, from, to, len);
                }
            }
        }
    }
}

#[test]
#[cfg(not(miri))]
fn every_boundary() {
    let bench = Bench::new(66 << 10);
    for way in Way::all() {
        for len in boundaries() {
            // The places beside the guards have every alignment in turn.
            bench.check_guarded(way, len);
            bench.check_aligned(way, len % 64, 0, len);
        }
    }
}

/// As the above, for as much as Miri can do in a minute.
#[test]
fn some_of_each() {
    let bench = Bench::new(700);
    for way in Way::all() {
        for len in [0, 1, 255, 256, 257, 320] {
            bench.check_guarded(way, len);
        }
        for to in [0, 1, 63] {
            bench.check_aligned(way, 5, to, 300);
        }
    }
    let bench = Bench::new(9 << 10);
    bench.check_aligned(Way::Portable(Prefetch::None, Stores::Temporal), 5, 3, 8192 + 65);
}

proptest! {
    #[test]
    fn anything_anywhere(
        id in 0..Algorithm::COUNT as u8,
        (from, to) in (0usize..4096, 0usize..4096),
        len in prop_oneof![0usize..600, 0usize..24_000],
    ) {
        let (from, to, len, longest) = match cfg!(miri) {
            true => (from % 64, to % 64, len % 400, 700),
            false => (from, to, len, 32 << 10),
        };
        // Unsupported ones too: they are the C library's.
        if let Some(algorithm) = Algorithm::from_id(id) {
            let bench = Bench::new(longest);
            bench.check_aligned(Way::By(algorithm), from, to, len);
        }
    }
}
