//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use pinfold_bench::{PerfArgs, tune};

use crate::{doctor, lab, output, run, top, trace, transfer};

/// Messages between processes, straight from and into the memory they already use.
#[derive(Parser)]
#[command(name = "pinfold", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(Box<doctor::DoctorArgs>),
    /// Measure latency, bandwidth and rate beside what one would use instead
    Perf(Box<PerfArgs>),
    Send(Box<transfer::SendArgs>),
    Recv(Box<transfer::RecvArgs>),
    Run(Box<run::RunArgs>),
    Top(Box<top::TopArgs>),
    Tune(Box<tune::TuneArgs>),
    Lab(Box<lab::LabArgs>),
    Trace(Box<trace::TraceArgs>),
}

/// Reads the command line and runs what it asks for. No subcommand is inlined, so that none takes
/// the stack of another.
///
/// A command line that cannot be understood ends the process with status 2, from clap.
pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(why) if why.use_stderr() => why.exit(),
        // The help or the version was asked for.
        Err(text) => return output::show(|| text.print()),
    };
    match cli.command {
        Command::Doctor(args) => doctor::run(&args),
        Command::Perf(args) => pinfold_bench::run(&args),
        Command::Send(args) => transfer::send(*args),
        Command::Recv(args) => transfer::recv(*args),
        Command::Run(args) => run::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Trace(args) => trace::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
