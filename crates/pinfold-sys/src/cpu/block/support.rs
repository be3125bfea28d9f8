//! Features of this processor, found once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Algorithm, Isa, Prefetch};

/// A bit for each algorithm, by its id, and above them those of instructions that stand alone. 0
/// before anyone asked: every processor has [`Algorithm::LIBC`].
static KNOWN: AtomicU64 = AtomicU64::new(0);

const _: () = assert!(Algorithm::COUNT <= 61 && Algorithm::LIBC.id() == 0);

/// A way to move 32 bytes by registers that nothing else needs: of x86-64's `avx512vl`.
pub(super) const HALVES: u32 = 61;

/// `clflushopt`.
pub(super) const CLFLUSHOPT: u32 = 62;

/// `rdtscp`.
pub(super) const RDTSCP: u32 = 63;

/// Returns whether the processor has the feature of that bit.
#[inline]
pub(super) fn has(bit: u32) -> bool {
    // Relaxed: every thread that looks finds the same. A bit that is set is not looked for twice.
    let known = KNOWN.load(Relaxed);
    known >> bit & 1 == 1 || (known == 0 && find() >> bit & 1 == 1)
}

#[cold]
fn find() -> u64 {
    let processor = Processor::here();
    let bits = Algorithm::all().filter(|&algorithm| processor.can(algorithm));
    let mut known = bits.fold(0, |known, algorithm| known | 1 << algorithm.id());
    known |= u64::from(processor.avx512vl || processor.aarch64) << HALVES;
    known |= u64::from(processor.clflushopt) << CLFLUSHOPT;
    known |= u64::from(processor.rdtscp) << RDTSCP;
    KNOWN.store(known, Relaxed);
    known
}

/// The properties that tell one x86-64 processor from another, and the architecture.
#[derive(Default)]
struct Processor {
    x86_64: bool,
    aarch64: bool,
    avx2: bool,
    avx512f: bool,
    avx512vl: bool,
    prefetchw: bool,
    clflushopt: bool,
    rdtscp: bool,
}

impl Processor {
    /// This one.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn here() -> Processor {
        use crate::cpu::identify::leaf;

        let (seven, extended) = (leaf(7), leaf(0x8000_0001));
        Processor {
            x86_64: true,
            aarch64: false,
            // The wide registers need the system's support; the standard library checks for that.
            avx2: std::is_x86_feature_detected!("avx2"),
            avx512f: std::is_x86_feature_detected!("avx512f"),
            avx512vl: std::is_x86_feature_detected!("avx512vl"),
            prefetchw: extended[2] >> 8 & 1 == 1,
            clflushopt: seven[1] >> 23 & 1 == 1,
            rdtscp: extended[3] >> 27 & 1 == 1,
        }
    }

    /// This processor, or Miri: only the architecture is known.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    fn here() -> Processor {
        let aarch64 = cfg!(all(target_arch = "aarch64", not(miri)));
        Processor { aarch64, ..Processor::default() }
    }

    fn can(&self, algorithm: Algorithm) -> bool {
        // AArch64 fetches as a matter of course; elsewhere are only words, which fetch nothing.
        let fetches =
            algorithm.prefetch() != Prefetch::Destination || self.prefetchw || !self.x86_64;
        fetches
            && match algorithm.isa() {
                Isa::Libc | Isa::Word => true,
                Isa::Rep | Isa::Sse2 => self.x86_64,
                Isa::Avx2 => self.avx2,
                Isa::Avx512 => self.avx512f,
                Isa::Neon => self.aarch64,
            }
    }
}
