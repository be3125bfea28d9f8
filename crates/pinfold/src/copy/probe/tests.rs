//! Simulated clocks: good ones, noisy ones, and such that cannot tell.

use std::ops::Range;

use super::*;

/// Lines that know whether they are cached, and a simulated clock.
struct Simulated {
    cached: Vec<bool>,
    hit: u64,
    miss: u64,
    /// Of so many loads one takes as long as the other kind; 0: none.
    wrong_every: u64,
    loads: u64,
}

impl Simulated {
    fn new(hit: u64, miss: u64, wrong_every: u64) -> Simulated {
        Simulated { cached: vec![false; SAMPLES], hit, miss, wrong_every, loads: 0 }
    }
}

impl Lines for Simulated {
    fn count(&self) -> usize {
        self.cached.len()
    }

    fn flush(&mut self, lines: Range<usize>) {
        self.cached[lines].fill(false);
    }

    fn warm(&mut self, lines: Range<usize>) {
        self.cached[lines].fill(true);
    }

    fn ticks(&mut self, line: usize) -> u64 {
        self.loads += 1;
        let is_wrong = self.wrong_every > 0 && self.loads.is_multiple_of(self.wrong_every);
        let is_hit = std::mem::replace(&mut self.cached[line], true) != is_wrong;
        // A little noise on both.
        (if is_hit { self.hit } else { self.miss }) + self.loads % 5
    }

    fn cost_ticks(&mut self, line: usize) -> u64 {
        self.ticks(line) + 10
    }
}

#[test]
fn a_good_clock_is_right() {
    let probe = calibrate(&mut Simulated::new(40, 300, 0), 0.5).unwrap();
    assert!((45..=300).contains(&probe.threshold_ticks()), "{probe:?}");
    assert_eq!((probe.judge(44), probe.judge(300)), (CacheState::Cached, CacheState::Uncached));
    assert_eq!(probe.accuracy(), 1.0);
    // Half a nanosecond a tick; the clock itself takes ten.
    assert_eq!(probe.cost_ns(), [26.0, 156.0]);
    // Of the shares 0, 10, 0, 2, 5, 8, 10 and 3 tenths, 2 and 3 look cached if the beginning is,
    // and 8 does not if the end is: three of sixteen are wrong.
    assert_eq!(probe.accuracy_partly(), 13.0 / 16.0);
}

#[test]
fn some_noise_is_borne() {
    let probe = calibrate(&mut Simulated::new(40, 300, 23), 1.0).unwrap();
    assert!((0.93..0.99).contains(&probe.accuracy()), "{probe:?}");
    assert!((45..=300).contains(&probe.threshold_ticks()), "{probe:?}");
}

#[test]
fn a_clock_that_cannot_tell_says_so() {
    let Err(CannotTell::Overlap { accuracy }) = calibrate(&mut Simulated::new(40, 40, 0), 1.0)
    else {
        panic!("hits and misses take the same time");
    };
    assert!((0.4..0.6).contains(&accuracy), "{accuracy}");
    let noisy = calibrate(&mut Simulated::new(40, 300, 7), 1.0);
    assert!(matches!(noisy, Err(CannotTell::Overlap { .. })), "{noisy:?}");
    // A hit that takes longer than a miss means nothing.
    let odd = calibrate(&mut Simulated::new(300, 40, 0), 1.0);
    assert!(matches!(odd, Err(CannotTell::Overlap { .. })), "{odd:?}");
    let why = CannotTell::Overlap { accuracy: 0.513 }.to_string();
    assert!(why.ends_with("right about 51 % of them only"), "{why}");
}

#[test]
fn thresholds() {
    let between = |hits: &[u64], misses: &[u64]| {
        let threshold = Threshold::between(hits, misses);
        (threshold.ticks, threshold.accuracy(hits, misses))
    };
    assert_eq!(between(&[10, 12, 14], &[100, 200]), (57, 1.0));
    // One hit took as long as a miss: no reason to call the misses hits.
    assert_eq!(between(&[10, 12, 500], &[100, 200]), (56, 0.8));
    assert_eq!(between(&[10], &[11]), (11, 1.0));
    assert_eq!(between(&[10, 10], &[10, 10]).1, 0.5);
    assert_eq!(between(&[], &[]), (0, 0.0));
    // All hits are below it.
    assert_eq!(between(&[10, 20], &[]), (21, 1.0));
}

#[test]
fn what_counts_as_right() {
    use CacheState::{Cached, Uncached, Unknown};
    // Of 100 lines: less than 40, 40 to 60, more than 60.
    for (cached, may_be_cached, may_be_uncached) in [
        (0, false, true),
        (39, false, true),
        (40, true, true),
        (60, true, true),
        (61, true, false),
        (100, true, false),
    ] {
        assert_eq!(is_right(Cached, cached, 100), may_be_cached, "{cached}");
        assert_eq!(is_right(Uncached, cached, 100), may_be_uncached, "{cached}");
        assert!(!is_right(Unknown, cached, 100));
    }
}

#[test]
fn each_line_once() {
    let mut all: Vec<usize> = scattered(SAMPLES).collect();
    assert_ne!(all[..4], [0, 1, 2, 3]);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..SAMPLES));
}

#[test]
fn what_a_busy_machine_cannot_tell_is_asked_for_again() {
    let known = OnceLock::new();
    let overlap = CannotTell::Overlap { accuracy: 0.6 };
    assert_eq!(known_or(&known, || Err(overlap)).unwrap_err(), overlap);
    let probe = || super::calibrate(&mut Simulated::new(40, 300, 0), 1.0);
    let threshold = known_or(&known, probe).unwrap().threshold_ticks();
    assert_eq!(known_or(&known, || unreachable!()).unwrap().threshold_ticks(), threshold);
}
