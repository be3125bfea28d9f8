//! The command line.

use std::{process::ExitCode, sync::LazyLock};

use clap::{CommandFactory, Parser, Subcommand};

use pinfold_bench::{PerfArgs, tune};

use crate::{doctor, keygen, lab, manual, output, run, top, trace, transfer};

/// Messages between processes, straight from and into the memory they already use.
#[derive(Parser)]
#[command(name = "pinfold", version, long_version = VERSIONS.as_str(), propagate_version = true)]
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
    Keygen(keygen::KeygenArgs),
    Run(Box<run::RunArgs>),
    Top(Box<top::TopArgs>),
    Tune(Box<tune::TuneArgs>),
    Lab(Box<lab::LabArgs>),
    Trace(Box<trace::TraceArgs>),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

/// The version, the commit if it is known, and the versions of all that two processes share.
static VERSIONS: LazyLock<String> = LazyLock::new(|| {
    let commit = match env!("PINFOLD_COMMIT") {
        "" => String::new(),
        commit => format!(" (commit {commit})"),
    };
    format!(
        "{}{commit}\n{}\n'pinfold send' and 'pinfold recv': version {}",
        env!("CARGO_PKG_VERSION"),
        pinfold::Versions::of_this_library(),
        transfer::VERSION,
    )
});

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
        Command::Keygen(args) => keygen::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Completions(args) => manual::completions(&args, Cli::command()),
        Command::Man(args) => manual::man(&args, Cli::command()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
