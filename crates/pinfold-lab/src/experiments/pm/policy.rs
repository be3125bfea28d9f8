//! `pm-policy`: policies of eviction and budgets.

use std::collections::HashMap;

use pinfold::translate::pincache::{Clock, Evict, Lru};

use crate::{
    LabError,
    experiment::Run,
    models::{
        eviction::{Belady, Driver, Fifo, Policy, S3Fifo, Sieve},
        pm::{PAGE_BYTES, pinning::Pinning},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    random::Random,
    trace::replay,
    workloads::zipf::Zipf,
};

/// Each transfer's buffer, pages.
const AREA_PAGES: u64 = 4;
const AREA_BYTES: u64 = AREA_PAGES * PAGE_BYTES;
/// Budgets, buffers that may be pinned: 256 KiB to 8 MiB. PM's is 256.
const BUDGETS: [u64; 4] = [16, 64, 256, 512];
const POLICIES: [&str; 6] = ["LRU", "FIFO", "CLOCK", "SIEVE", "S3-FIFO", "Belady"];
/// The position of Belady's among [`POLICIES`].
const BELADY: usize = 5;
const NOT_HERE: &str = "the traces are made from a seed; nothing of this machine is in them";

/// A trace: its name, and the buffer of each transfer.
struct Trace {
    name: &'static str,
    buffers: Vec<u64>,
}

/// The buffers of so many transfers, by Zipf's law.
pub(super) fn zipf(random: &mut Random, buffers: u64, count: usize) -> Vec<u64> {
    let popular = Zipf::new(random, buffers);
    (0..count).map(|_| popular.pick(random)).collect()
}

fn traces(run: &Run<'_>, count: usize) -> Result<Vec<Trace>, LabError> {
    let popular = zipf(&mut run.random(1), 2048, count);
    // Every fourth transfer is of a buffer that is never used again.
    let mut scanned = zipf(&mut run.random(2), 1024, count);
    scanned.iter_mut().skip(3).step_by(4).zip(1 << 20..).for_each(|(buffer, once)| *buffer = once);
    let around = (0..count as u64).map(|at| at % 320).collect();
    let mut all = vec![
        Trace { name: "Zipf", buffers: popular },
        Trace { name: "Zipf and scan", buffers: scanned },
        Trace { name: "loop of 320", buffers: around },
    ];
    for recorded in [replay::SESSIONS, replay::SPOOL] {
        let buffers = replay::buffers(&recorded, AREA_BYTES).map_err(failed)?;
        all.push(Trace { name: recorded.name, buffers });
    }
    Ok(all)
}

/// The position of each transfer's next one of the same buffer, or `u64::MAX`.
pub(super) fn nexts(buffers: &[u64]) -> Vec<u64> {
    let mut seen = HashMap::new();
    let mut nexts = vec![u64::MAX; buffers.len()];
    for (at, buffer) in buffers.iter().enumerate().rev() {
        if let Some(next) = seen.insert(*buffer, at as u64) {
            nexts[at] = next;
        }
    }
    nexts
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: "pm-policy", why: why.to_string() }
}

/// The hit ratio of a policy of the library's, %.
fn of_library<E: Evict>(trace: &Trace, budget: u64, evict: E) -> Result<f64, LabError> {
    let mut pinning = Pinning::new(budget * AREA_PAGES, evict, false).map_err(failed)?;
    for buffer in &trace.buffers {
        pinning.transfer(buffer * AREA_BYTES, AREA_BYTES).map_err(failed)?;
    }
    Ok(percent(pinning.counters().hits, trace))
}

/// The hit ratio of a policy that is told of transfers, %.
fn of_told<P: Policy>(trace: &Trace, budget: u64, policy: P) -> Result<f64, LabError> {
    let (driver, told) = Driver::new(policy);
    let mut pinning = Pinning::new(budget * AREA_PAGES, told, false).map_err(failed)?;
    for (buffer, next) in trace.buffers.iter().zip(nexts(&trace.buffers)) {
        let address = buffer * AREA_BYTES;
        driver.upcoming(address, next);
        if pinning.is_hit(address, AREA_BYTES).map_err(failed)? {
            driver.hit(address);
        }
    }
    Ok(percent(pinning.counters().hits, trace))
}

fn percent(hits: u64, trace: &Trace) -> f64 {
    100.0 * hits as f64 / trace.buffers.len().max(1) as f64
}

/// The hit ratio of a policy, %.
fn hits(policy: usize, trace: &Trace, budget: u64) -> Result<f64, LabError> {
    match POLICIES[policy] {
        "LRU" => of_library(trace, budget, Lru::default()),
        "FIFO" => of_told(trace, budget, Fifo::default()),
        "CLOCK" => of_library(trace, budget, Clock::default()),
        "SIEVE" => of_told(trace, budget, Sieve::default()),
        "S3-FIFO" => of_told(trace, budget, S3Fifo::new(budget as usize)),
        _ => of_told(trace, budget, Belady::default()),
    }
}

/// Runs the experiment.
///
/// # Errors
/// The cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(10_000, 200_000);
    let mut outcome = Outcome::new();
    // By trace, policy and budget.
    let mut all: Vec<Vec<Vec<f64>>> = Vec::new();
    for (at, trace) in traces(run, count)?.iter().enumerate() {
        run.progress(at as f64 / 5.0, trace.name);
        let mut plot = Plot::new(
            &format!("Hit ratio by budget: {}", trace.name),
            Axis::log("buffers of 16 KiB that may be pinned"),
            Axis::linear("hits, %"),
        );
        let mut of_trace = Vec::new();
        for (policy, name) in POLICIES.iter().enumerate() {
            let ratios: Result<Vec<f64>, LabError> =
                BUDGETS.iter().map(|&budget| hits(policy, trace, budget)).collect();
            let ratios = ratios?;
            for (budget, &ratio) in BUDGETS.iter().zip(&ratios) {
                let (quantity, at) = (format!("hits, {}", trace.name), format!("{budget} buffers"));
                outcome.values.push(Value::new(&quantity, name, at, "%").model(ratio));
            }
            let points =
                BUDGETS.iter().zip(&ratios).map(|(&budget, &ratio)| (budget as f64, ratio));
            plot.add(name, Column::Model, points.collect());
            of_trace.push(ratios);
        }
        outcome.plots.push(plot);
        all.push(of_trace);
    }
    judge(&mut outcome, &all);
    outcome.note(format!(
        "The paper has LRU alone. Here the library's own pin-down cache runs each policy on traces \
         of {count} transfers of buffers of four pages: 2,048 buffers by Zipf's law with exponent \
         0.9; 1,024 such, with a buffer that is never used again as every fourth; and 320 in a \
         loop; and two that `pinfold trace record` recorded from real programs, sessions of \
         sockets and a mail spool, whose buffers are the pieces of 16 KiB of the programs' memory \
         that their calls used. LRU and CLOCK are the library's; the others are told of hits, \
         which the library spares itself, and Belady's of the future, which nobody has."
    ));
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, all: &[Vec<Vec<f64>>]) {
    let is_best = |trace: &Vec<Vec<f64>>, budget: usize| {
        trace.iter().all(|ratios| ratios[budget] <= trace[BELADY][budget])
    };
    let budgets = 0..BUDGETS.len();
    let best = all
        .iter()
        .map(|trace| budgets.clone().filter(|&budget| is_best(trace, budget)).count())
        .sum::<usize>();
    let cells = all.len() * BUDGETS.len();
    let [popular, scanned, around, ..] = all else { return };
    // The loop is longer than PM's budget, the third one.
    let (lru, loop_best) = (around[0][2], around[BELADY][2]);
    let beats = |trace: &Vec<Vec<f64>>| {
        budgets.clone().filter(|&budget| trace[0][budget] > trace[1][budget]).count()
    };
    let behind = scanned[BELADY][2] - scanned[0][2];
    outcome.claims = vec![
        Claim::modelled(
            "no policy hits more often than Belady's",
            Finding::of(best == cells, format!("in {best} of {cells} traces and budgets")),
            NOT_HERE,
        ),
        Claim::modelled(
            "LRU hits more often than FIFO where some buffers are popular",
            Finding::of(
                beats(popular) + beats(scanned) == 2 * BUDGETS.len(),
                format!("at {} of 8 budgets", beats(popular) + beats(scanned)),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "a loop a little longer than the budget defeats LRU wholly",
            Finding::of(
                lru == 0.0 && loop_best > 50.0,
                format!(
                    "LRU hits in {lru:.1} % of 320 buffers with room for 256, the optimum in \
                     {loop_best:.1} %; with scans LRU is {behind:.1} points behind it"
                ),
            ),
            NOT_HERE,
        ),
    ];
}
