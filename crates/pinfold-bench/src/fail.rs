//! Errors: those that end a run, and those that make one subject impossible.

use std::{io, process::ExitCode, time::Duration};

use super::verify::Mismatch;
use crate::console::{exit, output::Lost, words::Words};

/// The result of anything that can end a run.
pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

/// The reason why a run, or the set-up of one subject, failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fail {
    /// A message did not arrive as it was sent.
    #[error("{subject}, {size}-byte messages: wrong contents: {source}")]
    Wrong { subject: String, size: usize, source: Mismatch },
    /// The other process closed its end, or spoke when it should not have: it failed or died.
    #[error("the other process is gone")]
    Gone,
    /// The other process said why it failed.
    #[error("the other process (pid {pid}) failed: {why}")]
    Peer { pid: u32, why: String },
    /// The other process ended.
    #[error("the other process (pid {pid}) {how} while measuring {doing}")]
    Died { pid: u32, how: String, doing: String },
    /// The other process lives but does not answer.
    #[error("the other process has not answered for {0:?}: is it stopped?")]
    Stuck(Duration),
    /// A system call failed.
    #[error("{call}: {source}")]
    Os { call: &'static str, source: io::Error },
    /// The pair did not understand each other.
    #[error("the other process sent something unexpected: {0}")]
    Protocol(String),
    /// The command line asks for something that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Output could not be written.
    #[error("cannot write {what}: {source}")]
    Output { what: String, source: io::Error },
    /// Standard output did not take the results.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The library said no.
    #[error("{}", Words(.0))]
    Pinfold(#[from] pinfold::Error),
    /// Anything else that needs a sentence.
    #[error("{0}")]
    Said(String),
}

impl Fail {
    /// Reports it, and returns the exit status for it.
    pub(crate) fn end(&self) -> ExitCode {
        match self {
            Fail::Usage(why) => exit::usage(why),
            Fail::Lost(lost) => lost.end(1),
            why => exit::failed(why),
        }
    }

    /// For `map_err`: `call` failed.
    pub(crate) fn os<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> Fail {
        move |source| {
            let source = source.into();
            match source.kind() {
                // A pipe or a socket reports these errors when its other end has closed.
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Fail::Gone,
                _ => Fail::Os { call, source },
            }
        }
    }

    /// Returns whether the cause may lie with the other process, which then knows more.
    pub(crate) fn may_be_the_peers(&self) -> bool {
        match self {
            Fail::Gone | Fail::Os { .. } | Fail::Protocol(_) => true,
            Fail::Pinfold(error) => error.is_peer_gone(),
            _ => false,
        }
    }
}
