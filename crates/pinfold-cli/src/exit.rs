//! How the command ends: 0 done, 1 failed, 2 asked for something that makes no sense.

use std::{
    fmt::Display,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use signal_hook::consts::SIGXFSZ;

use crate::progress::say;

/// Has a file that grows beyond what `ulimit -f` allows fail with an error, which is told and
/// cleaned up after, where it would end the process without a word (`SIGXFSZ`, `setrlimit(2)`).
pub(crate) fn outlive_limits() {
    // The signal need only be taken. Where it cannot be, things are as they were.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Says on stderr why the command failed, and gives the status for it (1).
pub(crate) fn failed(why: impl Display) -> ExitCode {
    say(why);
    ExitCode::FAILURE
}

/// Says on stderr what is wrong with the command line, and gives the status for it (2).
pub(crate) fn usage(why: impl Display) -> ExitCode {
    say(format_args!("{why}\nTry 'pinfold help' for the options."));
    ExitCode::from(2)
}
