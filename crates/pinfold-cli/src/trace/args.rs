//! The options of `pinfold trace`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Subcommand};
use pinfold_lab::trace::{Call, Kind, cut::Cut, forms::Form};

/// Record the buffers of any program's socket and file traffic, and work with such traces
#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Subcommand)]
pub(super) enum Action {
    Record(RecordArgs),
    Print(PrintArgs),
    Summary(SummaryArgs),
    Cut(CutArgs),
    Convert(ConvertArgs),
}

/// Run a program, and record its calls that move bytes: addresses, lengths, results
///
/// The program is watched with ptrace and a seccomp filter: any program, static and threaded ones
/// as well, with all that it starts, and without any privilege. It has this command's input, output
/// and folder.
#[derive(Args)]
#[command(after_help = RECORD_AFTER)]
pub(super) struct RecordArgs {
    /// The trace
    #[arg(long, value_name = "FILE", default_value = "pinfold.trace")]
    pub(super) out: PathBuf,

    /// Record the translations of the endpoints of a program that uses Pinfold, and no calls
    ///
    /// Nothing is watched: the program sends each translation of memory that it sends messages
    /// from, with the level that had it, as its endpoints' counters count them.
    #[arg(long, conflicts_with_all = ["kinds", "no_names"])]
    pub(super) translations: bool,

    /// Kinds of objects: socket, pipe, file, device, other [default: all but other]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    pub(super) kinds: Vec<Kind>,

    /// Leave out the names of files and sockets
    #[arg(long)]
    pub(super) no_names: bool,

    /// The program and its arguments, behind `--`
    #[arg(value_name = "PROGRAM", required = true, last = true)]
    pub(super) words: Vec<OsString>,
}

const RECORD_AFTER: &str = "\
Examples:
  pinfold trace record --out cat.trace -- cat /etc/passwd
  pinfold trace record --kinds socket --out fetch.trace -- curl -s http://127.0.0.1:8000/
  pinfold trace record --translations --out sends.trace -- ./program-that-uses-pinfold

Not seen: bytes that move without a call (io_uring, mapped files, shared memory), and calls of
32-bit programs; if there are any, a line on stderr says so. Each recorded call takes some ten
microseconds more: their order is the program's, their times are not.

Exit status: the program's, 128 more than the number of the signal that ended it, or 125 if it
could not be run and watched, or the trace could not be written.";

/// Print a trace, a line a call
#[derive(Args)]
pub(super) struct PrintArgs {
    /// The trace, in any form; - is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    #[command(flatten)]
    pub(super) choice: Choice,

    /// Print so many calls at most
    #[arg(long, value_name = "CALLS")]
    pub(super) limit: Option<u64>,
}

/// Print the totals of a trace: calls, bytes, buffers, and how many were used again
#[derive(Args)]
pub(super) struct SummaryArgs {
    /// The trace, in any form; - is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    #[command(flatten)]
    pub(super) choice: Choice,

    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// Write a part of a trace as a trace of its own
#[derive(Args)]
#[command(after_help = CUT_AFTER)]
pub(super) struct CutArgs {
    /// The trace, in any form; - is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    #[command(flatten)]
    pub(super) choice: Choice,

    /// The part; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(super) out: PathBuf,

    /// Its form: binary, csv or json
    #[arg(long, value_name = "FORM", default_value = "binary")]
    pub(super) to: Form,
}

const CUT_AFTER: &str = "\
Examples:
  pinfold trace cut all.trace --kind socket --until 2.5 --out part.trace
  pinfold trace cut all.trace --process curl --process 4711 --to csv";

/// Write a trace in another form: binary, CSV, or lines of JSON
#[derive(Args)]
pub(super) struct ConvertArgs {
    /// The trace, in any form; - is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// The form: binary, csv or json
    #[arg(long, value_name = "FORM")]
    pub(super) to: Form,

    /// The result; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    pub(super) out: PathBuf,
}

/// A choice among a trace's calls.
#[derive(Args)]
pub(super) struct Choice {
    /// Calls that ended so many seconds after the recording began, or later
    #[arg(long, value_name = "SECONDS", value_parser = nanoseconds)]
    from: Option<u64>,

    /// Calls that ended before so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = nanoseconds)]
    until: Option<u64>,

    /// Calls of a process, by its number or its program's name; may be given several times
    #[arg(long, value_name = "PROCESS")]
    process: Vec<String>,

    /// Calls of this name, such as sendmsg
    #[arg(long, value_name = "CALL")]
    call: Vec<Call>,

    /// Calls on this kind of object: socket, pipe, file, device, other, endpoint
    #[arg(long, value_name = "KIND")]
    kind: Vec<Kind>,
}

impl Choice {
    pub(super) fn cut(&self) -> Cut {
        Cut {
            from_ns: self.from,
            until_ns: self.until,
            processes: self.process.clone(),
            calls: self.call.clone(),
            kinds: self.kind.clone(),
        }
    }
}

/// Seconds as nanoseconds.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "write seconds as 2 or 0.25")?;
    let ns = seconds * 1e9;
    // Casting would take anything.
    if !(0.0..1e18).contains(&ns) {
        return Err("write seconds from 0 to 1000000000".into());
    }
    Ok(ns as u64)
}
