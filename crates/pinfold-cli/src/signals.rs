//! The signals that ask the command to stop.

use std::io;

use pinfold_sys::signal::is_ignored;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// Takes SIGINT, SIGTERM and SIGHUP from here on.
///
/// Ignored signals stay ignored: a program under `nohup` outlives its terminal, and one in the
/// background of a script outlives the keys typed there.
///
/// # Errors
/// The error of `sigaction(2)`, or a lack of descriptors.
pub(crate) fn take() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)))
}
