//! Reasons why something cannot be pinned, and the remedies.

use std::fmt;

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};

use crate::refused::{self, Why};

/// The reason of a refusal by the kernel, or this module.
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
pub type Error = refused::Error<Reason>;

impl Error {
    /// Takes a lack of memory for the limit on locked memory, if there is one.
    pub(super) fn by_limit(self) -> Error {
        match getrlimit(Resource::Memlock).current {
            Some(limit) => self.because(Reason::Memlock(limit)),
            None => self,
        }
    }
}

impl Why for Reason {
    const FACILITY: &'static str = "pin";

    fn of(errno: Errno) -> Reason {
        match errno {
            Errno::PERM | Errno::ACCESS => Reason::Denied,
            Errno::NOSYS => Reason::Absent,
            Errno::NOMEM | Errno::AGAIN | Errno::MFILE | Errno::NFILE => Reason::Exhausted,
            Errno::FAULT => Reason::Unmapped,
            Errno::OPNOTSUPP => Reason::Kind,
            _ => Reason::Other,
        }
    }

    fn advise(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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
