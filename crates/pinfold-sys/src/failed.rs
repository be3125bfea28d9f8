//! The call that failed, of several that one function makes.

use std::{fmt, io};

use rustix::io::Errno;

/// A system call by the kernel's name, and its errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The call.
    pub call: &'static str,
    /// The errno that the kernel returned.
    pub errno: Errno,
}

impl Failed {
    /// For [`Result::map_err`].
    pub fn of<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> Failed {
        move |error| {
            let errno = Errno::from_io_error(&error.into());
            Failed { call, errno: errno.unwrap_or(Errno::IO) }
        }
    }
}

/// Returns whether an answer may come from a filter, or from a kernel without the call, where the
/// call itself has no reason for it: then another call is worth a try.
pub fn may_be_denied(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::NOSYS | Errno::ACCESS)
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, io::Error::from(self.errno))
    }
}

impl std::error::Error for Failed {}

impl From<Failed> for io::Error {
    fn from(failed: Failed) -> io::Error {
        failed.errno.into()
    }
}
