//! Copies by a processor: its caches, its windows of loads and stores, and its memory.
//!
//! - [`processor`]: the parameters of two processors, with their sources.
//! - [`memory`]: a memory controller that holds writes back for reads.
//! - [`core`]: a loop of loads and stores, a line at a time, against both levels of cache.

mod core;
mod memory;
pub mod processor;
#[cfg(test)]
mod tests;

use pinfold::copy::{Prefetch, Stores};

pub use self::core::{Copied, copy};
use self::processor::{Frames, Processor};

/// The unit that the loop moves in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// A cache line: all its loads, then all its stores.
    Line,
    /// A word: a string instruction, or where those have no such stores a loop.
    Word,
}

/// An algorithm as the paper varies it, in the library's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// [`Prefetch::Source`]: blocks of 8 KiB, each before it is copied (Figure 4.1).
    pub prefetch: Prefetch,
    /// The kind of stores.
    pub stores: Stores,
    /// The loop.
    pub grain: Grain,
}

impl Way {
    /// The four of Figure 4.2.
    pub const LINES: [Way; 4] = [
        Way { prefetch: Prefetch::None, stores: Stores::Temporal, grain: Grain::Line },
        Way { prefetch: Prefetch::None, stores: Stores::Streaming, grain: Grain::Line },
        Way { prefetch: Prefetch::Source, stores: Stores::Temporal, grain: Grain::Line },
        Way { prefetch: Prefetch::Source, stores: Stores::Streaming, grain: Grain::Line },
    ];

    /// The same by words.
    pub fn by_words(self) -> Way {
        Way { grain: Grain::Word, ..self }
    }

    /// The label of the paper's figures, such as "PF, NT".
    pub fn words(self) -> String {
        let prefetch = if self.prefetch == Prefetch::Source { "PF" } else { "NPF" };
        let stores = if self.stores == Stores::Streaming { "NT" } else { "T" };
        let grain = if self.grain == Grain::Word { ", WC" } else { "" };
        format!("{prefetch}, {stores}{grain}")
    }
}

/// The place of a block before the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// In memory.
    Uncached,
    /// Read, as near as it fits.
    Cached,
    /// Read, and in the second level alone.
    Second,
    /// Written, and in the second level alone.
    SecondDirty,
}

/// Placements that a mean is of.
const PLACEMENTS: u64 = 4;
/// Copies of so many bytes have pages enough for one placement to be a mean of its own.
const MANY: u64 = 128 << 10;

/// Cycles of a copy for each byte, and with the destination read afterwards: the mean of some
/// random placements in memory, by a seed.
///
/// `bytes` is a multiple of a line; `before` has the places of source and destination.
pub fn per_byte(
    with: &Processor,
    way: Way,
    before: (Before, Before),
    bytes: u64,
    seed: u64,
) -> [f64; 2] {
    let count = if bytes < MANY { PLACEMENTS } else { 1 };
    let mut sums = [0.0; 2];
    for placement in 0..count {
        let frames = Frames::Random(seed.wrapping_mul(PLACEMENTS).wrapping_add(placement));
        let copied = copy(&with.with_frames(frames), way, before, bytes);
        sums[0] += copied.cycles;
        sums[1] += copied.cycles + copied.reading;
    }
    sums.map(|sum| sum / (count * bytes) as f64)
}
