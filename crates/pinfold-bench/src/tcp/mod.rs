//! `pinfold perf tcp`: Pinfold between hosts beside sockets, and beside other libraries where they
//! are installed.
//!
//! - [`args`]: the options. [`cell`]: the cells that are measured, and the contestants.
//! - [`ground`]: loopback, or a cable between two networks of this machine's own.
//! - [`contestant`]: the set-up of each contestant. [`tool`], [`tool_text`]: UCX's program.
//! - [`answer`]: the second process. [`measure`]: all turns. [`judge`]: the verdicts from them; no
//!   I/O.
//! - [`findings`], [`record`]: the results. [`text`], [`page`]: the ways to show them.

mod answer;
mod args;
mod cell;
mod contestant;
mod findings;
mod ground;
mod judge;
mod measure;
mod page;
mod record;
mod text;
mod tool;
mod tool_text;

use std::{process::ExitCode, time::Instant};

pub(super) use args::TcpArgs;

use self::{args::Output, findings::Findings, ground::Ground};
use super::{fail::Result, html, pair::Pair, table};
use crate::console::progress::say;

/// Runs `pinfold perf tcp`.
#[inline(never)]
pub(super) fn run(args: &TcpArgs) -> ExitCode {
    if args.is_second() {
        // The first process says what went wrong.
        return answer::serve().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    match act(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => why.end(),
    }
}

fn act(args: &TcpArgs) -> Result<()> {
    let start = Instant::now();
    let (wish, output) = (args.wish()?, args.output());
    if let Some(file) = &output.html {
        html::check(file)?;
    }
    // First of all: only a process with one thread can become root within a namespace of its own.
    let ground = Ground::new(wish.hosts)?;
    let found = ground.near(|| {
        let mut second = Pair::second(&["perf", "tcp", "--second"]);
        ground.far(&mut second)?;
        let (mut pair, mut stage) = Pair::start_as(second, wish.cores)?;
        measure::measure(&mut pair, &mut stage, &ground, &wish, start)
    })??;
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
    table::show(&text, &[(&output.html, &|| Ok(page::page(found)))])
}
