//! Standard output, and what becomes of a command whose words it does not take.
//!
//! A command whose output is lost has failed, whatever else it did. It says so, unless whoever
//! read its output has closed it, who does not want to hear more; then the status alone says it,
//! as a shell shows it of a program that died of `SIGPIPE`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::progress::say;

/// The exit status where whoever read standard output has closed it: 128 + `SIGPIPE`.
pub(crate) const CLOSED: u8 = 128 + 13;

/// Standard output did not take all that was to be said.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {what}: {source}")]
pub(crate) struct Lost {
    /// What was to be said, "the report".
    what: &'static str,
    source: io::Error,
}

impl Lost {
    /// Whether whoever read it has closed it.
    pub(crate) fn is_closed(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }

    /// Says it on stderr, unless the output was closed, and gives the status for it: [`CLOSED`], or
    /// else `status`.
    pub(crate) fn end(&self, status: u8) -> ExitCode {
        if self.is_closed() {
            return ExitCode::from(CLOSED);
        }
        say(self);
        ExitCode::from(status)
    }
}

/// Writes all of `text` to standard output; `what` is what to call it.
///
/// # Errors
/// [`Lost`] where any of it is.
pub(crate) fn put(what: &'static str, text: &str) -> Result<(), Lost> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| Lost { what, source })
}

/// Has `print` write the help to standard output, and gives the exit status.
pub(crate) fn show(print: impl FnOnce() -> io::Result<()>) -> ExitCode {
    match print().and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(source) => Lost { what: "the help", source }.end(1),
    }
}
