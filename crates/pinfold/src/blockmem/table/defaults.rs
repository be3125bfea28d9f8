//! What to do where nobody has measured: rules that hold on most machines.

use pinfold_sys::block::{Algorithm, Isa, Prefetch, Stores};

use super::{Choice, Situation, Table, class_bytes};
use crate::blockmem::{CacheState, Reader};

/// Below, calls and loops that are set up cost more than better instructions save, bytes.
const LOOPS_MIN: usize = 2 << 10;

/// From here on, memory that this core does not read next is written past its cache, bytes. Shorter
/// blocks are read while the stores are still on their way.
const STREAMS_MIN: usize = 32 << 10;

impl Table {
    /// The table for a processor that has these algorithms, and whose last cache holds so many bytes.
    pub fn defaults(last_cache_bytes: usize, supported: impl Fn(Algorithm) -> bool) -> Table {
        let first = |isas: &[Isa], stores| {
            let of = |&isa| Algorithm::new(isa, Prefetch::None, stores).filter(|it| supported(*it));
            isas.iter().find_map(of)
        };
        // Wider registers than AVX2's slow some processors down.
        let loops = first(&[Isa::Avx2, Isa::Rep], Stores::Temporal).unwrap_or(Algorithm::LIBC);
        let streaming = first(&[Isa::Avx2, Isa::Sse2, Isa::Avx512, Isa::Word], Stores::Streaming);
        let choose = |situation, class| {
            let len = class_bytes(class);
            let temporal = if len < LOOPS_MIN { Algorithm::LIBC } else { loops };
            let streams = streams(situation, len, last_cache_bytes);
            Choice::new(temporal, streaming.unwrap_or(temporal), streams)
        };
        // Nothing but a streaming algorithm is ever found for streaming.
        Table::from_fn(choose).unwrap_or_else(|| Table::uniform(Algorithm::LIBC))
    }
}

/// Whether stores past the cache are the better ones.
fn streams(situation: Situation, len: usize, last_cache_bytes: usize) -> bool {
    // Little of it would be in the cache when it is read.
    let overflows = len > last_cache_bytes / 4 * 3;
    // A line in the cache would first have to leave it (Calhoun, section 4.2).
    let elsewhere = situation.destination != CacheState::Cached;
    overflows || situation.reader != Reader::Me && elsewhere && len >= STREAMS_MIN
}
