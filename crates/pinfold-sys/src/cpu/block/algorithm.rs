//! The algorithms: their instructions, the memory that they fetch ahead, and the kind of their
//! stores.

use std::{fmt, str::FromStr};

/// The instructions that move the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Isa {
    /// The C library's `memcpy` and `memset`, which choose for themselves, but do not ask for lines
    /// that are elsewhere.
    Libc,
    /// A loop over 8-byte words; the portable fallback.
    Word,
    /// `rep movsb` and `rep stosb`.
    Rep,
    /// A loop over cache lines, 16 bytes an instruction.
    Sse2,
    /// A loop over cache lines, 32 bytes an instruction.
    Avx2,
    /// A loop over cache lines, 64 bytes an instruction.
    Avx512,
    /// A loop over cache lines, 32 bytes an instruction: AArch64's pairs of registers.
    Neon,
}

/// The memory that is brought into the cache before it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Prefetch {
    /// Only the lines that the processor fetches by itself.
    None,
    /// The source, in blocks of 8 KiB before each is copied (Calhoun, Fig. 4.1).
    Source,
    /// The destination, to be written (`prefetchw`, `prfm pst`): by loops over lines a little ahead
    /// of them, else in such blocks.
    Destination,
}

/// The cache policy of the stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stores {
    /// Into this core's cache.
    Temporal,
    /// Past the caches, and fenced before the copy ends.
    Streaming,
}

/// A way to copy or to zero a block of memory.
///
/// ```
/// use pinfold_sys::cpu::block::Algorithm; // `pinfold::Algorithm` is the same.
///
/// // Names are those that reports and receipts show.
/// assert_eq!("avx2+streaming".parse::<Algorithm>().unwrap().to_string(), "avx2+streaming");
/// let here: Vec<Algorithm> = Algorithm::all().filter(|one| one.is_supported()).collect();
/// assert!(here.contains(&Algorithm::LIBC));
/// // Numbers are for tables.
/// assert_eq!(Algorithm::from_id(Algorithm::LIBC.id()), Some(Algorithm::LIBC));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Algorithm(u8);

impl Default for Algorithm {
    fn default() -> Algorithm {
        Algorithm::LIBC
    }
}

const ISAS: [Isa; 7] =
    [Isa::Libc, Isa::Word, Isa::Rep, Isa::Sse2, Isa::Avx2, Isa::Avx512, Isa::Neon];
const PREFETCHES: [Prefetch; 3] = [Prefetch::None, Prefetch::Source, Prefetch::Destination];
const STORES: [Stores; 2] = [Stores::Temporal, Stores::Streaming];

impl Algorithm {
    /// The C library's functions.
    pub const LIBC: Algorithm = Algorithm(0);

    /// The same, after all lines of the destination have been asked for: best for short blocks if
    /// those lines are elsewhere.
    pub const LIBC_FETCHED: Algorithm = {
        let stores = Stores::Temporal as u8;
        Algorithm(Prefetch::Destination as u8 * STORES.len() as u8 + stores)
    };

    /// Algorithms that there could be: ids are below this.
    pub const COUNT: usize = ISAS.len() * PREFETCHES.len() * STORES.len();

    /// The algorithm of these parts. `None`: there is no such one. The C library decides for
    /// itself, and string instructions have no streaming form.
    pub const fn new(isa: Isa, prefetch: Prefetch, stores: Stores) -> Option<Algorithm> {
        match (isa, prefetch, stores) {
            (Isa::Libc, Prefetch::None | Prefetch::Destination, Stores::Temporal) => {}
            (Isa::Libc, ..) | (Isa::Rep, _, Stores::Streaming) => return None,
            _ => {}
        }
        let (isa, prefetch, stores) = (isa as u8, prefetch as u8, stores as u8);
        Some(Algorithm((isa * PREFETCHES.len() as u8 + prefetch) * STORES.len() as u8 + stores))
    }

    /// Every algorithm there is, also those that this processor lacks, the simplest first.
    pub fn all() -> impl Iterator<Item = Algorithm> {
        (0..Algorithm::COUNT as u8).filter_map(Algorithm::from_id)
    }

    /// A number for tables, below [`Algorithm::COUNT`]. The same in every build of this version.
    pub const fn id(self) -> u8 {
        self.0
    }

    /// The algorithm of that number.
    pub const fn from_id(id: u8) -> Option<Algorithm> {
        let (stores, rest) = (id as usize % STORES.len(), id as usize / STORES.len());
        let (prefetch, isa) = (rest % PREFETCHES.len(), rest / PREFETCHES.len());
        if isa >= ISAS.len() {
            return None;
        }
        Algorithm::new(ISAS[isa], PREFETCHES[prefetch], STORES[stores])
    }

    /// The instructions.
    pub const fn isa(self) -> Isa {
        ISAS[self.0 as usize / (PREFETCHES.len() * STORES.len())]
    }

    /// The memory that is fetched ahead.
    pub const fn prefetch(self) -> Prefetch {
        PREFETCHES[self.0 as usize / STORES.len() % PREFETCHES.len()]
    }

    /// The cache policy of the stores.
    pub const fn stores(self) -> Stores {
        STORES[self.0 as usize % STORES.len()]
    }
}

/// Text such as `avx2`, `avx2+source`, `avx2+destination+streaming`.
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.isa() {
            Isa::Libc => "libc",
            Isa::Word => "word",
            Isa::Rep => "rep",
            Isa::Sse2 => "sse2",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        })?;
        f.write_str(match self.prefetch() {
            Prefetch::None => "",
            Prefetch::Source => "+source",
            Prefetch::Destination => "+destination",
        })?;
        f.write_str(match self.stores() {
            Stores::Temporal => "",
            Stores::Streaming => "+streaming",
        })
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Algorithm({self})")
    }
}

/// There is no such algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm(pub String);

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no copy algorithm {:?}; known are", self.0)?;
        Algorithm::all().try_for_each(|algorithm| write!(f, " {algorithm}"))
    }
}

impl std::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Algorithm, UnknownAlgorithm> {
        Algorithm::all()
            .find(|algorithm| algorithm.to_string() == name)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        let all: Vec<Algorithm> = Algorithm::all().collect();
        // Two algorithms of the C library's, three of `rep`, six of each other.
        assert_eq!(all.len(), 2 + 3 + 5 * 6);
        assert_eq!(Algorithm::LIBC_FETCHED.to_string(), "libc+destination");
        for algorithm in &all {
            assert_eq!(algorithm.to_string().parse(), Ok(*algorithm));
            assert_eq!(Algorithm::from_id(algorithm.id()), Some(*algorithm));
            let (isa, prefetch, stores) =
                (algorithm.isa(), algorithm.prefetch(), algorithm.stores());
            assert_eq!(Algorithm::new(isa, prefetch, stores), Some(*algorithm));
        }
        assert_eq!(
            Algorithm::new(Isa::Libc, Prefetch::None, Stores::Temporal),
            Some(Algorithm::LIBC)
        );
        assert_eq!(Algorithm::from_id(Algorithm::COUNT as u8), None);
        let why = "mmx".parse::<Algorithm>().unwrap_err().to_string();
        assert!(why.contains("avx2+source+streaming"), "{why}");
    }
}
