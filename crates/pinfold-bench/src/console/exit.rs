//! Exit statuses: 0 done, 1 failed, 2 asked for something that makes no sense.

use std::{
    fmt::Display,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::SIGXFSZ;

use super::{output::Lost, progress::say};

/// The reason why a command failed.
pub enum End {
    /// An operation that failed, and a remedy.
    Failed(String),
    /// The output is lost.
    Lost(Lost),
}

impl From<String> for End {
    fn from(why: String) -> End {
        End::Failed(why)
    }
}

impl From<&str> for End {
    fn from(why: &str) -> End {
        End::Failed(why.to_owned())
    }
}

impl From<Lost> for End {
    fn from(lost: Lost) -> End {
        End::Lost(lost)
    }
}

/// Reports why a command failed, if it did, and returns the status for it.
pub fn end(done: Result<(), End>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Failed(why)) => failed(why),
        Err(End::Lost(lost)) => lost.end(1),
    }
}

/// Makes a write that exceeds `ulimit -f` fail with an error, which is reported and cleaned up
/// after; else `SIGXFSZ` would end the process without a word (`setrlimit(2)`).
pub fn outlive_limits() {
    // It is enough to take the signal. If that fails, all stays as it was.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Prints on stderr why the command failed, and returns the status for it (1).
pub fn failed(why: impl Display) -> ExitCode {
    say(why);
    ExitCode::FAILURE
}

/// Prints on stderr what is wrong with the command line, and returns the status for it (2).
pub fn usage(why: impl Display) -> ExitCode {
    say(format_args!("{why}\nTry 'pinfold help' for the options."));
    ExitCode::from(2)
}
