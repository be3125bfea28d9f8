//! Memory barriers run on behalf of others, so that the fast side of a protocol needs none.
#![allow(unsafe_code)]
// Invariant: a barrier counts as available only after the kernel accepted this process's
// registration for it; every heavy barrier is at least a sequentially consistent fence here.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use crate::refused::may_pass;

const QUERY: i32 = 0;
const GLOBAL_EXPEDITED: i32 = 1 << 1;
const REGISTER_GLOBAL_EXPEDITED: i32 = 1 << 2;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;

#[derive(Clone, Copy, Debug)]
struct Available {
    global: bool,
    private: bool,
}

static AVAILABLE: OnceLock<Available> = OnceLock::new();

/// Barriers for which this process had other processors interrupted.
static ISSUED: AtomicU64 = AtomicU64::new(0);

/// Registers this process, once, to take part in global and private expedited barriers. From
/// then on a heavy barrier makes every running thread of this process execute a full barrier.
/// Returns whether the global one is available. See `membarrier(2)`; Linux 4.16.
///
/// Registering costs some microseconds in a process with one thread, some milliseconds in one
/// with more; do it when an endpoint is made.
pub fn register() -> bool {
    available().global
}

/// Returns whether [`heavy_global`] reaches every process that registered too. Registers if need
/// be.
pub fn global_available() -> bool {
    available().global
}

/// Returns whether [`heavy_private`] reaches every thread of this process. Registers if need be.
pub fn private_available() -> bool {
    available().private
}

/// Heavy barriers of both kinds that this process has issued.
pub fn issued() -> u64 {
    ISSUED.load(Ordering::Relaxed)
}

/// A full barrier on every running thread of every registered process, this one included. About 1
/// to 3 µs on a small machine, as it interrupts the other processors; milliseconds in a virtual
/// machine with a busy processor.
///
/// If it is not available this is a `SeqCst` fence of the calling thread and no more: ask
/// [`global_available`] (here and of the peer) before relying on it, and let the other side
/// fence for itself if the answer is no.
pub fn heavy_global() {
    fence(Ordering::SeqCst);
    if available().global && membarrier(GLOBAL_EXPEDITED) < 0 {
        fence(Ordering::SeqCst);
    }
}

/// A full barrier on every running thread of this process. About 1 µs.
///
/// If it is not available this is a `SeqCst` fence of the calling thread and no more: ask
/// [`private_available`] before relying on it.
pub fn heavy_private() {
    fence(Ordering::SeqCst);
    if available().private && membarrier(PRIVATE_EXPEDITED) < 0 {
        fence(Ordering::SeqCst);
    }
}

fn available() -> Available {
    find(&AVAILABLE, call)
}

/// The known availability, or the answer of `call`, which is kept from then on unless it is a want
/// of memory just now. A barrier that was available once stays available.
#[inline]
fn find(known: &OnceLock<Available>, call: impl FnMut(i32) -> io::Result<i32>) -> Available {
    match known.get() {
        Some(known) => *known,
        None => ask(known, call),
    }
}

#[cold]
fn ask(known: &OnceLock<Available>, mut call: impl FnMut(i32) -> io::Result<i32>) -> Available {
    let mut passes = false;
    let there = call(QUERY).unwrap_or_else(|error| {
        passes |= may_pass(&error);
        0
    });
    let mut can = |command, register| {
        there & command != 0
            && there & register != 0
            && call(register).inspect_err(|error| passes |= may_pass(error)).is_ok()
    };
    let found = Available {
        global: can(GLOBAL_EXPEDITED, REGISTER_GLOBAL_EXPEDITED),
        private: can(PRIVATE_EXPEDITED, REGISTER_PRIVATE_EXPEDITED),
    };
    if passes { found } else { *known.get_or_init(|| found) }
}

/// The call itself; negative if the kernel or a filter refused.
fn membarrier(command: i32) -> i32 {
    if matches!(command, GLOBAL_EXPEDITED | PRIVATE_EXPEDITED) {
        ISSUED.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the call takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) as i32 }
}

/// The same, with the kernel's error.
fn call(command: i32) -> io::Result<i32> {
    let done = membarrier(command);
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_for_want_of_memory_is_asked_for_again() {
        let known = OnceLock::new();
        let all = GLOBAL_EXPEDITED
            | REGISTER_GLOBAL_EXPEDITED
            | PRIVATE_EXPEDITED
            | REGISTER_PRIVATE_EXPEDITED;
        let answer = |refused: i32, errno: i32| {
            move |command| match command {
                QUERY => Ok(all),
                _ if command == refused => Err(io::Error::from_raw_os_error(errno)),
                _ => Ok(0),
            }
        };
        let both = |found: Available| (found.global, found.private);
        let found = find(&known, answer(REGISTER_GLOBAL_EXPEDITED, libc::ENOMEM));
        assert_eq!(both(found), (false, true));
        let found = find(&known, answer(QUERY - 1, 0));
        assert_eq!(both(found), (true, true));
        // Known now.
        let found = find(&known, answer(REGISTER_GLOBAL_EXPEDITED, libc::ENOMEM));
        assert_eq!(both(found), (true, true));
        // A denial stays.
        let known = OnceLock::new();
        let found = find(&known, answer(REGISTER_PRIVATE_EXPEDITED, libc::EPERM));
        assert_eq!(both(found), (true, false));
        assert!(!find(&known, answer(QUERY - 1, 0)).private);
    }

    #[test]
    fn registering_is_idempotent_and_barriers_return() {
        let first = register();
        assert_eq!(first, register());
        assert_eq!(first, global_available());
        let before = issued();
        heavy_global();
        heavy_private();
        let both = u64::from(global_available()) + u64::from(private_available());
        assert!(issued() - before >= both);
        if private_available() {
            assert_eq!(membarrier(PRIVATE_EXPEDITED), 0);
        }
        if global_available() {
            assert_eq!(membarrier(GLOBAL_EXPEDITED), 0);
        }
    }
}
