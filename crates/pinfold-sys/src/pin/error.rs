//! Why something cannot be pinned, and what to do about it.

use std::{fmt, io, ops::Range};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

/// Why the kernel, or this module, refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A filter on system calls or `kernel.io_uring_disabled` forbids it.
    Denied,
    /// The kernel has no such facility.
    Absent,
    /// `RLIMIT_MEMLOCK` is used up; this is it, in bytes.
    Memlock(u64),
    /// No memory, or no more mappings, descriptors.
    Exhausted,
    /// All slots are taken.
    Full,
    /// Empty, longer than 1 GiB, or not addresses.
    Length,
    /// Not all of it is mapped, or not so that it may be written.
    Unmapped,
    /// Of a kind that cannot be pinned for long: files other than shared memory.
    Kind,
    /// The slot belongs to another owner.
    Stranger,
    /// This process is a child of the one that made it.
    Child,
    /// Something else; the errno says it.
    Other,
}

/// A refusal.
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
            Errno::NOSYS => Reason::Absent,
            Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE => Reason::Exhausted,
            Errno::FAULT => Reason::Unmapped,
            Errno::OPNOTSUPP => Reason::Kind,
            _ => Reason::Other,
        };
        Error { call, range: None, errno, reason }
    }

    pub(super) fn because(mut self, reason: Reason) -> Error {
        self.reason = reason;
        self
    }

    pub(super) fn over(mut self, range: &Range<usize>) -> Error {
        self.range = Some((range.start, range.end));
        self
    }

    /// Takes a lack of memory for the limit on locked memory, if there is one.
    pub(super) fn by_limit(self) -> Error {
        match getrlimit(Resource::Memlock).current {
            Some(limit) => self.because(Reason::Memlock(limit)),
            None => self,
        }
    }

    /// Why.
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pin: {}", self.call)?;
        if let Some((start, end)) = self.range {
            write!(f, " of {start:#x}..{end:#x}")?;
        }
        write!(f, ": {}; ", io::Error::from(self.errno))?;
        f.write_str(match self.reason {
            Reason::Denied => {
                "denied: let the seccomp filter pass it, and see sysctl kernel.io_uring_disabled"
            }
            Reason::Absent => "not in this kernel, or hidden by a seccomp filter (Linux 5.19)",
            Reason::Memlock(limit) => {
                return write!(
                    f,
                    "at most {limit} bytes may be locked: unpin some, or raise RLIMIT_MEMLOCK \
                     (ulimit -l)"
                );
            }
            Reason::Exhausted => "out of memory, mappings or descriptors",
            Reason::Full => "all slots are taken: unpin some",
            Reason::Length => "pin something, and at most 1 GiB at a time",
            Reason::Unmapped => "not all of it is mapped for writing",
            Reason::Kind => "files cannot be pinned: copy",
            Reason::Stranger => "the slot belongs to another owner",
            Reason::Child => "made before a fork, by the parent: make another one",
            Reason::Other => "not expected",
        })
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(io::Error::from(error.errno).kind(), error)
    }
}
