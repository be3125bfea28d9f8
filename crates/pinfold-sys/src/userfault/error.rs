//! What a userfaultfd refuses, why, and what to do about it.

use std::{fmt, io, ops::Range};

use rustix::io::Errno;

/// Why the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A filter on system calls, or the rights of this user, forbid it.
    Denied,
    /// The kernel has no such facility.
    Absent,
    /// Another userfaultfd has some of the range.
    Busy,
    /// Not for memory of this kind, or not all of the range is mapped.
    Kind,
    /// This process is a child of the one that made it.
    Child,
    /// A limit on descriptors or mappings, or memory, is used up.
    Exhausted,
    /// Something else; the errno says it.
    Other,
}

/// A refusal of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    call: &'static str,
    range: Option<(usize, usize)>,
    errno: Errno,
    reason: Reason,
}

impl Error {
    pub(super) fn new(call: &'static str, errno: Errno) -> Error {
        let reason = match errno {
            Errno::PERM | Errno::ACCESS => Reason::Denied,
            Errno::NOSYS | Errno::NOTTY | Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                Reason::Absent
            }
            Errno::BUSY => Reason::Busy,
            Errno::INVAL => Reason::Kind,
            Errno::NOMEM | Errno::MFILE | Errno::NFILE => Reason::Exhausted,
            _ => Reason::Other,
        };
        Error { call, range: None, errno, reason }
    }

    /// What the kernel does not offer, though it has a userfaultfd.
    pub(super) fn lacking(call: &'static str) -> Error {
        Error { call, range: None, errno: Errno::OPNOTSUPP, reason: Reason::Absent }
    }

    pub(super) fn child(call: &'static str) -> Error {
        Error { call, range: None, errno: Errno::SRCH, reason: Reason::Child }
    }

    pub(super) fn over(mut self, range: &Range<usize>) -> Error {
        self.range = Some((range.start, range.end));
        self
    }

    pub(super) fn because(mut self, reason: Reason) -> Error {
        self.reason = reason;
        self
    }

    /// Why, in one word.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// What the kernel answered.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    /// The call that failed.
    pub fn call(&self) -> &'static str {
        self.call
    }

    fn advice(&self) -> &'static str {
        match self.reason {
            Reason::Denied => {
                "denied: let the seccomp filter (in a container: its profile) pass userfaultfd, or \
                 give this user /dev/userfaultfd"
            }
            Reason::Absent => {
                "not in this kernel, or hidden by a seccomp filter: Linux 5.18 or newer with \
                 CONFIG_USERFAULTFD has it, pages are moved from 6.8 on"
            }
            Reason::Busy => "another userfaultfd of this process has this memory: leave it out",
            Reason::Kind => {
                "not for this memory: watch what is mapped, by whole pages, and of files only \
                 from Linux 6.7 on"
            }
            Reason::Child => "made before a fork, by the parent: make another one",
            Reason::Exhausted => "out of memory, mappings (vm.max_map_count) or descriptors",
            Reason::Other => "not expected",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "userfaultfd: {}", self.call)?;
        if let Some((start, end)) = self.range {
            write!(f, " of {start:#x}..{end:#x}")?;
        }
        let said = io::Error::from(self.errno);
        write!(f, ": {said}; {}", self.advice())
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from(error.errno).kind(), error)
    }
}
