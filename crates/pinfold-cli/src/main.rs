//! The `pinfold` command: find out what works, measure, send, receive, watch, and tune.
//!
//! - [`cli`]: the command line; picks the subcommand.
//! - [`doctor`]: `pinfold doctor`: permissions, costs and remedies on this machine.
//! - [`perf`]: `pinfold perf`: every path beside its alternatives.
//! - [`transfer`]: `pinfold send` and `pinfold recv`: files or a stream to another process.
//! - [`top`]: `pinfold top`: the endpoints of this host and their traffic.
//! - [`tune`]: `pinfold tune`: the copy algorithm that suits each block on this machine.
//! - [`words`]: the library's messages, in a command's words.
//! - [`exit`], [`fold`], [`output`], [`progress`], [`signals`]: parts that the subcommands share.

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
