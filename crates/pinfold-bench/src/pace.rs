//! The number of messages in a sample, by the time that one is expected to take, and the time that
//! samples go on: every turn lasts as long as it may, whether its subject is fast or slow.

use std::time::Duration;

use super::terms::{Cell, Memory, Setting, Spec, What};

/// Below this many picoseconds one way, a latency sample is the mean of [`BATCH`] round trips:
/// reading the clock takes 10 to 20 ns.
const BATCH_BELOW_PS: f64 = 1e6;
/// Round trips in such a sample.
const BATCH: u64 = 64;
/// A burst takes about this long at least, so that its start and end hardly count.
const BURST_PS: f64 = 300e6;
/// The same where processor time is counted: long enough to sleep and wake many times.
const CPU_BURST_PS: f64 = 5e9;
/// Messages in a burst at least, so that they can overlap, as far as [`BURST_BYTES`] go.
const BURST_LEAST: usize = 8;
/// Bytes that a burst may grow to for that.
const BURST_BYTES: usize = 64 << 20;
/// Messages from this long on, bytes, are not sent just to warm up.
const LONG_BYTES: usize = 16 << 20;
/// Bytes of memory that the messages of a touched burst have together, at most, unless one message
/// is longer: they must fit into a core's own cache.
const TOUCHED_BYTES: usize = 1 << 20;
/// Time to write or check a byte, picoseconds; a guess, for planning only.
const TOUCH_PS: f64 = 120.0;

/// Samples of a run at most: a bound on their memory, which no turn of usual length reaches.
const SAMPLES_MAX: u64 = 1 << 20;
/// The part of a turn after which no other sample begins. The rest is for the probe, the check and
/// the words between the processes.
const SAMPLED: f64 = 0.9;

/// Messages of a sample of processor time where one goes every millisecond.
const PACED_BURST: u64 = 8;
/// Picoseconds from one to the next of those.
const PACED_PS: f64 = 1e9;

/// The number of the subject among those that were set up, and where its messages lie.
pub(crate) type Subject = (usize, Memory);

/// A short run that measures the time of a message.
pub(crate) fn trial(cell: Cell, subject: Subject, run: u64) -> Spec {
    let some = ((256 << 10) / cell.size.max(1)).clamp(1, 16) as u64;
    let burst = ((4 << 20) / cell.size.max(1)).clamp(1, 64) as u64;
    let per_sample = match cell.what {
        What::Latency => some,
        _ if cell.touched => touched_burst(cell.size),
        _ => burst,
    };
    let per_sample = if cell.setting == Setting::Paced { 1 } else { per_sample };
    let (warm_up, samples) = if cell.size < LONG_BYTES { (1, 2) } else { (0, 1) };
    spec(cell, subject, run, warm_up, samples, per_sample)
}

/// The time in a turn of `allowance` by which the last sample has begun.
pub(crate) fn sampled(allowance: Duration) -> Duration {
    allowance.mul_f64(SAMPLED)
}

/// A run that lasts for `allowance`, in samples that suit messages of about `ps` picoseconds. If
/// they take longer there are fewer samples, else more.
pub(crate) fn measure(
    cell: Cell,
    subject: Subject,
    run: u64,
    ps: u64,
    allowance: Duration,
) -> Spec {
    // The probes, the messages between the processes and the check take their part.
    let allowed = allowance.as_secs_f64() * 1e12 * 0.85 - 100e6;
    let ps = ps.max(1) as f64;
    let touch = if cell.touched { cell.size as f64 * TOUCH_PS } else { 0.0 };
    let whole = |count: f64, least: u64, most: u64| (count as u64).clamp(least, most);
    let (per_sample, sample) = match cell.what {
        What::Latency if cell.setting == Setting::Paced => (1, PACED_PS),
        _ if cell.setting == Setting::Paced => (PACED_BURST, PACED_BURST as f64 * PACED_PS),
        What::Latency => {
            let batch = if ps < BATCH_BELOW_PS { BATCH } else { 1 };
            (batch, batch as f64 * (2.0 * ps + 4.0 * touch))
        }
        _ => {
            let long = if cell.what == What::Cpu { CPU_BURST_PS } else { BURST_PS };
            let least = (BURST_BYTES / cell.size.max(1)).clamp(1, BURST_LEAST) as u64;
            let burst = match cell.touched {
                true => touched_burst(cell.size),
                false => whole(long.min(allowed / 3.0) / ps, least, 1 << 20),
            };
            (burst, burst as f64 * (ps + 2.0 * touch))
        }
    };
    // A twentieth of the time, for caches and predictors; none where one sample is a great part.
    let warm_up = match cell.what {
        What::Cpu => 0,
        _ => whole(allowed / 20.0 / sample, u64::from(allowed > 5.0 * sample), 2000),
    };
    spec(cell, subject, run, warm_up, SAMPLES_MAX, per_sample)
}

/// Messages in a burst of touched messages: a power of two.
fn touched_burst(size: usize) -> u64 {
    let most = (TOUCHED_BYTES / size.max(1)).clamp(1, 256);
    // The power of two at or below it.
    1 << most.ilog2()
}

fn spec(
    cell: Cell,
    (subject, memory): Subject,
    run: u64,
    warm_up: u64,
    samples: u64,
    per_sample: u64,
) -> Spec {
    let Cell { what, size, touched, setting } = cell;
    Spec { subject, what, size, touched, setting, memory, run, warm_up, samples, per_sample }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAP: Subject = (0, Memory::Heap);

    fn cell(what: What, size: usize, touched: bool) -> Cell {
        Cell::alone(what, size, touched)
    }

    #[test]
    fn many_samples_fit_into_a_turn() {
        let allowance = Duration::from_millis(20);
        for what in What::ALL {
            for (size, ps) in [(8, 50_000), (8, 2_000_000), (4096, 500_000), (1 << 20, 80_000_000)]
            {
                let spec = measure(cell(what, size, false), HEAP, 1, ps, allowance);
                let ways = if what == What::Latency { 2 } else { 1 };
                let (sample, turn) = (spec.per_sample * ways * ps, 20_000_000_000);
                assert!(3 * sample < turn, "{what:?} {size}: {sample}");
                assert!(10 * spec.warm_up * sample < turn, "{what:?} {size}: {}", spec.warm_up);
                // Time ends the run of every subject.
                assert!(spec.samples * sample > turn, "{what:?} {size}: {}", spec.samples);
            }
        }
    }

    #[test]
    fn quick_messages_are_timed_in_batches() {
        let allowance = Duration::from_millis(20);
        let spec = |ps| measure(cell(What::Latency, 8, false), HEAP, 1, ps, allowance);
        assert_eq!(spec(80_000).per_sample, 64);
        assert_eq!(spec(1_200_000).per_sample, 1);
    }

    #[test]
    fn slow_subjects_get_the_least_samples() {
        let slow = measure(cell(What::Bandwidth, 1 << 30, true), HEAP, 1, u64::MAX, Duration::ZERO);
        assert_eq!((slow.warm_up, slow.per_sample), (0, 1));
    }

    #[test]
    fn a_part_of_a_turn_is_left_for_the_rest() {
        assert_eq!(sampled(Duration::from_millis(100)), Duration::from_millis(90));
        assert_eq!(sampled(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn paced_messages_are_timed_one_by_one() {
        let allowance = Duration::from_millis(100);
        let paced = |what| Cell { setting: Setting::Paced, ..cell(what, 8, false) };
        for ps in [1_000, 5_000_000] {
            let spec = measure(paced(What::Latency), HEAP, 1, ps, allowance);
            assert_eq!((spec.per_sample, spec.warm_up), (1, 4));
            let spec = measure(paced(What::Cpu), HEAP, 1, ps, allowance);
            assert_eq!((spec.per_sample, spec.warm_up), (PACED_BURST, 0));
        }
        assert_eq!(trial(paced(What::Cpu), HEAP, 1).per_sample, 1);
    }

    #[test]
    fn touched_bursts_are_powers_of_two() {
        for size in [0, 1, 8, 100, 4096, 5000, 1 << 20, 1 << 22] {
            let burst = touched_burst(size);
            assert!(burst.is_power_of_two() && burst <= 256);
            assert!(burst == 1 || burst as usize * size <= TOUCHED_BYTES);
        }
    }
}
