//! Refusals of the kernel: the call, its addresses, the errno, the reason, and whether it may pass.

use std::{fmt, io, ops::Range};

use rustix::io::Errno;

/// The reason of a facility's refusal, and the remedy.
pub trait Why: Copy + fmt::Debug + PartialEq {
    /// The facility, which each message begins with.
    const FACILITY: &'static str;

    /// The usual meaning of an errno here.
    fn of(errno: Errno) -> Self;

    /// Writes the remedy.
    ///
    /// # Errors
    /// The formatter's.
    fn advise(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// Returns whether an error may be over a moment later: a limit that was reached, memory that was
/// short, a call that was interrupted. No caller remembers such an error for good.
pub fn may_pass(error: &io::Error) -> bool {
    const PASSING: [Errno; 7] = [
        Errno::AGAIN,
        Errno::INTR,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
        Errno::NOSPC,
    ];
    Errno::from_io_error(error).is_some_and(|errno| PASSING.contains(&errno))
        || error.kind() == io::ErrorKind::OutOfMemory
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error<W> {
    call: &'static str,
    range: Option<(usize, usize)>,
    errno: Errno,
    reason: W,
}

impl<W: Why> Error<W> {
    /// A refusal of `call`, for the usual reason.
    pub fn new(call: &'static str, errno: Errno) -> Error<W> {
        Error { call, range: None, errno, reason: W::of(errno) }
    }

    /// The same for another reason.
    #[must_use]
    pub fn because(mut self, reason: W) -> Error<W> {
        self.reason = reason;
        self
    }

    /// The same of these addresses.
    #[must_use]
    pub fn over(mut self, range: &Range<usize>) -> Error<W> {
        self.range = Some((range.start, range.end));
        self
    }

    /// The reason.
    pub fn reason(&self) -> W {
        self.reason
    }

    /// The errno that the kernel answered.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The call that failed.
    pub fn call(&self) -> &'static str {
        self.call
    }
}

impl<W: Why> fmt::Display for Error<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", W::FACILITY, self.call)?;
        if let Some((start, end)) = self.range {
            write!(f, " of {start:#x}..{end:#x}")?;
        }
        write!(f, ": {}; ", io::Error::from(self.errno))?;
        self.reason.advise(f)
    }
}

impl<W: Why> std::error::Error for Error<W> {}

impl<W: Why + Send + Sync + 'static> From<Error<W>> for io::Error {
    fn from(error: Error<W>) -> io::Error {
        io::Error::new(io::Error::from(error.errno).kind(), error)
    }
}
