#![allow(unsafe_code)]
//! Copies by the library's plan.
//!
//! **Invariant.** Exactly the caller's bytes are copied.

use pinfold::copy::{CacheState, Hints, Reader, copy_as_planned};

use super::{
    memory::{Block, check},
    timing::median_ns,
};

/// Copies as many bytes as the shorter slice has.
pub fn copy(hints: Hints, from: &[u8], to: &mut [u8]) {
    let len = from.len().min(to.len());
    // SAFETY: both slices have so many bytes, and a mutable one overlaps no other.
    unsafe { copy_as_planned(hints, from.as_ptr(), to.as_mut_ptr(), len) };
}

/// The hints for a short copy whose bytes are in the cache.
pub fn cached() -> Hints {
    let state = CacheState::Cached;
    Hints { reader: Reader::Me, source: state, destination: state, ..Hints::default() }
}

/// The hints for a long copy from and to memory.
pub fn uncached() -> Hints {
    let state = CacheState::Uncached;
    Hints { reader: Reader::Nobody, source: state, destination: state, ..Hints::default() }
}

/// Bandwidth of copies beyond the caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// The slowest placement's, 10^6 bytes a second.
    pub least: f64,
    /// The fastest placement's.
    pub most: f64,
}

/// Copies `bytes`, which should be more than the caches hold, to places that slide over a line,
/// `turns` times each.
///
/// # Errors
/// A byte came out wrong; in words.
pub fn beyond_caches(bytes: usize, turns: usize) -> Result<Bandwidth, String> {
    const SLIDES: [usize; 4] = [0, 8, 24, 40];
    let from = Block::new(bytes, 1);
    let mut to = Block::new(bytes + 64, 2);
    let mut found = Bandwidth { least: f64::MAX, most: 0.0 };
    for slide in SLIDES {
        let place = &mut to.get_mut()[slide..slide + bytes];
        let ns = median_ns(turns, 1, |_| {
            copy(uncached(), from.get(), place);
            Ok::<(), String>(())
        })?;
        check(place, 0, 1)?;
        let rate = bytes as f64 / ns * 1e3;
        found = Bandwidth { least: found.least.min(rate), most: found.most.max(rate) };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_checked_and_timed() {
        let found = beyond_caches(1 << 16, 1).unwrap();
        assert!(0.0 < found.least && found.least <= found.most, "{found:?}");
        let mut to = [0; 5];
        copy(cached(), &[1, 2, 3], &mut to);
        assert_eq!(to, [1, 2, 3, 0, 0]);
    }
}
