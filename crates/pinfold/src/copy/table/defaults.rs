//! The table of a machine that was not measured: rules that hold on most machines.
//!
//! Those for Intel's processors were found on Xeons. On others the C library copies, which knows
//! them, and stores go past the caches only where that was a gain on an EPYC, too (Zen 5): there
//! memory that another core reads next is had from this one's cache twice as fast as from memory,
//! by a near core and mostly by a far one, and a loop that does well on a Xeon takes up to twice as
//! long as the C library.

use pinfold_sys::cpu::block::{Algorithm, Isa, Prefetch, Stores};

use super::{Choice, Situation, Table, class_bytes};
use crate::copy::{CacheState, Maker, Reader};

/// The size from which on copies that store into the cache are done by loops that fetch nothing,
/// bytes.
const LOOPS_MIN: usize = 4 << 10;

impl Table {
    /// The table for a processor of this maker that has these algorithms, and whose last cache
    /// holds so many bytes.
    pub fn defaults(
        maker: Maker,
        last_cache_bytes: usize,
        supported: impl Fn(Algorithm) -> bool,
    ) -> Table {
        let first = |isas: &[Isa], stores| {
            let of = |&isa| Algorithm::new(isa, Prefetch::None, stores).filter(|it| supported(*it));
            isas.iter().find_map(of)
        };
        let loops = match maker {
            // Wider registers than AVX2's slow some processors down.
            Maker::Intel => first(&[Isa::Avx2, Isa::Rep], Stores::Temporal),
            Maker::Other => None,
        };
        let loops = loops.unwrap_or(Algorithm::LIBC);
        let fetched = Some(Algorithm::LIBC_FETCHED).filter(|it| supported(*it));
        let streams = [Isa::Avx2, Isa::Sse2, Isa::Avx512, Isa::Neon, Isa::Word];
        let streaming = first(&streams, Stores::Streaming);
        let choose = |situation: Situation, class| {
            let len = class_bytes(class);
            // Source and destination do not both fit, with the other data there.
            let overflows = len >= last_cache_bytes / 2;
            let (fetches, streams) = match maker {
                // There is a choice for those whose destination is not here. By itself, a processor
                // asks for such lines when stores come to them, one after the
                // other.
                Maker::Intel => (true, intel::streams(situation, len)),
                Maker::Other => (others::fetches(situation), others::streams(situation, len)),
            };
            let short = fetched.filter(|_| fetches).unwrap_or(Algorithm::LIBC);
            let temporal = if len < LOOPS_MIN { short } else { loops };
            Choice::new(temporal, streaming.unwrap_or(temporal), overflows || streams)
        };
        // Nothing but a streaming algorithm is ever found for streaming.
        Table::from_fn(choose).unwrap_or_else(|| Table::uniform(Algorithm::LIBC))
    }
}

mod intel {
    use super::{CacheState, LOOPS_MIN, Reader, Situation};

    /// From here on, memory that another core reads next is written past this one's cache, bytes. A
    /// near core has shorter blocks sooner from there, and most of those that are little longer.
    const THERE_MIN: usize = 16 << 10;

    /// The size from which on memory that no cache has and no core reads is written past the
    /// caches, bytes.
    const AWAY_MIN: usize = 2 << 10;

    /// The same for memory that a far core has, too.
    const SHARED_MIN: usize = 2 << 10;

    /// Returns whether stores past the cache are the better ones, for blocks that fit into the last
    /// one.
    pub(super) fn streams(situation: Situation, len: usize) -> bool {
        match situation.reader {
            Reader::Me => false,
            // From a far core's cache, lines come several times as slowly as from memory, from a
            // near one's no faster. So it pays even to have them leave this cache
            // first.
            Reader::OtherCore => len >= THERE_MIN,
            Reader::NearCore => {
                let from = match (situation.source, situation.destination) {
                    (_, CacheState::Clean) => THERE_MIN,
                    (CacheState::Uncached, CacheState::Uncached) => 8 * THERE_MIN,
                    _ => 2 * THERE_MIN,
                };
                len >= from
            }
            // For short blocks that pays only if there are lines that the far core has, too.
            Reader::FarCore => {
                let shared = matches!(
                    (situation.source, situation.destination),
                    (_, CacheState::Clean) | (CacheState::Uncached, CacheState::Dirty)
                );
                len >= LOOPS_MIN || (shared && len >= SHARED_MIN)
            }
            // A line in the cache would first have to leave it (Calhoun, section 4.2).
            Reader::Device | Reader::Nobody => {
                let away =
                    matches!(situation.destination, CacheState::Unknown | CacheState::Uncached);
                away && len >= AWAY_MIN
            }
        }
    }
}

mod others {
    use super::{CacheState, Reader, Situation};

    /// The size from which on memory goes past the caches that no cache has and no core reads,
    /// bytes.
    const AWAY_MIN: usize = 64 << 10;

    /// The same for memory that a far core reads.
    const FAR_MIN: usize = 128 << 10;

    /// The same if the source may be in the cache, from where the lines of both would have to leave
    /// it.
    const FROM_HERE_MIN: usize = 1 << 20;

    /// Returns whether to ask for the lines of a short destination before it is copied to: a copy
    /// that waits for its source does not.
    pub(super) fn fetches(situation: Situation) -> bool {
        let away = situation.destination == CacheState::Uncached;
        let here = [CacheState::Cached, CacheState::Dirty, CacheState::Clean];
        away && here.contains(&situation.source)
    }

    /// As [`super::intel::streams`].
    pub(super) fn streams(situation: Situation, len: usize) -> bool {
        let (source, destination) = (situation.source, situation.destination);
        match situation.reader {
            Reader::Me | Reader::OtherCore | Reader::NearCore => false,
            Reader::FarCore => source == CacheState::Uncached && len >= FAR_MIN,
            Reader::Device | Reader::Nobody => {
                let min = if source == CacheState::Uncached { AWAY_MIN } else { FROM_HERE_MIN };
                matches!(destination, CacheState::Unknown | CacheState::Uncached) && len >= min
            }
        }
    }
}
