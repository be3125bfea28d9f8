//! The report: the object that `--json` prints, whose names are a promise to scripts.

use std::path::{Path, PathBuf};

use pinfold::copy::{
    CacheState, CannotTell, Machine, Probe, Reader,
    table::{Operation, Placement, Row, Table},
    tuned::Seen,
};
use serde::Serialize;

/// Goes up when a field changes its meaning.
pub(super) const FORMAT: u32 = 1;

/// All of it.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) format: u32,
    pub(super) version: &'static str,
    pub(super) machine: Machine,
    pub(super) origin: &'static str,
    pub(super) file: Option<PathBuf>,
    pub(super) kept: bool,
    pub(super) measured_s: Option<u64>,
    pub(super) seen: Option<Seen>,
    pub(super) measuring: Option<Measuring>,
    pub(super) probe: ProbeReport,
    pub(super) ignored: Vec<String>,
    #[serde(serialize_with = "rows")]
    pub(super) table: Table,
}

/// The measurement of this run.
#[derive(Serialize)]
pub(super) struct Measuring {
    pub(super) seconds: f64,
    pub(super) cases: usize,
    pub(super) measured: usize,
    pub(super) other_core: bool,
    pub(super) gain: Option<f64>,
    /// The reason why there is no gain: the machine was busy.
    pub(super) withheld: Option<String>,
}

/// The probe's result: whether the clock can tell cached memory.
#[derive(Serialize)]
pub(super) struct ProbeReport {
    pub(super) works: bool,
    pub(super) why: Option<String>,
    pub(super) threshold_ticks: Option<u64>,
    pub(super) cost_cached_ns: Option<f64>,
    pub(super) cost_uncached_ns: Option<f64>,
    pub(super) accuracy: Option<f64>,
    pub(super) accuracy_partly: Option<f64>,
}

impl From<Result<Probe, CannotTell>> for ProbeReport {
    fn from(found: Result<Probe, CannotTell>) -> ProbeReport {
        let probe = found.as_ref().ok();
        ProbeReport {
            works: probe.is_some(),
            why: found.as_ref().err().map(CannotTell::to_string),
            threshold_ticks: probe.map(Probe::threshold_ticks),
            cost_cached_ns: probe.map(|probe| probe.cost_ns()[0]),
            cost_uncached_ns: probe.map(|probe| probe.cost_ns()[1]),
            accuracy: probe.map(Probe::accuracy),
            accuracy_partly: probe.map(Probe::accuracy_partly),
        }
    }
}

impl Report {
    /// The report of a table, with nothing measured now.
    pub(super) fn new(machine: Machine, file: Option<&Path>, table: Table) -> Report {
        Report {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            machine,
            origin: "defaults",
            file: file.map(Path::to_owned),
            kept: false,
            measured_s: None,
            seen: None,
            measuring: None,
            probe: Probe::calibrate().into(),
            ignored: Vec::new(),
            table,
        }
    }
}

#[derive(Serialize)]
struct RowReport {
    operation: &'static str,
    reader: &'static str,
    source: Option<&'static str>,
    destination: &'static str,
    placement: &'static str,
    from: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    bytes: usize,
    algorithm: String,
}

fn rows<S: serde::Serializer>(table: &Table, out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(table.rows().map(|Row { situation, from }| {
        RowReport {
            operation: match situation.operation {
                Operation::Copy => "copy",
                Operation::Zero => "zero",
            },
            reader: match situation.reader {
                Reader::Me => "me",
                Reader::OtherCore => "other_core",
                Reader::NearCore => "near_core",
                Reader::FarCore => "far_core",
                Reader::Device => "device",
                Reader::Nobody => "nobody",
            },
            source: (situation.operation == Operation::Copy).then(|| state(situation.source)),
            destination: state(situation.destination),
            placement: match situation.placement {
                Placement::Plain => "plain",
                Placement::Misaligned => "misaligned",
                Placement::Aliased => "aliased",
            },
            from: from
                .into_iter()
                .map(|(bytes, algorithm)| Run { bytes, algorithm: algorithm.to_string() })
                .collect(),
        }
    }))
}

fn state(state: CacheState) -> &'static str {
    match state {
        CacheState::Unknown => "unknown",
        CacheState::Cached => "cached",
        CacheState::Dirty => "dirty",
        CacheState::Clean => "clean",
        CacheState::Uncached => "uncached",
    }
}
