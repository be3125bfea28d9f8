//! Reasons why something cannot be sent this way, and the remedies.

use std::fmt;

use rustix::io::Errno;

use pinfold_sys::refused::{self, Why};

/// The reason of a refusal by the kernel, or this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A filter on system calls or `kernel.io_uring_disabled` forbids it.
    Denied,
    /// The kernel has no such operation.
    Absent,
    /// `RLIMIT_MEMLOCK` is used up; this is it, in bytes.
    Memlock(u64),
    /// No memory, or no more mappings, descriptors.
    Exhausted,
    /// Nothing, more than [`BYTES_MAX`](super::BYTES_MAX), more pieces than
    /// [`PIECES_MAX`](super::PIECES_MAX), more areas than [`AREAS_MAX`](super::AREAS_MAX), or not
    /// within the area.
    Length,
    /// The memory is not registered with this ring.
    Unregistered,
    /// The area belongs to another sender.
    Stranger,
    /// This process is a child of the one that made it.
    Child,
    /// The network did not finish within the time given.
    Late,
    /// Something else; the errno says it.
    Other,
}

/// A refusal.
pub type Error = refused::Error<Reason>;

impl Why for Reason {
    const FACILITY: &'static str = "datagram";

    fn of(errno: Errno) -> Reason {
        match errno {
            Errno::PERM | Errno::ACCESS => Reason::Denied,
            Errno::NOSYS => Reason::Absent,
            Errno::NOMEM | Errno::MFILE | Errno::NFILE => Reason::Exhausted,
            Errno::TIME => Reason::Late,
            _ => Reason::Other,
        }
    }

    fn advise(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Denied => {
                "denied: let the seccomp filter pass it, and see sysctl kernel.io_uring_disabled"
            }
            Reason::Absent => {
                "not in this kernel, or hidden by a seccomp filter (Linux 6.2; registered pieces 6.15)"
            }
            Reason::Memlock(limit) => {
                return write!(
                    f,
                    "at most {limit} bytes may be locked: use less, or raise RLIMIT_MEMLOCK (ulimit -l)"
                );
            }
            Reason::Exhausted => "out of memory, mappings or descriptors",
            Reason::Length => {
                "send 1 to 65,507 bytes within an area, in 1 to 8 pieces; have 1 to 4096 areas"
            }
            Reason::Unregistered => "register the memory when the sender is made",
            Reason::Stranger => "the area belongs to another sender",
            Reason::Child => "made before a fork, by the parent: make another one",
            Reason::Late => "the network still has datagrams of it",
            Reason::Other => "not expected",
        })
    }
}
