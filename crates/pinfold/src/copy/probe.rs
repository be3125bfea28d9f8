//! The software cache probe: loads the first byte of a block, and tells from the time whether the
//! block is in the cache (Calhoun, Fig. 5.2).
//!
//! The time that lies between a hit and a miss is found on this machine, by flushing and warming
//! lines. A virtual machine's clock may be too coarse for it, or its neighbours too loud; then
//! there is no probe.
//!
//! - [`score`]: thresholds and accuracy. No I/O.
//! - [`lines`]: lines that are flushed, warmed and timed.

mod lines;
mod score;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use pinfold_sys::cpu::{block::read_line_ticks, clock::ticks_per_us};

use self::{
    lines::{Lines, RealLines},
    score::{Threshold, is_right},
};
use super::CacheState;

/// The share of whole blocks that a timer must tell apart to be of use.
const ACCURACY_MIN: f64 = 0.9;

/// Lines of the ground truth: 128 KiB. Half are for finding the threshold, half for judging it.
const SAMPLES: usize = 2048;

/// Lines of a block of the ground truth: 4 KiB.
const BLOCK_LINES: usize = 64;

/// Tenths of a block that are cached, in turn. As Calhoun counts them, blocks in the middle are
/// rare.
const CACHED_TENTHS: [usize; 8] = [0, 10, 0, 2, 5, 8, 10, 3];

/// Tells cached blocks from others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    threshold_ticks: u64,
    cached_ns: f64,
    uncached_ns: f64,
    accuracy: f64,
    accuracy_partly: f64,
}

/// The clock cannot tell a cached line from another.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum CannotTell {
    /// There is no instruction to read the clock at the end of a load, or none to empty a cache
    /// with.
    #[error("this processor has no clock or no flush for it")]
    NoClock,
    /// The times of hits and misses overlap.
    #[error(
        "the times of hits and misses overlap: the best threshold is right about {:.0} % of them only",
        accuracy * 100.0
    )]
    Overlap {
        /// The share of lines that the best threshold is right about, 0.5 to 1.
        accuracy: f64,
    },
}

impl Probe {
    /// Finds the threshold of this machine and how good it is. A few milliseconds.
    ///
    /// # Errors
    /// See [`CannotTell`].
    pub fn calibrate() -> Result<Probe, CannotTell> {
        let mut lines = RealLines::new(SAMPLES).ok_or(CannotTell::NoClock)?;
        calibrate(&mut lines, 1000.0 / ticks_per_us() as f64)
    }

    /// The state of the line at `first`, from which the state of its block follows: nearly always,
    /// says Calhoun's section 5.1. [`CacheState::Unknown`] if the processor has no clock for it.
    ///
    /// Costs [`Probe::cost_ns`]. The line is cached afterwards, and all work of this thread under
    /// way has to end first.
    ///
    /// # Safety
    /// `first` must be readable. Others may write there meanwhile.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn look(&self, first: *const u8) -> CacheState {
        // SAFETY: as the caller promised.
        match unsafe { read_line_ticks(first) } {
            None => CacheState::Unknown,
            Some(ticks) => self.judge(ticks),
        }
    }

    /// The verdict on a load that took so many ticks.
    #[inline]
    pub fn judge(&self, ticks: u64) -> CacheState {
        if ticks < self.threshold_ticks { CacheState::Cached } else { CacheState::Uncached }
    }

    /// Returns whether `said` is right of a block of `lines`, of which so many are cached: more
    /// than 60 % is a cached block, less than 40 % an uncached one, and between them either answer
    /// is right (Calhoun, section 5.1).
    pub fn is_right(said: CacheState, cached: usize, lines: usize) -> bool {
        is_right(said, cached, lines)
    }

    /// Loads that take fewer ticks of the processor's clock are hits.
    pub fn threshold_ticks(&self) -> u64 {
        self.threshold_ticks
    }

    /// The cost of a look at a line that is cached and at one that is not, nanoseconds.
    pub fn cost_ns(&self) -> [f64; 2] {
        [self.cached_ns, self.uncached_ns]
    }

    /// The share of blocks that it is right about if all of a block was cached, or nothing of it.
    pub fn accuracy(&self) -> f64 {
        self.accuracy
    }

    /// The same if parts of blocks are cached, too: from the first line on, or up to the last. A
    /// block more than 60 % of whose lines are cached counts as cached, one with less than 40 % as
    /// uncached, and either answer is right for a block between (Calhoun, section 5.1).
    pub fn accuracy_partly(&self) -> f64 {
        self.accuracy_partly
    }
}

/// The probe of this process. The first call calibrates it, which takes a few milliseconds; later
/// ones cost a load.
///
/// # Errors
/// See [`CannotTell`]. Then nothing is probed; the next call tries again, since a busy machine may
/// be the reason.
pub fn probe() -> Result<&'static Probe, CannotTell> {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    known_or(&PROBE, Probe::calibrate)
}

fn known_or(
    known: &OnceLock<Probe>,
    calibrate: impl FnOnce() -> Result<Probe, CannotTell>,
) -> Result<&Probe, CannotTell> {
    if let Some(probe) = known.get() {
        return Ok(probe);
    }
    let probe = calibrate()?;
    Ok(known.get_or_init(|| probe))
}

fn calibrate(lines: &mut impl Lines, ns_per_tick: f64) -> Result<Probe, CannotTell> {
    let (hits, misses) = times(lines, 0);
    let threshold = Threshold::between(&hits, &misses);
    // Judged by other times than those that it was made from.
    let (hits, misses) = times(lines, 1);
    let accuracy = threshold.accuracy(&hits, &misses);
    if accuracy < ACCURACY_MIN {
        return Err(CannotTell::Overlap { accuracy });
    }
    let [cached, uncached] = costs(lines);
    let probe = Probe {
        threshold_ticks: threshold.ticks,
        cached_ns: cached as f64 * ns_per_tick,
        uncached_ns: uncached as f64 * ns_per_tick,
        accuracy,
        accuracy_partly: 0.0,
    };
    Ok(Probe { accuracy_partly: partly(&probe, lines), ..probe })
}

/// The times of lines that are cached and of lines that are not: of every second one, from `start`
/// on.
fn times(lines: &mut impl Lines, start: usize) -> (Vec<u64>, Vec<u64>) {
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    for at in scattered(lines.count()).filter(|at| at % 2 == start) {
        lines.flush(at..at + 1);
        misses.push(lines.ticks(at));
        // The miss has brought it in.
        hits.push(lines.ticks(at));
    }
    (hits, misses)
}

/// The time of a look at a line that is cached and at one that is not, ticks.
fn costs(lines: &mut impl Lines) -> [u64; 2] {
    let (mut hits, mut misses) = (Vec::new(), Vec::new());
    for at in scattered(lines.count()).take(SAMPLES / 8) {
        lines.flush(at..at + 1);
        misses.push(lines.cost_ticks(at));
        hits.push(lines.cost_ticks(at));
    }
    [hits, misses].map(score::median)
}

/// The share of blocks cached in part that `probe` is right about.
fn partly(probe: &Probe, lines: &mut impl Lines) -> f64 {
    let blocks = lines.count() / BLOCK_LINES;
    let (mut right, mut all) = (0, 0);
    for (turn, block) in scattered(blocks).enumerate() {
        let (first, cached) =
            (block * BLOCK_LINES, CACHED_TENTHS[turn % CACHED_TENTHS.len()] * BLOCK_LINES / 10);
        lines.flush(first..first + BLOCK_LINES);
        // In every second round of shares the end is cached.
        let is_end = turn / CACHED_TENTHS.len() % 2 == 1;
        let from = if is_end { first + BLOCK_LINES - cached } else { first };
        lines.warm(from..from + cached);
        right += usize::from(is_right(probe.judge(lines.ticks(first)), cached, BLOCK_LINES));
        all += 1;
    }
    right as f64 / f64::from(all.max(1))
}

/// All numbers below `count`, a power of two, in an order that no prefetcher foresees.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % count)
}
