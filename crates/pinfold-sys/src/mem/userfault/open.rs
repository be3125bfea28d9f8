//! Opening a userfaultfd, and agreeing on its features.

use rustix::io::Errno;

use super::{
    abi::{self, Fd},
    error::{Error, Reason},
};
use crate::checker;

/// `UFFD_FEATURE_EXACT_ADDRESS`, which is not used: it tells that the kernel is Linux 5.18 or
/// newer. Those before 5.16 kept one bit for all unmaps in progress, so that the end of one hid the
/// others.
const COUNTS_CHANGES: u64 = 1 << 11;

const EVENTS: u64 = abi::EVENT_REMAP | abi::EVENT_REMOVE | abi::EVENT_UNMAP;
const WATCH: u64 = EVENTS | abi::PAGEFAULT_FLAG_WP | COUNTS_CHANGES;

/// The features that this kernel lets this process use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Memory can be watched at all.
    pub watch: bool,
    /// Files in shared memory, too (Linux 5.19).
    pub watch_shared: bool,
    /// Any memory, mappings of files too (Linux 6.7).
    pub watch_any: bool,
    /// Pages can be moved (Linux 6.8).
    pub moves: bool,
    /// Forks can be heard of: takes `CAP_SYS_PTRACE`.
    pub forks: bool,
}

/// The features of a userfaultfd here. Opens two or three; some 10 µs.
///
/// # Errors
/// The errors of [`Watch::new`](super::Watch::new) when there is none.
pub fn probe() -> Result<Support, Error> {
    let offered = offered()?;
    let has = |bits: u64| offered & bits == bits;
    let forks = has(abi::EVENT_FORK) && open()?.agree(abi::EVENT_FORK).is_ok();
    Ok(Support {
        watch: has(WATCH),
        watch_shared: has(WATCH | abi::WP_HUGETLBFS_SHMEM),
        watch_any: has(WATCH | abi::WP_ASYNC),
        moves: has(abi::MOVE),
        forks,
    })
}

/// Opens one for watching; returns also whether it takes any memory.
pub(super) fn watching() -> Result<(Fd, bool), Error> {
    let offered = offered()?;
    if offered & WATCH != WATCH {
        return Err(Error::lacking("UFFDIO_API (unmap events and write protection)"));
    }
    // Write protection that resolves itself is allowed on all kinds of memory. It is never used.
    let any = offered & abi::WP_ASYNC;
    let fd = agreed(EVENTS | abi::PAGEFAULT_FLAG_WP | (offered & abi::WP_HUGETLBFS_SHMEM) | any)?;
    Ok((fd, any != 0))
}

/// Opens one for moving pages.
pub(super) fn moving() -> Result<Fd, Error> {
    if offered()? & abi::MOVE == 0 {
        return Err(Error::lacking("UFFDIO_API (UFFDIO_MOVE)"));
    }
    agreed(abi::MOVE | abi::PAGEFAULT_FLAG_WP)
}

/// Opens one for questions alone.
pub(super) fn asking() -> Result<Fd, Error> {
    agreed(0)
}

fn offered() -> Result<u64, Error> {
    agree(&open()?, 0)
}

fn agreed(features: u64) -> Result<Fd, Error> {
    let fd = open()?;
    agree(&fd, features)?;
    Ok(fd)
}

fn agree(fd: &Fd, features: u64) -> Result<u64, Error> {
    fd.agree(features).map_err(|errno| {
        let error = Error::new("UFFDIO_API", errno);
        if error.reason() == Reason::Kind { error.because(Reason::Absent) } else { error }
    })
}

fn open() -> Result<Fd, Error> {
    // A thread that unmaps watched memory waits for one that has no turn meanwhile.
    if checker::is_there() {
        return Err(Error::new("userfaultfd(2)", Errno::NOSYS).because(Reason::Absent));
    }
    Fd::by_call().or_else(|errno| {
        // The device helps against a filter; of two refusals the call's says more.
        Fd::by_device().map_err(|_| {
            let error = Error::new("userfaultfd(2)", errno);
            // Before Linux 5.11 there was no way without privilege.
            if error.reason() == Reason::Kind { error.because(Reason::Absent) } else { error }
        })
    })
}
