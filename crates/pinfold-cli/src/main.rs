//! The `pinfold` command: find out what works, measure, send, receive, watch, tune, run MPI
//! programs, and reproduce papers.
//!
//! - [`cli`]: the command line; picks the subcommand.
//! - [`doctor`]: `pinfold doctor`: permissions, costs and remedies on this machine.
//! - [`transfer`]: `pinfold send` and `pinfold recv`: files or a stream to another process.
//! - [`keygen`]: `pinfold keygen`: the key that two hosts share.
//! - [`run`]: `pinfold run`: an MPI program over Pinfold.
//! - [`top`]: `pinfold top`: the endpoints of this host and their traffic.
//! - [`lab`]: `pinfold lab`: the papers' experiments; they are in [`pinfold_lab`].
//! - [`trace`]: `pinfold trace`: the buffers that any program's traffic uses.
//! - [`manual`]: `pinfold completions` and `pinfold man`: for shells and `man`.
//! - [`pinfold_bench`]: `pinfold perf` and `pinfold tune`; the console that all commands share.
//! - [`signals`]: the signals that ask for an end.

mod cli;
mod doctor;
mod keygen;
mod lab;
mod manual;
mod run;
mod signals;
mod top;
mod trace;
mod transfer;

use std::process::ExitCode;

use pinfold_bench::console::{exit, fold, output, progress, words};

fn main() -> ExitCode {
    exit::outlive_limits();
    cli::run()
}
