//! Marks of figures: facts that a reader must know before believing one. No I/O.

use super::{record::Record, terms::What};

/// Fewer samples than this say little: the 99th percentile is then the worst of them.
pub(crate) const FEW: u64 = 100;

/// Messages longer than this, bytes, are expected to have few samples.
const SHORT_BYTES: usize = 1 << 20;

/// The factor between a mean and a median above which one figure does not tell both.
pub(crate) const UNEVEN: f64 = 1.5;

/// Returns whether a record rests on few samples although its messages are short. Processor time
/// has one sample of all messages of a turn.
pub(crate) fn is_few(record: &Record) -> bool {
    record.n < FEW && record.size <= SHORT_BYTES && record.what != What::Cpu
}

/// The factor by which the mean of a record is worse than its median, if it is more than
/// [`UNEVEN`]; below one, the factor by which it is better, if that is as much.
pub(crate) fn unevenness(record: &Record) -> Option<f64> {
    let ratio = record.mean / record.median;
    let worse = if record.unit.more_is_better() { 1.0 / ratio } else { ratio };
    (worse.is_finite() && !(1.0 / UNEVEN..=UNEVEN).contains(&worse)).then_some(worse)
}

/// The marks of a row with these records: `?` if one is of few samples, `!` if one is uneven.
pub(crate) fn of<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> String {
    let few = records.clone().any(is_few).then_some('?');
    let uneven = records.clone().any(|record| unevenness(record).is_some()).then_some('!');
    few.into_iter().chain(uneven).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn record(what: What, mean: f64, median: f64, n: u64) -> Record {
        let mut records = testing::findings().collected.records();
        records.retain(|record| record.what == what);
        Record { mean, median, n, ..records.remove(0) }
    }

    #[test]
    fn a_mean_far_from_the_median_is_marked_either_way() {
        let latency = |mean, median| unevenness(&record(What::Latency, mean, median, 1000));
        assert_eq!(latency(150.0, 100.0), None);
        assert_eq!(latency(200.0, 100.0), Some(2.0));
        assert_eq!(latency(50.0, 100.0), Some(0.5));
        assert_eq!(latency(70.0, 100.0), None);
        // A lower rate is a worse one.
        assert_eq!(unevenness(&record(What::Rate, 10.0, 40.0, 1000)), Some(4.0));
        assert_eq!(latency(0.0, 0.0), None);
    }

    #[test]
    fn few_samples_of_short_messages_are_marked() {
        let short = |n| Record { size: 8, ..record(What::Latency, 1.0, 1.0, n) };
        assert!(is_few(&short(99)) && !is_few(&short(100)));
        assert!(!is_few(&Record { size: SHORT_BYTES + 1, ..short(3) }));
        assert!(!is_few(&record(What::Cpu, 1.0, 1.0, 5)), "one of each turn");
    }

    #[test]
    fn a_row_has_the_marks_of_any_of_its_records() {
        let even = Record { size: 8, ..record(What::Latency, 1.0, 1.0, 1000) };
        let few = Record { n: 3, ..even.clone() };
        let uneven = Record { mean: 9.0, ..even.clone() };
        assert_eq!(of([&even].into_iter()), "");
        assert_eq!(of([&even, &few].into_iter()), "?");
        assert_eq!(of([&uneven, &even].into_iter()), "!");
        assert_eq!(of([&uneven, &few].into_iter()), "?!");
    }
}
