//! `pinfold doctor`: the permissions of this machine, user and container, the costs of each path
//! here, and the remedies.
//!
//! In the order of a run:
//!
//! - [`args`]: the options.
//! - [`trial`]: facts that are found by doing, each in a [`child`] of its own, which may be killed
//!   for it.
//! - [`facts`]: the system's statements about itself, which tell causes and remedies.
//! - [`judge`]: the conclusions from both. No I/O.
//! - [`peer`]: a check that one endpoint can be reached, step by step.
//! - [`report`]: the output, the same for machines and for people; [`text`]: for people.

mod args;
mod child;
mod facts;
mod judge;
mod peer;
mod report;
mod text;
mod trial;

use std::{io::IsTerminal, process::ExitCode};

pub(crate) use args::DoctorArgs;

use crate::{exit, fold::width_of_stdout, output};

/// Runs `pinfold doctor`.
#[inline(never)]
pub(crate) fn run(args: &DoctorArgs) -> ExitCode {
    if let Some(address) = &args.peer {
        return peer::reach(address, args.key.as_deref(), args.tls);
    }
    // Until here this process has one thread, and it stays so: see `child`.
    let trials = trial::all(args.measures());
    let facts = facts::Facts::read(std::path::Path::new("/"));
    let report = judge::report(&trials, &facts);
    let text = if args.json() {
        serde_json::to_string_pretty(&report).map(|text| text + "\n").map_err(|e| e.to_string())
    } else {
        let color = args.color(std::io::stdout().is_terminal());
        Ok(text::render(&report, color, width_of_stdout()))
    };
    match text {
        Ok(text) => match output::put("the report", &text) {
            Ok(()) => ExitCode::from(report.verdict.exit),
            Err(lost) => lost.end(1),
        },
        Err(why) => exit::failed(format_args!("cannot write the report: {why}")),
    }
}
