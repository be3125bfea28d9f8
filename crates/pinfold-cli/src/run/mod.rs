//! `pinfold run`: an MPI program whose messages Pinfold carries.
//!
//! In the order of a run:
//!
//! - [`args`]: the options.
//! - [`program`]: the MPI that the program is linked with.
//! - [`find`]: the MPI that starts it; [`provider`]: the library that libfabric loads.
//! - [`place`]: a directory for the run.
//! - [`plan`]: the command line and the variables. No I/O.
//! - [`hosts`]: two networks within this machine.
//! - [`launch`]: starting, signals, the end.
//! - [`summary`]: paths of messages and bytes, summed over ranks.

mod args;
mod find;
mod hosts;
mod launch;
mod place;
mod plan;
mod program;
mod provider;
mod summary;

use std::{env, process::ExitCode, time::Instant};

pub(crate) use self::args::RunArgs;
use self::{
    args::Over,
    hosts::{Hosts, Ways},
    place::Place,
    plan::{Means, Plan},
    summary::Summary,
};
use crate::{exit::End, output, progress::say};

/// The exit status of a run that was not begun, as of `env` and `docker run`: programs seldom end
/// with it.
const NOT_BEGUN: u8 = 125;

/// Runs `pinfold run`.
#[inline(never)]
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match begin(args) {
        Ok(status) => ExitCode::from(status),
        Err(End::Failed(why)) => {
            say(why);
            ExitCode::from(NOT_BEGUN)
        }
        Err(End::Lost(lost)) => lost.end(1),
    }
}

/// Returns the exit status of the program.
fn begin(args: &RunArgs) -> Result<u8, End> {
    let program = program::find(args.program())?;
    let linked = program::linked_with(&program);
    let kind = program::agree(args.mpi, linked, &program)?;
    let mpi = find::find(kind, args.over, &find::Places::of_this_process(&program))?;
    plan::check(args, mpi.kind)?;
    let provider = match args.over {
        Over::Pinfold => Some(provider::find(&provider::Places::of_this_process())?),
        _ => None,
    };
    let takes_key = plan::takes_key(args, mpi.kind) && env::var_os("PINFOLD_KEY_FILE").is_none();
    // Nothing is made for a plan that is only shown.
    if args.dry_run {
        let means = Means {
            provider: provider.as_ref().map(|found| found.shown().to_owned()),
            key: takes_key.then(|| "KEY".into()),
            ways: (args.hosts == 2).then(Ways::shown),
        };
        let plan = Plan::new(args, &mpi, &means);
        output::put("the plan", &plan.shown(args.json, &mpi, provider.as_ref()))?;
        return Ok(0);
    }
    // A user who is not root becomes it in a name space of this process, which has one thread yet.
    let hosts = if args.hosts == 2 { Some(Hosts::new()?) } else { None };
    let place = Place::new()?;
    let means = Means {
        provider: provider.as_ref().map(|found| place.provider(found)).transpose()?,
        key: takes_key.then(|| place.key()).transpose()?,
        ways: hosts.as_ref().map(|hosts| hosts.prepare(&place)).transpose()?,
    };
    let plan = Plan::new(args, &mpi, &means);
    say(format_args!("{}", plan.announced(&mpi)));
    let began = Instant::now();
    let ended = launch::run(&mut plan.command(&place))?;
    let seconds = began.elapsed().as_secs_f64();
    let summary = Summary::new(args, &mpi, &place, hosts.as_ref(), ended, seconds);
    if args.json {
        output::put("the report", &summary.json())?;
    } else {
        for line in summary.lines() {
            say(line);
        }
    }
    Ok(ended)
}
