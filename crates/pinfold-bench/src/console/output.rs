//! Standard output, and the end of a command whose output is not taken.
//!
//! A command whose output is lost has failed, even if all else went well. It says so, unless the
//! reader has closed its end and does not want to hear more; then the status alone says it, as a
//! shell shows it of a program that died of `SIGPIPE`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use crate::console::progress::say;

/// The exit status where the reader of standard output has closed it: 128 + `SIGPIPE`.
pub const CLOSED: u8 = 128 + 13;

/// The error that standard output did not take all of the text.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {what}: {source}")]
pub struct Lost {
    /// The lost output, such as "the report".
    what: &'static str,
    source: io::Error,
}

impl Lost {
    /// Returns whether the reader has closed it.
    pub fn is_closed(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe
    }

    /// Reports it on stderr, unless the output was closed, and returns the status for it:
    /// [`CLOSED`], or else `status`.
    pub fn end(&self, status: u8) -> ExitCode {
        if self.is_closed() {
            return ExitCode::from(CLOSED);
        }
        say(self);
        ExitCode::from(status)
    }
}

/// Writes all of `text` to standard output; `what` is its name in errors.
///
/// # Errors
/// [`Lost`] where any of it is.
pub fn put(what: &'static str, text: &str) -> Result<(), Lost> {
    put_bytes(what, text.as_bytes())
}

/// The same of bytes that may be no text.
///
/// # Errors
/// As [`put`].
pub fn put_bytes(what: &'static str, bytes: &[u8]) -> Result<(), Lost> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(|source| Lost { what, source })
}

/// Lets `print` write the help to standard output, and returns the exit status.
pub fn show(print: impl FnOnce() -> io::Result<()>) -> ExitCode {
    match print().and_then(|()| io::stdout().flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(source) => Lost { what: "the help", source }.end(1),
    }
}
