//! `pinfold perf send-modes`: the sender's costs of datagrams, copied, pinned each time, or pinned
//! once (Bhikshesvaran, *Single Copy Device Driver for the IBM APE25*, chapter 5).
//!
//! - [`args`]: the options. [`cell`]: the grid that is measured, and the contestants.
//! - [`ground`]: the network for the messages. [`bench`]: one turn. [`calibrate`]: the costs of
//!   modes, for automatic. [`measure`]: all turns. [`lock`]: lock, copy and unlock apart.
//!   [`verify`]: contents.
//! - [`findings`], [`record`]: the results. [`text`], [`page`]: the ways to show them.

mod args;
mod bench;
mod calibrate;
mod cell;
mod findings;
mod ground;
mod lock;
mod measure;
mod page;
mod record;
mod text;
mod verify;

use std::{process::ExitCode, time::Instant};

pub(super) use args::ModesArgs;
use pinfold::route::{SendPicker, SentFrom};
use pinfold_sys::cpu::affinity;

use self::{args::Output, bench::Bench, findings::Findings, ground::Ground};
use super::{
    fail::{Fail, Result},
    html, machine, table,
};
use crate::console::progress::say;

/// Runs `pinfold perf send-modes`.
#[inline(never)]
pub(super) fn run(args: &ModesArgs) -> ExitCode {
    match act(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => why.end(),
    }
}

fn act(args: &ModesArgs) -> Result<()> {
    let start = Instant::now();
    let (wish, output) = (args.wish()?, args.output());
    for file in [&output.csv, &output.html].into_iter().flatten() {
        html::check(file)?;
    }
    // First of all: only a process with one thread can become root within a namespace of its own.
    let ground = Ground::new()?;
    let core = wish.core.or_else(|| affinity::current_cpus().last().copied());
    // If the thread cannot be bound, it runs on as it is.
    let core = core.filter(|&core| affinity::pin_to(core).is_ok());
    let verified = verify::verify(&ground)?;
    let mut bench = Bench::new(&ground)?;
    let before = ground.packets()?;
    let has = |from| wish.cells.iter().any(|cell| cell.from == from);
    let mut sources = vec![SentFrom::Cache, SentFrom::Memory];
    sources.retain(|&from| has(from));
    let mut picker = SendPicker::new(calibrate::calibrate(&mut bench, &sources)?);
    let (rows, mut notes) = measure::measure(&mut bench, &mut picker, &wish, start)?;
    if rows.iter().all(|row| row.found.is_err()) {
        let why = rows.iter().find_map(|row| row.found.as_ref().err());
        let why = why.map_or("no time", String::as_str);
        return Err(Fail::Said(format!("nothing could be measured: {why}")));
    }
    let packets = ground.packets()? - before;
    if packets < bench.messages {
        let messages = bench.messages;
        notes.push(format!("of {messages} messages only {packets} reached the network"));
    }
    let mut sizes: Vec<usize> = wish.cells.iter().map(|cell| cell.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (locks, why) = lock::measure(&sizes, &rows);
    notes.extend(why.map(|why| format!("what registering costs is not known: {why}")));
    let found = Findings {
        machine: machine::Machine::look([None; 2]),
        core,
        rows,
        locks,
        verified,
        messages: bench.messages,
        notes,
        took: start.elapsed(),
    };
    show(&found, &output)
}

/// Shows the findings, in every way that was asked for.
fn show(found: &Findings, output: &Output) -> Result<()> {
    let text = if output.json {
        found.notes.iter().for_each(say);
        record::json(found)?
    } else {
        text::text(found)
    };
    let (csv, html) = (|| record::csv(found), || Ok(page::page(found)));
    table::show(&text, &[(&output.csv, &csv), (&output.html, &html)])
}
