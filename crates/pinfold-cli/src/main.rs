//! The `pinfold` command: find out what works, measure, send, receive, watch, and tune.
//!
//! - [`cli`]: the command line; picks the subcommand.
//! - [`doctor`]: `pinfold doctor`, what is allowed here, what it costs, how to get more.
//! - [`perf`]: `pinfold perf`, every path beside what one would use instead.
//! - [`transfer`]: `pinfold send` and `pinfold recv`, files or a stream to another process.
//! - [`top`]: `pinfold top`, the endpoints there are and what they do.
//! - [`tune`]: `pinfold tune`, which copy algorithm suits which block on this machine.
//! - [`words`]: what the library says, in a command's words.
//! - [`exit`], [`fold`], [`output`], [`progress`], [`signals`]: what the subcommands share.

mod cli;
mod doctor;
mod exit;
mod fold;
mod output;
mod perf;
mod progress;
mod signals;
mod top;
mod transfer;
mod tune;
mod words;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::outlive_limits();
    cli::run()
}
