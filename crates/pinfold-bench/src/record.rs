//! The results of a run of the command: one record for each measure, subject, size and class, and
//! the samples it is made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    class::Class,
    stats::{Samples, Times},
    terms::{Cell, Id, Kind, Memory, Route, Setting, What},
};

/// One line of `--json`. The names and values of its fields are a promise to scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// The measure.
    pub(crate) what: What,
    /// The subject that the messages went by.
    pub(crate) subject: Kind,
    /// Pinfold's paths; `null` for others.
    pub(crate) path: Option<Route>,
    /// The memory that messages lie in.
    pub(crate) memory: Memory,
    /// Bytes in a message.
    pub(crate) size: usize,
    /// True if every message was written before and read after it went.
    pub(crate) touched: bool,
    /// Under which circumstances.
    pub(crate) setting: Setting,
    /// The distance between the cores.
    pub(crate) class: Class,
    /// All the time over all messages, in `unit`; of a rate, all messages over all the time.
    pub(crate) mean: f64,
    /// The middle sample, in `unit`.
    pub(crate) median: f64,
    /// The value that all but the worst 1 % of the samples reached: a high time, or a low rate.
    pub(crate) p99: f64,
    /// Samples.
    pub(crate) n: u64,
    /// `ns`, `MB/s` (10^6 bytes a second) or `M/s` (10^6 messages a second).
    pub(crate) unit: Unit,
}

/// The unit of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    #[serde(rename = "ns")]
    Nanoseconds,
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    #[serde(rename = "M/s")]
    MillionsPerSecond,
}

impl Unit {
    /// The unit of a measure.
    pub(crate) const fn of(what: What) -> Unit {
        match what {
            What::Latency | What::Cpu => Unit::Nanoseconds,
            What::Bandwidth | What::Bidirectional => Unit::MegabytesPerSecond,
            What::Rate => Unit::MillionsPerSecond,
        }
    }

    /// Returns whether more is better.
    pub(crate) const fn more_is_better(self) -> bool {
        !matches!(self, Unit::Nanoseconds)
    }
}

impl Record {
    /// The subject, its path and its memory.
    pub(crate) fn id(&self) -> Id {
        Id { kind: self.subject, route: self.path, memory: self.memory }
    }

    /// The row it stands in.
    pub(crate) fn cell(&self) -> Cell {
        let Record { what, size, touched, setting, .. } = *self;
        Cell { what, size, touched, setting }
    }

    fn new(cell: Cell, id: Id, class: Class, times: &Times) -> Record {
        let Cell { what, size, touched, setting } = cell;
        Record {
            what,
            subject: id.kind,
            path: id.route,
            memory: id.memory,
            size,
            touched,
            setting,
            class,
            mean: value(what, size, times.mean()),
            median: value(what, size, times.median()),
            p99: value(what, size, times.p99()),
            n: times.count(),
            unit: Unit::of(what),
        }
    }
}

/// The value of `ps` picoseconds per message of `size` bytes in the unit of `what`.
fn value(what: What, size: usize, ps: u64) -> f64 {
    let ps = ps.max(1) as f64;
    match what {
        What::Latency | What::Cpu => rounded(ps / 1e3, 100.0),
        // A byte per picosecond is 10^12 a second.
        What::Bandwidth => rounded(size as f64 / ps * 1e6, 10.0),
        What::Bidirectional => rounded(2.0 * size as f64 / ps * 1e6, 10.0),
        What::Rate => rounded(1e6 / ps, 1000.0),
    }
}

/// Rounds to so many parts of one; a small value to three significant digits, so that no value
/// becomes zero.
fn rounded(value: f64, parts: f64) -> f64 {
    let mut parts = parts;
    while value > 0.0 && value * parts < 100.0 && parts < 1e15 {
        parts *= 10.0;
    }
    (value * parts).round() / parts
}

/// The samples so far.
#[derive(Default)]
pub(crate) struct Collected {
    times: BTreeMap<(Cell, Id, Class), Times>,
    /// The middle sample of each run.
    rounds: BTreeMap<(Cell, Id, Class), Vec<u64>>,
    /// The path that Pinfold took, if it had the choice.
    taken: BTreeMap<(Cell, Id), &'static str>,
    runs: [u64; Class::ALL.len()],
}

impl Collected {
    /// Adds a run's samples.
    pub(crate) fn add(&mut self, cell: Cell, id: Id, class: Class, samples: &Samples) {
        let times = self.times.entry((cell, id, class)).or_insert_with(Times::new);
        samples.ps.iter().for_each(|&ps| times.add(ps, samples.messages));
        if let Some(median) = samples.median() {
            self.rounds.entry((cell, id, class)).or_default().push(median);
        }
        // Other subjects have no distance between cores.
        if !cell.setting.is_crowded() {
            self.runs[class as usize] += 1;
        }
    }

    /// Returns whether nothing has been measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Notes the path that a subject took.
    pub(crate) fn note_path(&mut self, cell: Cell, id: Id, path: &'static str) {
        self.taken.insert((cell, id), path);
    }

    /// The path that a subject took, if it had a choice.
    pub(crate) fn path_taken(&self, cell: Cell, id: Id) -> Option<&'static str> {
        self.taken.get(&(cell, id)).copied()
    }

    /// The median of each run of a record, in its unit.
    pub(crate) fn rounds(&self, record: &Record) -> Vec<f64> {
        let Record { what, size, class, .. } = *record;
        let rounds = self.rounds.get(&(record.cell(), record.id(), class));
        rounds.into_iter().flatten().map(|&ps| value(what, size, ps)).collect()
    }

    /// The number of timed runs of this class.
    pub(crate) fn runs(&self, class: Class) -> u64 {
        self.runs[class as usize]
    }

    /// Every record, in the order of measures, sizes, subjects and classes.
    pub(crate) fn records(&self) -> Vec<Record> {
        let all = self.times.iter();
        all.map(|(&(cell, id, class), times)| Record::new(cell, id, class, times)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::samples;

    const CELL: Cell = Cell::alone(What::Latency, 8, false);

    fn one(cell: Cell, id: Id, ps: &[u64]) -> Record {
        let mut collected = Collected::default();
        collected.add(cell, id, Class::Near, &samples(ps));
        collected.records().remove(0)
    }

    #[test]
    fn json_has_exactly_the_promised_fields() {
        let record = one(CELL, Id::pinfold(Route::Eager), &[80_000, 90_000, 130_000]);
        let json = serde_json::to_string(&record).unwrap();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let mut names: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let promised = [
            "class", "mean", "median", "memory", "n", "p99", "path", "setting", "size", "subject",
            "touched", "unit", "what",
        ];
        assert_eq!(names, promised);
        assert_eq!(value["what"], "latency");
        assert_eq!(value["subject"], "pinfold");
        assert_eq!(value["path"], "eager");
        assert_eq!(value["memory"], "heap");
        assert_eq!(value["size"], 8);
        assert_eq!(value["touched"], false);
        assert_eq!(value["setting"], "alone");
        assert_eq!(value["class"], "near");
        assert_eq!(value["unit"], "ns");
        assert_eq!(value["n"], 3);
        assert!((value["median"].as_f64().unwrap() - 90.0).abs() < 0.2);
        assert!((value["p99"].as_f64().unwrap() - 130.0).abs() < 0.2);
        assert!((value["mean"].as_f64().unwrap() - 100.0).abs() < 0.01);
        assert!(!json.contains('\n'));
        assert_eq!(serde_json::from_str::<Record>(&json).unwrap(), record);
    }

    #[test]
    fn every_name_is_as_promised() {
        let names = |list: Vec<serde_json::Value>| {
            list.iter().map(|name| name.as_str().unwrap().to_string()).collect::<Vec<_>>()
        };
        let whats = What::ALL.map(|what| serde_json::to_value(what).unwrap());
        assert_eq!(names(whats.to_vec()), What::ALL.map(What::name));
        let kinds = Kind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
        assert_eq!(names(kinds.to_vec()), Kind::ALL.map(Kind::name));
        let routes = Route::ALL.map(|route| serde_json::to_value(route).unwrap());
        assert_eq!(names(routes.to_vec()), Route::ALL.map(Route::name));
        let memories = Memory::ALL.map(|memory| serde_json::to_value(memory).unwrap());
        assert_eq!(names(memories.to_vec()), Memory::ALL.map(Memory::name));
        let settings = Setting::ALL.map(|setting| serde_json::to_value(setting).unwrap());
        assert_eq!(names(settings.to_vec()), Setting::ALL.map(Setting::name));
        let units = What::ALL.map(|what| serde_json::to_value(Unit::of(what)).unwrap());
        assert_eq!(names(units.to_vec()), ["ns", "M/s", "MB/s", "MB/s", "ns"]);
    }

    #[test]
    fn units() {
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.002;
        let cell = |what, size| Cell::alone(what, size, true);
        let pipe = Id::plain(Kind::Pipe);
        // 1 MiB in 100 µs; 8 bytes in 10 ns.
        let bandwidth = one(cell(What::Bandwidth, 1 << 20), pipe, &[100_000_000]);
        assert!(near(bandwidth.median, 10485.8) && bandwidth.touched);
        let both = one(cell(What::Bidirectional, 1 << 20), pipe, &[100_000_000]);
        assert!(near(both.median, 20971.5));
        assert!(near(one(cell(What::Rate, 8), pipe, &[10_000]).median, 100.0));
        assert_eq!(one(cell(What::Rate, 8), pipe, &[10_000]).path, None);
        // However slow it is, the value is not zero.
        let slow = one(cell(What::Bandwidth, 8), pipe, &[2_640_000_000]);
        assert!(near(slow.median, 0.00303), "{}", slow.median);
        // The worst of a rate is a low one.
        let rates: Vec<u64> = (1..=100).map(|ns| ns * 1000).collect();
        let rate = one(cell(What::Rate, 8), pipe, &rates);
        assert!(rate.p99 < rate.median && near(rate.p99, 1000.0 / 99.0));
        // All messages over all the time, not the mean of the rates.
        assert!(near(rate.mean, 1000.0 / 50.5), "{}", rate.mean);
    }

    #[test]
    fn classes_are_kept_apart() {
        let mut collected = Collected::default();
        let line = Id::plain(Kind::Line);
        collected.add(CELL, line, Class::Near, &samples(&[45_000]));
        collected.add(CELL, line, Class::Far, &samples(&[165_000]));
        collected.add(CELL, line, Class::Near, &samples(&[45_000]));
        let records: Vec<_> = collected.records();
        assert_eq!(records.len(), 2);
        assert_eq!((records[0].class, records[0].n), (Class::Near, 2));
        assert_eq!((records[1].class, records[1].n), (Class::Far, 1));
        assert_eq!(collected.rounds(&records[0]), [45.0, 45.0]);
        assert_eq!(collected.rounds(&records[1]), [165.0]);
        assert_eq!(collected.runs(Class::Near), 2);
        assert_eq!(collected.runs(Class::Mixed), 0);
    }
}
