//! The `pinfold` command: measure, send and receive.
//!
//! - [`cli`]: the command line; picks the subcommand.
//! - [`perf`]: `pinfold perf`, every path beside what one would use instead.
//! - [`exit`], [`progress`]: what the subcommands share.

mod cli;
mod exit;
mod perf;
mod progress;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
