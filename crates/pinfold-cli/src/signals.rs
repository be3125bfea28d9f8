//! The signals that ask the command to stop.

use std::io;

use pinfold_sys::signal::is_ignored;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// Takes SIGINT, SIGTERM and SIGHUP from here on.
///
/// Those that are ignored stay so: a program under `nohup` outlives its terminal, and one in the
/// background of a script what is typed there.
///
/// # Errors
/// What `sigaction(2)` said, or for want of descriptors.
pub(crate) fn take() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal)))
}
