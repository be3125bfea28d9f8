//! `pinfold perf`: Pinfold beside what one would use instead, and beside what the machine can do.
//!
//! In the order of a run:
//!
//! - [`terms`]: the nouns of what follows.
//! - [`args`], [`bounds`], [`plan`], [`pace`]: what to measure, in which order, for how long.
//! - [`pair`], [`meet`], [`control`], [`cores`], [`answer`]: the two processes and how they talk;
//!   [`neighbour`], [`twin`]: others beside them.
//! - [`sync`], [`shared`], [`exposed`], [`stage`]: how they keep step during a run.
//! - [`subject`]: what is measured. [`bench`]: how. [`payload`], [`verify`]: with which bytes.
//! - [`stats`], [`record`], [`findings`]: what comes out.
//! - [`compare`], [`marks`], [`behind`]: what is said of it.
//! - [`table`], [`html`], [`machine`], [`units`]: how it is shown.
//! - [`copy`]: `pinfold perf copy`, copies within one process.
//! - [`modes`]: `pinfold perf send-modes`, what it costs to send datagrams.
//! - [`tcp`]: `pinfold perf tcp`, between hosts.
//! - [`brief`]: a short measurement for other commands.
//! - [`load`], [`busy`]: what else ran meanwhile, and whether that spoils what was measured.
//! - [`fail`], [`watchdog`]: how a run ends when it cannot go on.

mod answer;
mod args;
mod behind;
mod bench;
mod bounds;
pub(crate) mod brief;
pub(crate) mod busy;
mod compare;
mod control;
mod copy;
mod cores;
mod exposed;
mod fail;
mod findings;
mod html;
pub(crate) mod load;
mod machine;
mod marks;
mod meet;
mod modes;
mod neighbour;
mod pace;
mod pair;
mod payload;
mod plan;
mod record;
mod run;
mod shared;
mod stage;
mod stats;
mod subject;
mod sync;
mod table;
mod tcp;
mod terms;
#[cfg(test)]
mod testing;
mod twin;
pub(crate) mod units;
mod verify;
mod watchdog;

use std::{
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::Instant,
};

pub(crate) use args::PerfArgs;
pub(crate) use pinfold::copy::class;

use self::{
    args::{Other, Output, Role},
    control::Control,
    fail::{Fail, Result},
    findings::{Findings, Ledger},
    pair::Pair,
};
use crate::progress::say;

/// Runs `pinfold perf`.
#[inline(never)]
pub(crate) fn run(args: &PerfArgs) -> ExitCode {
    match &args.other {
        Some(Other::Copy(args)) => return copy::run(args),
        Some(Other::SendModes(args)) => return modes::run(args),
        Some(Other::Tcp(args)) => return tcp::run(args),
        None => {}
    }
    if let Some(args) = args.between_hosts() {
        return tcp::run(&args);
    }
    match act(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why @ Fail::Usage(_)) => why.end(),
        Err(why) => match args.role() {
            // The first process says it, with what it knows itself.
            Role::Second | Role::Third | Role::Twin => ExitCode::FAILURE,
            _ => why.end(),
        },
    }
}

#[inline(never)]
fn act(args: &PerfArgs) -> Result<()> {
    let start = Instant::now();
    match args.role() {
        Role::Third => return neighbour::obey(std::io::stdin()),
        Role::Twin => return twin::obey(standard_input()?),
        _ => {}
    }
    let (wish, time, cores, output) = (args.wish()?, args.time()?, args.cores()?, args.output());
    let copy = args.insist_on_copy()?;
    if let Some(file) = &output.html {
        html::check(file)?;
    }
    let ledger = Ledger::new(start, wish.touched);
    let (found, shown) = (ledger.clone(), output.clone());
    watchdog::start(args.limit(), move || {
        let findings = found.take()?;
        Some(move || {
            if !findings.collected.is_empty()
                && let Err(why) = show(&findings, &shown)
            {
                say(why);
            }
        })
    });
    let (mut pair, mut stage) = match args.role() {
        Role::Start => Pair::start(cores, copy)?,
        Role::Second => {
            let (mut pair, mut stage) = Pair::answer(Control::new(standard_input()?))?;
            return answer::serve(&mut pair, &mut stage);
        }
        Role::Listen(address) => {
            let (mut pair, mut stage) = Pair::with_caller(meet::listen_at(&address)?)?;
            say(format_args!("measuring with process {}", pair.peer_pid()));
            answer::serve(&mut pair, &mut stage)?;
            say("done; the results are with the other side");
            return Ok(());
        }
        Role::Third | Role::Twin => return Ok(()),
        Role::Connect(address) => Pair::with_listener(meet::connect_to(&address)?, cores)?,
    };
    let done = run::measure(&mut pair, &mut stage, &wish, time, &ledger);
    let Some(mut findings) = ledger.take() else {
        // The watchdog has it, and is about to end the process.
        loop {
            std::thread::park();
        }
    };
    done?;
    findings.notes.extend(findings.doubt());
    show(&findings, &output)
}

/// The socket that the first process has made standard input.
fn standard_input() -> Result<OwnedFd> {
    std::io::stdin().as_fd().try_clone_to_owned().map_err(Fail::os("dup"))
}

/// Shows what was found, in every way that was asked for. What one cannot show, the others still
/// do.
fn show(findings: &Findings, output: &Output) -> Result<()> {
    let written = output.html.as_ref().map_or(Ok(()), |file| html::write(findings, file));
    table::shown(table::print(findings, output), written)
}
