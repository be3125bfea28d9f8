//! Copies of this process, for work that may end it.
#![allow(unsafe_code)]
// Invariant: a child runs the work it was given and then leaves by `_exit`: nothing of its
// parent's runs in it, no destructor, no flush, no hook.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use rustix::process::Pid;

/// The status of a child whose work panicked, the same as of a Rust program.
pub const PANICKED: i32 = 101;

/// Runs `work` in a copy of this process, which ends with the status that `work` returns. The
/// caller waits for it. See `fork(2)`.
///
/// # Errors
/// `EAGAIN` at a limit on processes, `ENOMEM`, or the error of a filter.
///
/// # Safety
/// This process has one thread. In a copy of a process with more, locks that the others held stay
/// taken for ever, the allocator's among them.
pub unsafe fn spawn(work: impl FnOnce() -> i32) -> io::Result<Pid> {
    // SAFETY: the process has one thread, says the caller, so the child may do all that its parent
    // may.
    match unsafe { libc::fork() } {
        0 => {
            let status = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        pid => Pid::from_raw(pid.max(0)).ok_or_else(io::Error::last_os_error),
    }
}

/// Waits for a child, and returns its exit status. `None`: it ended by a signal.
#[cfg(test)]
pub(crate) fn status_of(pid: Pid) -> Option<i32> {
    use rustix::process::{WaitOptions, waitpid};

    let (_, ended) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    ended.exit_status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_its_status() {
        for status in [0, 7] {
            // SAFETY: the work touches neither locks nor the heap, so other threads do not matter.
            let pid = unsafe { spawn(|| status) }.unwrap();
            assert_eq!(status_of(pid), Some(status));
        }
    }
}
