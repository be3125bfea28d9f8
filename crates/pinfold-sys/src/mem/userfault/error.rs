//! Refusals of a userfaultfd, the reason, and the remedy.

use std::fmt;

use rustix::io::Errno;

use crate::refused::{self, Why};

/// The reason of the kernel's refusal.
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
pub type Error = refused::Error<Reason>;

impl Error {
    /// The error for a feature that the kernel does not offer, though it has a userfaultfd.
    pub(super) fn lacking(call: &'static str) -> Error {
        Error::new(call, Errno::OPNOTSUPP).because(Reason::Absent)
    }

    pub(super) fn child(call: &'static str) -> Error {
        Error::new(call, Errno::SRCH).because(Reason::Child)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.advise(f)
    }
}

impl Why for Reason {
    const FACILITY: &'static str = "userfaultfd";

    fn of(errno: Errno) -> Reason {
        match errno {
            Errno::PERM | Errno::ACCESS => Reason::Denied,
            Errno::NOSYS | Errno::NOTTY | Errno::NOENT | Errno::NODEV | Errno::NXIO => {
                Reason::Absent
            }
            Errno::BUSY => Reason::Busy,
            Errno::INVAL => Reason::Kind,
            Errno::NOMEM | Errno::MFILE | Errno::NFILE => Reason::Exhausted,
            _ => Reason::Other,
        }
    }

    fn advise(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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
        })
    }
}
