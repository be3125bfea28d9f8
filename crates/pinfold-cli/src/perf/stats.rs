//! Times, and what is said about many of them.

use hdrhistogram::Histogram;
use pinfold_sys::clock;

/// Picoseconds that `ticks` of the processor's counter take.
#[inline]
pub(crate) fn ps(ticks: u64) -> u64 {
    let ps = u128::from(ticks) * 1_000_000 / u128::from(clock::ticks_per_us());
    u64::try_from(ps).unwrap_or(u64::MAX)
}

/// Samples of the time that one message took, to three significant digits.
///
/// Every measure is kept as time per message; rates and bandwidths are made of it when it is
/// shown. So the median of a rate is the rate of the median time, and the `p99` of a rate is the
/// rate that 99 % of the samples reached.
#[derive(Clone)]
pub(crate) struct Times {
    histogram: Histogram<u64>,
}

impl Times {
    /// No samples.
    pub(crate) fn new() -> Times {
        // Three digits are always a valid precision.
        let histogram = Histogram::new(3).expect("a histogram of three digits");
        Times { histogram }
    }

    /// Adds a sample: a message took this many picoseconds.
    pub(crate) fn add(&mut self, ps: u64) {
        // The histogram grows up to this end, fifty days; it cannot fail below it.
        let _ = self.histogram.record(ps.clamp(1, 1 << 62));
    }

    /// How many samples there are.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
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
        // The middle of the bucket, not its end.
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
            times.add(ps * 1_000);
        }
        assert_eq!(times.count(), 1000);
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.002;
        assert!(near(times.median(), 500e3), "{}", times.median());
        assert!(near(times.p99(), 990e3), "{}", times.p99());
        times.add(u64::MAX);
        assert_eq!(times.count(), 1001);
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
