//! The means that work on this machine for this process's own memory, and the reasons why others do
//! not.

use std::{fmt, io};

use pinfold_sys::mem::{pin, userfault};
use rustix::io::Errno;

/// A facility of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Facility {
    /// Buffers registered with an io_uring.
    Ring,
    /// `mlock(2)`.
    Lock,
    /// `userfaultfd(2)`.
    Watch,
    /// `/proc/self`.
    Proc,
    /// The numbers of pages in `/proc/self/pagemap`.
    Frames,
}

/// The reason why a facility is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lack {
    /// A filter on system calls, a setting or the rights of this user forbid it.
    Denied,
    /// The kernel does not have it, or a filter hides it.
    Absent,
    /// `RLIMIT_MEMLOCK`, in bytes, leaves no room for one page.
    Memlock(u64),
    /// No memory, mapping, descriptor or thread was left.
    Exhausted,
    /// Anything else, by its `errno`.
    Errno(i32),
}

/// The reason why memory is not kept pinned, or not pinned in a better way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Why {
    /// A facility that it needs is not there.
    Lacks(Facility, Lack),
    /// Another userfaultfd of this process has the memory.
    Busy,
    /// Memory of a file or shared with others, which changes without an event to this process; or
    /// not memory that can be watched.
    Kind,
    /// The system's limit on mappings (`vm.max_map_count`) leaves no room to watch one range more.
    Mappings,
    /// `mlock(2)` pins here, and memory that is locked cannot be discarded: nothing stays locked.
    Locking,
    /// Memory was unmapped, moved or discarded all the while.
    Restless,
    /// Some of the memory may still be discarded: see the quarantine.
    Discarding,
    /// This process is a child of the one that made it.
    Child,
}

impl Why {
    /// Returns whether the reason may pass within a moment.
    pub(crate) const fn may_pass(self) -> bool {
        const AGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
        match self {
            Why::Lacks(_, lack) => {
                matches!(lack, Lack::Exhausted | Lack::Memlock(_) | Lack::Errno(AGAIN))
            }
            Why::Mappings => true,
            _ => false,
        }
    }

    /// For [`Refused::NotKept`](crate::memory::translate::pincache::Refused::NotKept), of those
    /// that a back end says of an area.
    pub(super) const fn number(self) -> u8 {
        match self {
            Why::Lacks(..) | Why::Locking => 0,
            Why::Busy => 1,
            Why::Kind => 2,
            Why::Mappings => 3,
            Why::Restless => 4,
            Why::Discarding => 5,
            Why::Child => 6,
        }
    }

    pub(super) const fn of_number(number: u8) -> Option<Why> {
        Some(match number {
            1 => Why::Busy,
            2 => Why::Kind,
            3 => Why::Mappings,
            4 => Why::Restless,
            5 => Why::Discarding,
            6 => Why::Child,
            _ => return None,
        })
    }

    /// The reason why a facility could not be had.
    pub(super) fn pinning(what: Facility, error: &pin::Error) -> Why {
        let lack = match error.reason() {
            pin::Reason::Denied => Lack::Denied,
            pin::Reason::Absent => Lack::Absent,
            pin::Reason::Memlock(limit) => Lack::Memlock(limit),
            pin::Reason::Exhausted | pin::Reason::Full => Lack::Exhausted,
            _ => Lack::Errno(error.errno().raw_os_error()),
        };
        Why::Lacks(what, lack)
    }

    /// The reason why the pages there cannot be looked at.
    pub(super) fn looking(error: &io::Error) -> Why {
        let lack = match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::PERM | Errno::ACCESS) => Lack::Denied,
            Some(Errno::NOENT) => Lack::Absent,
            Some(Errno::NOMEM | Errno::MFILE | Errno::NFILE) => Lack::Exhausted,
            errno => Lack::Errno(errno.unwrap_or(Errno::IO).raw_os_error()),
        };
        Why::Lacks(Facility::Frames, lack)
    }

    /// The reason why there is no watch at all.
    pub(super) fn watching(error: &userfault::Error) -> Why {
        let lack = match error.reason() {
            userfault::Reason::Denied => Lack::Denied,
            userfault::Reason::Absent => Lack::Absent,
            userfault::Reason::Exhausted => Lack::Exhausted,
            _ => Lack::Errno(error.errno().raw_os_error()),
        };
        Why::Lacks(Facility::Watch, lack)
    }

    /// The reason why this memory is not watched.
    pub(super) fn not_watched(error: &userfault::Error) -> Why {
        match error.reason() {
            userfault::Reason::Busy => Why::Busy,
            userfault::Reason::Exhausted => Why::Mappings,
            userfault::Reason::Child => Why::Child,
            _ => Why::Kind,
        }
    }
}

impl Facility {
    fn name(self) -> &'static str {
        match self {
            Facility::Ring => "io_uring's registered buffers",
            Facility::Lock => "mlock(2)",
            Facility::Watch => "userfaultfd(2)",
            Facility::Proc => "/proc/self",
            Facility::Frames => "a look at the numbers of pages (/proc/self/pagemap)",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Facility::Ring => {
                "let the seccomp filter (in a container: its profile) pass io_uring_setup, \
                 io_uring_register and io_uring_enter, and see sysctl kernel.io_uring_disabled"
            }
            Facility::Lock => {
                "let the seccomp filter pass mlock, and raise RLIMIT_MEMLOCK (ulimit -l)"
            }
            Facility::Watch => {
                "let the seccomp filter (in a container: its profile) pass userfaultfd, or give this \
                 user /dev/userfaultfd"
            }
            Facility::Proc => "mount /proc, and leave the process dumpable",
            Facility::Frames => {
                "without it nothing tells of guards (MADV_GUARD_INSTALL) and of shmat(2) over memory, so each \
                 transfer pins anew; it takes CAP_SYS_ADMIN, of the first user namespace, to be shown them"
            }
        }
    }

    fn since(self) -> &'static str {
        match self {
            Facility::Ring => "Linux 5.19",
            Facility::Lock => "any Linux",
            Facility::Watch => "Linux 5.18 with CONFIG_USERFAULTFD",
            Facility::Proc => "any Linux with CONFIG_PROC_FS",
            Facility::Frames => "any Linux with CONFIG_PROC_PAGE_MONITOR",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Why::Lacks(what, Lack::Denied) => {
                write!(f, "{} is denied: {}", what.name(), what.remedy())
            }
            Why::Lacks(what, Lack::Absent) => {
                let (name, since) = (what.name(), what.since());
                write!(f, "{name} is not in this kernel, or a seccomp filter hides it: it takes {since}")
            }
            Why::Lacks(what, Lack::Memlock(limit)) => {
                let name = what.name();
                write!(f, "{name} may lock {limit} bytes, no page more: raise RLIMIT_MEMLOCK (ulimit -l)")
            }
            Why::Lacks(what, Lack::Exhausted) => {
                let name = what.name();
                write!(f, "{name} found no memory, mapping, descriptor or thread left: raise the limits")
            }
            Why::Lacks(what, Lack::Errno(errno)) => {
                let said = std::io::Error::from_raw_os_error(errno);
                write!(f, "{} failed: {said}", what.name())
            }
            Why::Busy => f.write_str(
                "another userfaultfd of this process has the memory: take it out of its ranges",
            ),
            Why::Kind => f.write_str(
                "memory of files or shared with others changes without a word: use private memory",
            ),
            Why::Mappings => f.write_str(
                "no room for more mappings: raise sysctl vm.max_map_count, or send from fewer places",
            ),
            Why::Locking => f.write_str(
                "what mlock(2) locks cannot be discarded by the program, so nothing stays locked: have \
                 io_uring allowed",
            ),
            Why::Restless => f.write_str(
                "memory was unmapped, moved or discarded all the while: the next transfer may do better",
            ),
            Why::Discarding => f.write_str(
                "some of it may still be discarded by a call of madvise(2) that has begun: wait until \
                 all threads have slept once",
            ),
            Why::Child => f.write_str("made before a fork, by the parent: make another one"),
        }
    }
}

impl std::error::Error for Why {}

/// The means of pinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinnedBy {
    /// Buffers registered with an io_uring: pinned for real, known by slot.
    Ring,
    /// `mlock(2)`: kept in memory, reached by address.
    Lock,
    /// Nothing: the caller has to copy.
    Nothing,
}

/// The means that work here, and for each better one why it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The means of pinning.
    pub by: PinnedBy,
    /// The reason why it is not an io_uring.
    pub no_ring: Option<Why>,
    /// The reason why it is not `mlock`, where there is no io_uring.
    pub no_lock: Option<Why>,
    /// The reason why nothing is kept pinned.
    pub not_kept: Option<Why>,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.by {
            PinnedBy::Ring => "pinned by io_uring's registered buffers",
            PinnedBy::Lock => "pinned by mlock(2)",
            PinnedBy::Nothing => "nothing is pinned",
        })?;
        if self.not_kept.is_none() {
            f.write_str(", kept while nothing changes")?;
        }
        // Where nothing pins, the same keeps it from being kept.
        let not_kept = self.not_kept.filter(|why| self.no_lock != Some(*why));
        let rest = [self.no_ring, self.no_lock, not_kept];
        rest.into_iter().flatten().try_for_each(|why| write!(f, "; {why}"))
    }
}
