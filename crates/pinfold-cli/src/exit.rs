//! How the command ends: 0 done, 1 failed, 2 asked for something that makes no sense.

use std::{fmt::Display, process::ExitCode};

use crate::progress::say;

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
