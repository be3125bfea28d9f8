//! Descriptors that are kept, so that a file that was unmapped can be mapped again.
//!
//! Descriptors are the process's, and the program needs them for other things. So all endpoints of
//! a process together keep no more than an eighth of its limit (`RLIMIT_NOFILE`), and none whose
//! number says that half of them are in use: the kernel gives the lowest that is free.

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

use pinfold_sys::trial::{self, Limited};

/// Descriptors that are kept in all, at most, however high the process's limit.
const KEPT_MAX: u64 = 1024;
/// The share of the process's limit that may be kept: one in so many.
const KEPT_SHARE: u64 = 8;

/// The count of kept descriptors.
#[derive(Debug)]
pub(crate) struct Account {
    kept: AtomicUsize,
    /// The number that may be kept; `None`: as the process's limit says.
    max: Option<usize>,
}

/// The process's.
pub(super) static OF_PROCESS: Account = Account::new(None);

/// A descriptor that counts.
#[derive(Debug)]
pub(super) struct Kept {
    fd: OwnedFd,
    account: &'static Account,
}

/// Returns how many descriptors are kept where a process may have `nofile`, and whether one of this
/// number is.
fn rule(nofile: Option<u64>, number: u64) -> (usize, bool) {
    let nofile = nofile.unwrap_or(u64::MAX);
    ((nofile / KEPT_SHARE).min(KEPT_MAX) as usize, number < nofile / 2)
}

impl Account {
    pub(super) const fn new(max: Option<usize>) -> Account {
        Account { kept: AtomicUsize::new(0), max }
    }

    /// As [`rule`]. One system call.
    fn rule(&self, fd: BorrowedFd<'_>) -> (usize, bool) {
        let number = u64::try_from(fd.as_raw_fd()).unwrap_or(u64::MAX);
        match self.max {
            Some(max) => (max, true),
            None => rule(trial::soft_limit(Limited::OpenFiles), number),
        }
    }

    /// Returns whether a descriptor may be kept, if others make room for it.
    pub(super) fn may_keep(&self, fd: BorrowedFd<'_>) -> bool {
        let (max, may) = self.rule(fd);
        may && max > 0
    }

    /// Keeps a descriptor if there is room.
    ///
    /// # Errors
    /// There is none: the descriptor is handed back.
    pub(super) fn keep(&'static self, fd: OwnedFd) -> Result<Kept, OwnedFd> {
        let (max, _) = self.rule(fd.as_fd());
        let more = |kept: usize| (kept < max).then_some(kept + 1);
        match self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Kept { fd, account: self }),
            Err(_) => Err(fd),
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }
}

impl AsFd for Kept {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.account.kept.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_is_kept_and_half_left_alone() {
        assert_eq!(rule(Some(1024), 511), (128, true));
        assert_eq!(rule(Some(1024), 512), (128, false));
        assert_eq!(rule(Some(64), 31), (8, true));
        assert_eq!(rule(Some(7), 0), (0, true));
        assert_eq!(rule(Some(0), 0), (0, false));
        assert_eq!(rule(Some(1 << 20), 400_000), (1024, true));
        assert_eq!(rule(None, 400_000), (1024, true));
    }
}
