//! The lines of `--json`, whose names are a promise to scripts.

use pinfold::copy::{Algorithm, Origin, plan};
use serde::Serialize;

use super::{
    cell::Cell,
    ring::Lap,
    samples::{Totals, Verdict},
};
use crate::class::Class;

/// A line.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(super) enum Record {
    Cell(CellRecord),
    Ring(RingRecord),
    Totals(TotalsRecord),
}

#[derive(Serialize)]
pub(super) struct CellRecord {
    #[serde(flatten)]
    cell: Cell,
    class: Option<Class>,
    rounds: usize,
    verified: u64,
    libc_ns: f64,
    plan_ns: f64,
    best_ns: f64,
    best_temporal_ns: f64,
    best_streaming_ns: Option<f64>,
    plan: String,
    best: String,
    best_temporal: String,
    best_streaming: Option<String>,
    of_best: f64,
    of_libc: f64,
    meets_best: bool,
    meets_libc: bool,
    learnt_ns: Option<f64>,
    learnt_of_best: Option<f64>,
    learnt_of_libc: Option<f64>,
}

#[derive(Serialize)]
pub(super) struct RingRecord {
    size: usize,
    chunk: usize,
    contestant: String,
    into: String,
    out_of: Option<String>,
    class: Class,
    hop_ns: f64,
    rounds: usize,
    verified: u64,
    gb_s: f64,
    of_libc: f64,
}

#[derive(Serialize)]
pub(super) struct TotalsRecord {
    plan: &'static str,
    cells: usize,
    meet_best: usize,
    meet_libc: usize,
    learnt_meet_best: usize,
    learnt_meet_libc: usize,
    short: usize,
    short_meet_libc: usize,
    apart: usize,
    apart_gain: Option<f64>,
    apart_best_gain: Option<f64>,
}

/// The origin of the plan, in a word.
pub(super) fn origin() -> &'static str {
    match plan().origin() {
        Origin::Variable(_) => "variable",
        Origin::Tuned { .. } => "tuned",
        Origin::Defaults => "defaults",
    }
}

impl From<&Verdict> for Record {
    fn from(it: &Verdict) -> Record {
        let name = |algorithm: Algorithm| algorithm.to_string();
        Record::Cell(CellRecord {
            cell: it.cell,
            class: it.class,
            rounds: it.rounds,
            verified: it.verified,
            libc_ns: it.libc_ns,
            plan_ns: it.plan.ns,
            best_ns: it.best.ns,
            best_temporal_ns: it.temporal.ns,
            best_streaming_ns: it.streaming.map(|it| it.ns),
            plan: name(it.plan.algorithm),
            best: name(it.best.algorithm),
            best_temporal: name(it.temporal.algorithm),
            best_streaming: it.streaming.map(|it| name(it.algorithm)),
            of_best: it.of_best,
            of_libc: it.of_libc,
            meets_best: it.meets_best(),
            meets_libc: it.meets_libc(),
            learnt_ns: it.learnt.map(|it| it.ns),
            learnt_of_best: it.learnt.map(|it| it.of_best),
            learnt_of_libc: it.learnt.map(|it| it.of_libc),
        })
    }
}

impl From<&Lap> for Record {
    fn from(it: &Lap) -> Record {
        Record::Ring(RingRecord {
            size: it.size,
            chunk: it.chunk,
            contestant: it.name.clone(),
            into: it.copies.into.to_string(),
            out_of: it.copies.out_of.map(|it| it.to_string()),
            class: it.class,
            hop_ns: it.hop_ns,
            rounds: it.rounds,
            verified: it.verified,
            gb_s: it.gb_s,
            of_libc: it.of_libc,
        })
    }
}

impl From<Totals> for Record {
    fn from(it: Totals) -> Record {
        Record::Totals(TotalsRecord {
            plan: origin(),
            cells: it.cells,
            meet_best: it.meet_best,
            meet_libc: it.meet_libc,
            learnt_meet_best: it.learnt_meet_best,
            learnt_meet_libc: it.learnt_meet_libc,
            short: it.short,
            short_meet_libc: it.short_meet_libc,
            apart: it.apart,
            apart_gain: it.apart_gain,
            apart_best_gain: it.apart_best_gain,
        })
    }
}
