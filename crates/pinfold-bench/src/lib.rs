//! The measurements of `pinfold perf` and `pinfold tune`: Pinfold beside its alternatives, and
//! beside the bare machine.
//!
//! In the order of a run of `pinfold perf`:
//!
//! - [`terms`]: the nouns of what follows.
//! - [`args`], [`bounds`], [`plan`], [`pace`]: the measurements, their order, and their durations.
//! - [`pair`], [`meet`], [`control`], [`cores`], [`answer`]: the two processes and their talk;
//!   [`neighbour`], [`twin`]: others beside them.
//! - [`sync`], [`shared`], [`exposed`], [`stage`]: the means by which they keep step during a run.
//! - [`subject`]: the subjects measured. [`bench`]: the way of measuring. [`payload`], [`verify`]:
//!   the bytes.
//! - [`stats`], [`record`], [`findings`]: the results.
//! - [`compare`], [`marks`], [`behind`]: the judgement on them.
//! - [`table`], [`html`], [`machine`], [`units`]: the ways to show them.
//! - [`copy`]: `pinfold perf copy`, copies within one process.
//! - [`modes`]: `pinfold perf send-modes`, the costs of sending datagrams.
//! - [`tcp`]: `pinfold perf tcp`, between hosts.
//! - [`fabric`], [`datagram`], [`ring_stream`]: calls that only measurements make.
//! - [`tune`]: `pinfold tune`, the copy algorithm that suits each block.
//! - [`brief`]: a short measurement for other commands.
//! - [`console`]: the parts of a command that all commands share.
//! - [`load`], [`busy`]: other programs that ran meanwhile, and whether they spoil the
//!   measurements.
//! - [`fail`], [`watchdog`]: the end of a run that cannot go on.

mod answer;
mod args;
mod behind;
mod bench;
mod bounds;
pub mod brief;
pub mod busy;
mod compare;
pub mod console;
mod control;
mod copy;
mod cores;
mod datagram;
mod exposed;
mod fabric;
mod fail;
mod findings;
pub mod html;
pub mod load;
pub mod machine;
mod marks;
mod meet;
mod modes;
mod neighbour;
mod pace;
mod pair;
mod payload;
mod plan;
mod record;
mod ring_stream;
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
pub mod tune;
mod twin;
pub mod units;
mod verify;
mod watchdog;

use std::{
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::Instant,
};

pub use args::PerfArgs;
pub use pinfold::copy::class;

use self::{
    args::{Other, Output, Role},
    control::Control,
    fail::{Fail, Result},
    findings::{Findings, Ledger},
    pair::Pair,
};
use crate::console::progress::say;

/// Runs `pinfold perf`.
#[inline(never)]
pub fn run(args: &PerfArgs) -> ExitCode {
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
        // The watchdog has the findings, and is about to end the process.
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

/// Shows the findings, in every way that was asked for. If one way fails, the others still show
/// them.
fn show(findings: &Findings, output: &Output) -> Result<()> {
    let written = output.html.as_ref().map_or(Ok(()), |file| html::write(findings, file));
    table::shown(table::print(findings, output), written)
}
