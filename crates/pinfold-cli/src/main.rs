//! The `pinfold` command: measure, send and receive.
//!
//! - [`cli`]: the command line; picks the subcommand.
//! - [`perf`]: `pinfold perf`, every path beside what one would use instead.
//! - [`transfer`]: `pinfold send` and `pinfold recv`, files or a stream to another process.
//! - [`exit`], [`progress`]: what the subcommands share.

mod cli;
mod exit;
mod perf;
mod progress;
mod transfer;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::outlive_limits();
    cli::run()
}
