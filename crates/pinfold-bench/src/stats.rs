//! Times, and the figures that sum up many of them.

use hdrhistogram::Histogram;
use pinfold_sys::cpu::clock;

/// Picoseconds that `ticks` of the processor's counter take.
#[inline]
pub(crate) fn ps(ticks: u64) -> u64 {
    let ps = u128::from(ticks) * 1_000_000 / u128::from(clock::ticks_per_us());
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// The samples of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    /// Picoseconds that a message took, one for each sample.
    pub(crate) ps: Vec<u64>,
    /// Messages in each sample.
    pub(crate) messages: u64,
}

impl Samples {
    /// The middle sample, picoseconds.
    pub(crate) fn median(&self) -> Option<u64> {
        let (mut ps, middle) = (self.ps.clone(), self.ps.len() / 2);
        (!ps.is_empty()).then(|| *ps.select_nth_unstable(middle).1)
    }
}

/// Samples of the time that one message took, to three significant digits, and their sum, exactly.
///
/// Every measure is kept as time per message; rates and bandwidths are made of it when it is
/// shown. So the median of a rate is the rate of the median time, and the `p99` of a rate is the
/// rate that 99 % of the samples reached. The mean is over all messages: no stall is too rare for
/// it.
///
/// Invariant: `messages` is at least the number of samples, `time_ps` the sum over all messages.
#[derive(Clone)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
    time_ps: u128,
    messages: u128,
}

impl Times {
    /// No samples.
    pub(crate) fn new() -> Times {
        // Three digits are always a valid precision.
        let histogram = Histogram::new(3).expect("a histogram of three digits");
        Times { histogram, time_ps: 0, messages: 0 }
    }

    /// Adds a sample: each of so many messages took this many picoseconds.
    pub(crate) fn add(&mut self, ps: u64, messages: u64) {
        // The histogram grows up to this end, fifty days; it cannot fail below it.
        let _ = self.histogram.record(ps.clamp(1, 1 << 62));
        let messages = u128::from(messages.max(1));
        self.time_ps = self.time_ps.saturating_add(u128::from(ps) * messages);
        self.messages += messages;
    }

    /// The number of samples.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The time of all messages over their number, picoseconds.
    pub(crate) fn mean(&self) -> u64 {
        u64::try_from(self.time_ps / self.messages.max(1)).unwrap_or(u64::MAX)
    }

    /// The middle sample, picoseconds.
    pub(crate) fn median(&self) -> u64 {
        self.at(0.5)
    }

    /// The sample that 99 % are at or below, picoseconds.
    pub(crate) fn p99(&self) -> u64 {
        self.at(0.99)
    }

    fn at(&self, quantile: f64) -> u64 {
        // The middle of the bucket stands for it, not its end.
        self.histogram.median_equivalent(self.histogram.value_at_quantile(quantile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut times = Times::new();
        assert_eq!(times.count(), 0);
        for ps in 1..=1000 {
            times.add(ps * 1_000, 1);
        }
        assert_eq!(times.count(), 1000);
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.002;
        assert!(near(times.median(), 500e3), "{}", times.median());
        assert!(near(times.p99(), 990e3), "{}", times.p99());
        times.add(u64::MAX, 1);
        assert_eq!(times.count(), 1001);
    }

    #[test]
    fn the_middle_sample_of_a_run() {
        let samples = |ps: &[u64]| Samples { ps: ps.to_vec(), messages: 1 };
        assert_eq!(samples(&[]).median(), None);
        assert_eq!(samples(&[7]).median(), Some(7));
        assert_eq!(samples(&[9, 1, 5, 3]).median(), Some(5));
    }

    #[test]
    fn no_stall_is_too_rare_for_the_mean() {
        let mut times = Times::new();
        assert_eq!(times.mean(), 0);
        for _ in 0..9_999 {
            times.add(100_000, 1);
        }
        // A second in one of ten thousand.
        times.add(1_000_000_000_000, 1);
        assert_eq!(times.mean(), (9_999 * 100_000 + 1_000_000_000_000) / 10_000);
        assert!(times.median() < 101_000 && times.p99() < 101_000);
    }

    #[test]
    fn each_message_counts_as_much() {
        let mut times = Times::new();
        times.add(100, 64);
        times.add(1_400, 1);
        assert_eq!((times.count(), times.mean()), (2, (6_400 + 1_400) / 65));
        // None is taken for one.
        times.add(0, 0);
        assert_eq!(times.mean(), 7_800 / 66);
    }

    #[test]
    fn ticks_become_picoseconds() {
        assert_eq!(ps(0), 0);
        let rate = clock::ticks_per_us();
        assert_eq!(ps(rate), 1_000_000);
        assert_eq!(ps(rate * 7), 7_000_000);
        assert_eq!(
            ps(u64::MAX),
            (u128::from(u64::MAX) * 1_000_000 / u128::from(rate)).min(u128::from(u64::MAX)) as u64
        );
    }
}
