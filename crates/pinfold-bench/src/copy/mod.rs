//! `pinfold perf copy`: copies within one process, by every algorithm, in every state of the caches
//! (Calhoun's Copybench, section 4.3), and the ring of two copies between two cores.
//!
//! - [`args`]: the options. [`cell`]: the grid that is measured.
//! - [`bench`]: one turn of one algorithm. [`measure`]: all turns.
//! - [`ring`]: the ring.
//! - [`samples`], [`findings`], [`record`]: the results. [`text`], [`page`]: the ways to show them.

mod args;
mod bench;
mod cell;
mod findings;
mod measure;
mod page;
mod record;
mod ring;
mod samples;
mod text;

use std::{process::ExitCode, time::Instant};

pub(super) use args::CopyArgs;
use pinfold::copy::{self, Machine};
use pinfold_sys::cpu::{affinity, partner::Partner};

use self::{args::Output, bench::Bench, findings::Findings, record::Record};
use super::{
    cores,
    fail::{Fail, Result},
    html, machine, table,
};
use crate::console::progress::say;

/// Runs `pinfold perf copy`.
#[inline(never)]
pub(super) fn run(args: &CopyArgs) -> ExitCode {
    match act(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => why.end(),
    }
}

fn act(args: &CopyArgs) -> Result<()> {
    let start = Instant::now();
    let (wish, pace, output) = (args.wish()?, args.pace()?, args.output());
    let allowed = affinity::current_cpus();
    let cores = args.cores()?.or_else(|| cores::two_of(&allowed));
    if let Some(file) = &output.html {
        html::check(file)?;
    }
    // The plan is made here, so that no measurement includes that.
    copy::plan();
    let ran_on = cores.map_or([None; 2], |cores| cores.map(Some));
    let mut found = Findings {
        machine: machine::Machine::look(ran_on),
        verdicts: Vec::new(),
        laps: Vec::new(),
        distance: None,
        notes: Vec::new(),
        took: start.elapsed(),
    };
    let hops_ns = if args.is_ring() {
        let cores = cores
            .ok_or_else(|| Fail::Said("there is no second processor to pass messages to".into()))?;
        let (laps, hops_ns) = ring::measure(&wish.sizes, cores, pace)?;
        found.laps = laps;
        hops_ns
    } else {
        let first = cores.map(|[first, _]| first).or(allowed.first().copied());
        // If the thread cannot be bound, it runs on as it is.
        let _ = first.map(affinity::pin_to);
        let partner = cores.and_then(|[_, second]| Partner::start(second));
        let last_cache_bytes = Machine::this().last_cache_bytes();
        let (cells, notes) = cell::grid(&wish, last_cache_bytes, partner.is_some());
        let size_max = cells.iter().map(|cell| cell.size).max().ok_or_else(|| {
            Fail::Usage(format!("nothing is left to measure: {}", notes.join("; ")))
        })?;
        let mut bench = Bench::new(size_max, partner)?;
        let measured = measure::measure(&mut bench, &cells, pace)?;
        found.notes = notes.into_iter().chain(measured.notes).collect();
        found.verdicts = measured.verdicts;
        measured.hops_ns
    };
    found.distance = measure::distance(&hops_ns);
    found.notes.extend(measure::unseen(&hops_ns, copy::plan().origin()));
    found.took = start.elapsed();
    show(&found, &output)
}

/// Shows the findings, in every way that was asked for.
fn show(found: &Findings, output: &Output) -> Result<()> {
    let text = if output.json {
        found.notes.iter().for_each(say);
        json(found)?
    } else if found.laps.is_empty() {
        text::grid(found, output.all)
    } else {
        text::ring(found)
    };
    table::show(&text, &[(&output.html, &|| Ok(page::page(found)))])
}

/// One object a line.
fn json(found: &Findings) -> Result<String> {
    let cells = found.verdicts.iter().map(Record::from);
    let totals = (!found.verdicts.is_empty()).then(|| found.totals().into());
    let mut text = String::new();
    for record in cells.chain(found.laps.iter().map(Record::from)).chain(totals) {
        text += &serde_json::to_string(&record).map_err(|why| Fail::Said(why.to_string()))?;
        text.push('\n');
    }
    Ok(text)
}
