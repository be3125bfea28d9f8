//! What to do where nobody has measured: rules that hold on most machines.

use pinfold_sys::block::{Algorithm, Isa, Prefetch, Stores};

use super::{Choice, Situation, Table, class_bytes};
use crate::blockmem::{CacheState, Reader};

/// From here on, memory that another core reads next is written past this one's cache, bytes. What is
/// shorter a near core has sooner from there, and most of what is little longer.
const STREAMS_THERE_MIN: usize = 16 << 10;

/// The size from which on copies that store into the cache are done by loops that fetch nothing, bytes.
const LOOPS_MIN: usize = 4 << 10;

/// The size from which on memory that no cache has and nobody reads is written past the caches, bytes.
const STREAMS_AWAY_MIN: usize = 2 << 10;

/// And what a far core has, too.
const STREAMS_SHARED_MIN: usize = 2 << 10;

impl Table {
    /// The table for a processor that has these algorithms, and whose last cache holds so many bytes.
    pub fn defaults(last_cache_bytes: usize, supported: impl Fn(Algorithm) -> bool) -> Table {
        let first = |isas: &[Isa], stores| {
            let of = |&isa| Algorithm::new(isa, Prefetch::None, stores).filter(|it| supported(*it));
            isas.iter().find_map(of)
        };
        // Wider registers than AVX2's slow some processors down.
        let loops = first(&[Isa::Avx2, Isa::Rep], Stores::Temporal).unwrap_or(Algorithm::LIBC);
        // There is a choice for those whose destination is not here. By itself, a processor asks for such
        // lines when stores come to them, one after the other.
        let short = Some(Algorithm::LIBC_FETCHED).filter(|it| supported(*it));
        let short = short.unwrap_or(Algorithm::LIBC);
        let streaming = first(&[Isa::Avx2, Isa::Sse2, Isa::Avx512, Isa::Word], Stores::Streaming);
        let choose = |situation: Situation, class| {
            let len = class_bytes(class);
            let streams = streams(situation, len, last_cache_bytes);
            let temporal = if len < LOOPS_MIN { short } else { loops };
            Choice::new(temporal, streaming.unwrap_or(temporal), streams)
        };
        // Nothing but a streaming algorithm is ever found for streaming.
        Table::from_fn(choose).unwrap_or_else(|| Table::uniform(Algorithm::LIBC))
    }
}

/// Whether stores past the cache are the better ones.
fn streams(situation: Situation, len: usize, last_cache_bytes: usize) -> bool {
    // Source and destination do not both fit, with what else there is.
    let overflows = len >= last_cache_bytes / 2;
    let elsewhere = match situation.reader {
        Reader::Me => false,
        // From a far core's cache, lines come several times as slowly as from memory, from a near
        // one's no faster. So it pays even to have them leave this cache first.
        Reader::OtherCore => len >= STREAMS_THERE_MIN,
        Reader::NearCore => {
            let from = match (situation.source, situation.destination) {
                (_, CacheState::Clean) => STREAMS_THERE_MIN,
                (CacheState::Uncached, CacheState::Uncached) => 8 * STREAMS_THERE_MIN,
                _ => 2 * STREAMS_THERE_MIN,
            };
            len >= from
        }
        // What is short pays only where there are lines that the far core has, too.
        Reader::FarCore => {
            let shared = matches!(
                (situation.source, situation.destination),
                (_, CacheState::Clean) | (CacheState::Uncached, CacheState::Dirty)
            );
            len >= LOOPS_MIN || (shared && len >= STREAMS_SHARED_MIN)
        }
        // A line in the cache would first have to leave it (Calhoun, section 4.2).
        Reader::Device | Reader::Nobody => {
            let away = matches!(situation.destination, CacheState::Unknown | CacheState::Uncached);
            away && len >= STREAMS_AWAY_MIN
        }
    };
    overflows || elsewhere
}
