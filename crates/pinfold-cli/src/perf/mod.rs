//! `pinfold perf`: Pinfold beside what one would use instead, and beside what the machine can do.
//!
//! In the order of a run:
//!
//! - [`args`], [`plan`], [`pace`]: what to measure, in which order, for how long.
//! - [`pair`], [`control`], [`cores`], [`answer`]: the two processes and how they talk.
//! - [`sync`], [`shared`]: how they keep step during a run.
//! - [`subject`]: what is measured. [`bench`]: how. [`payload`], [`verify`]: with which bytes.
//! - [`class`], [`stats`], [`record`]: what comes out.
//! - [`table`], [`html`], [`machine`], [`units`]: how it is shown.

mod answer;
mod args;
mod bench;
mod class;
mod control;
mod cores;
mod fail;
mod machine;
mod pace;
mod pair;
mod payload;
mod plan;
mod record;
mod run;
mod shared;
mod stats;
mod subject;
mod sync;
mod table;
mod units;
mod verify;

use std::{os::fd::AsFd, process::ExitCode, time::Instant};

pub(crate) use args::PerfArgs;

use self::{
    args::Role,
    control::Control,
    fail::{Fail, Result},
    pair::Pair,
};
use crate::exit;

/// Runs `pinfold perf`.
pub(crate) fn run(args: PerfArgs) -> ExitCode {
    match act(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fail::Usage(why)) => exit::usage(why),
        Err(why) => match args.role() {
            // The first process says it, with what it knows itself.
            Role::Second => ExitCode::FAILURE,
            _ => exit::failed(why),
        },
    }
}

fn act(args: &PerfArgs) -> Result<()> {
    let start = Instant::now();
    let (wish, time, cores, output) = (args.wish()?, args.time()?, args.cores()?, args.output());
    let (mut pair, mut stage) = match args.role() {
        Role::Start => Pair::start(cores)?,
        Role::Second => {
            let stdin = std::io::stdin().as_fd().try_clone_to_owned().map_err(Fail::os("dup"))?;
            let (mut pair, mut stage) = Pair::answer(Control::new(stdin))?;
            return answer::serve(&mut pair, &mut stage);
        }
        Role::Listen(_) | Role::Connect(_) => return Err(Fail::Said("not wired yet".into())),
    };
    let findings = run::measure(&mut pair, &mut stage, &wish, time, start, &output)?;
    table::print(&findings, &output)
}
