//! The place of the threshold, and the share of right answers.

use crate::copy::CacheState;

/// Loads that take fewer ticks are hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) ticks: u64,
}

impl Threshold {
    /// The threshold that is wrong about the fewest; among equals one in the middle of the gap.
    pub(super) fn between(hits: &[u64], misses: &[u64]) -> Threshold {
        let mut all: Vec<(u64, bool)> = hits.iter().map(|&ticks| (ticks, true)).collect();
        all.extend(misses.iter().map(|&ticks| (ticks, false)));
        all.sort_unstable();
        // Wrong if all are misses: every hit. Each hit below the threshold is one less, each miss
        // more.
        let mut wrong = hits.len();
        let (mut best, mut ticks) = (wrong, all.first().map_or(0, |first| first.0));
        for (at, &(here, is_hit)) in all.iter().enumerate() {
            wrong = if is_hit { wrong - 1 } else { wrong + 1 };
            let next = all.get(at + 1).map_or(here + 1, |next| next.0);
            if wrong < best && next > here {
                (best, ticks) = (wrong, here + (next - here).div_ceil(2));
            }
        }
        Threshold { ticks }
    }

    /// The share of both that it is right about.
    pub(super) fn accuracy(self, hits: &[u64], misses: &[u64]) -> f64 {
        let right = hits.iter().filter(|&&ticks| ticks < self.ticks).count()
            + misses.iter().filter(|&&ticks| ticks >= self.ticks).count();
        right as f64 / (hits.len() + misses.len()).max(1) as f64
    }
}

/// Returns whether `said` is right of a block of `lines`, of which so many are cached. More than 60
/// % is a cached block and less than 40 % an uncached one; between them the right copy is unclear,
/// and either answer is right (Calhoun, section 5.1).
pub(super) fn is_right(said: CacheState, cached: usize, lines: usize) -> bool {
    match said {
        CacheState::Cached | CacheState::Dirty | CacheState::Clean => cached * 10 >= lines * 4,
        CacheState::Uncached => cached * 10 <= lines * 6,
        CacheState::Unknown => false,
    }
}

/// The middle one; 0 if there is none.
pub(super) fn median(mut times: Vec<u64>) -> u64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}
