//! Descriptors that another process made, and that nobody here wants.
//!
//! Closing the last one of a file may wait, and cannot be interrupted: for bytes that a connection
//! has yet to send (`SO_LINGER`), or for the server of a file system. So those of files that are
//! neither memory nor processes nor pipes are closed by threads that do nothing else. Others are closed as
//! usual.

use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use rustix::fs::fcntl_get_seals;

use crate::{io::pipe_bell::is_pipe, process::is_pidfd, threads::Kind};

/// The thread that closes files, one after the other.
const CLOSER: Kind = Kind::new("pinfold-closer", 128 << 10);

/// Threads that may wait at a time. Beyond that a file that is to be closed stays open.
const CLOSERS_MAX: usize = 8;

/// A thread stays so long for the next file.
const STAY: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Queue {
    files: VecDeque<OwnedFd>,
    /// Threads that there are, and the idle ones of them.
    closers: usize,
    idle: usize,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue { files: VecDeque::new(), closers: 0, idle: 0 });
static MORE: Condvar = Condvar::new();

/// Returns whether to close it waits for nobody: it is memory, a process, or a pipe.
fn is_harmless(fd: BorrowedFd<'_>) -> bool {
    // The kernel knows of other files without asking anybody that they have no seals.
    fcntl_get_seals(fd).is_ok() || is_pipe(fd) || is_pidfd(fd)
}

/// Takes files that nobody waits for out of `files`, and closes them elsewhere. Returns how many.
pub(super) fn discard(files: &mut Vec<OwnedFd>) -> usize {
    let foreign: Vec<OwnedFd> = files.extract_if(.., |file| !is_harmless(file.as_fd())).collect();
    let taken = foreign.len();
    if taken > 0 {
        close(foreign);
    }
    taken
}

fn close(files: Vec<OwnedFd>) {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    queue.files.extend(files);
    if queue.idle > 0 {
        MORE.notify_all();
    } else if queue.closers < CLOSERS_MAX && CLOSER.start(run).is_ok() {
        // If there is no thread to be had, the next one to come closes these as well.
        queue.closers += 1;
    }
}

fn run() {
    let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(file) = queue.files.pop_front() {
            drop(queue);
            drop(file);
            queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        }
        queue.idle += 1;
        let (woken, waited) =
            MORE.wait_timeout(queue, STAY).unwrap_or_else(PoisonError::into_inner);
        queue = woken;
        queue.idle -= 1;
        if waited.timed_out() && queue.files.is_empty() {
            queue.closers -= 1;
            return;
        }
    }
}
