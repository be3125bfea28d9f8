//! Sockets that a process was started with, by whoever starts services. See `sd_listen_fds(3)`.
#![allow(unsafe_code)]
// Invariant: a descriptor is taken once, and only where the environment says that it was passed to
// this very process.

use std::{
    env,
    os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
    process,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first descriptor that is passed; others follow it.
const FIRST: RawFd = 3;

/// The most descriptors that are taken.
const MANY: RawFd = 1024;

/// Takes the descriptors that were passed to this process (`LISTEN_PID`, `LISTEN_FDS`), in order:
/// once, afterwards there are none. Programs that this process starts do not get them. Those that
/// are not open are left out. Some system calls.
pub fn take() -> Vec<OwnedFd> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<RawFd>().ok());
    let is_ours = number("LISTEN_PID").is_some_and(|pid| pid as u32 == process::id());
    if !is_ours || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MANY);
    let mut taken = Vec::new();
    for fd in FIRST..FIRST + count {
        // SAFETY: borrowed for two calls, which fail where it is not open and close nothing.
        let open = unsafe { BorrowedFd::borrow_raw(fd) };
        let Ok(flags) = fcntl_getfd(open) else { continue };
        let _ = fcntl_setfd(open, flags | FdFlags::CLOEXEC);
        // SAFETY: it is open; it was passed to this process for its own, and nobody else here takes
        // it: nothing that this process opened has its number, since it had that from the start.
        taken.push(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    taken
}

#[cfg(test)]
mod tests {
    #[test]
    fn nobody_passed_anything_to_the_tests() {
        assert!(super::take().is_empty());
    }
}
