//! Doorbells by a pipe, for one process to wake another: a byte for each ring, which nobody reads.
//!
//! The side that rings makes the pipe, and hands the end to read to the other. That one has an
//! epoll tell of changes (`EPOLLET`): each byte is one, whether there are others before it or not.
//! So a ring is one system call on this side, and on the other none besides the one that waits; by
//! a socket, of which the byte has to be taken, they are one more, and each costs more. Once the
//! pipe is full, another takes its place.
//!
//! The end to write is this process's alone, so nobody else can make it one that blocks. An end to
//! read stays here as well: a pipe without any would end this process by `SIGPIPE`.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
    time::Duration,
};

use rustix::{
    io::{Errno, write},
    pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with},
};

use super::poll::{Epoll, Events, Interest};

/// A pipe to ring by.
#[derive(Debug)]
pub struct PipeBell {
    rings: OwnedFd,
    heard: OwnedFd,
}

impl PipeBell {
    /// A pipe with room for as many rings as the smallest holds, 4096: its bytes are memory.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`, or the error of a filter.
    pub fn new() -> io::Result<PipeBell> {
        let (heard, rings) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // At worst it has more room.
        let _ = fcntl_setpipe_size(&rings, rustix::param::page_size());
        Ok(PipeBell { rings, heard })
    }

    /// The end for the other side.
    pub fn heard(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }

    /// Rings. `false`: the pipe is full, and this ring is not heard. About 0.5 µs.
    ///
    /// # Errors
    /// The error of a filter.
    pub fn ring(&self) -> io::Result<bool> {
        loop {
            match write(&self.rings, &[1]) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Returns whether it is an end of a pipe.
pub fn is_pipe(fd: impl AsFd) -> bool {
    fcntl_getpipe_size(fd).is_ok()
}

/// Returns whether this kernel tells of every byte: between 5.5 and 5.14 some told of the first
/// alone. It is tried once in a process.
pub fn tells_each_time() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| try_it().unwrap_or(false))
}

fn try_it() -> io::Result<bool> {
    let (bell, epoll) = (PipeBell::new()?, Epoll::new()?);
    epoll.add(bell.heard(), 0, Interest::Changes)?;
    let mut events = Events::with_capacity(1);
    for _ in 0..3 {
        if !bell.ring()? || epoll.wait(&mut events, Some(Duration::ZERO))? != 1 {
            return Ok(false);
        }
        if epoll.wait(&mut events, Some(Duration::ZERO))? != 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ring_is_told_until_the_pipe_is_full() {
        let (bell, epoll) = (PipeBell::new().unwrap(), Epoll::new().unwrap());
        if !tells_each_time() {
            return crate::skip::skip("a kernel that tells of each byte in a pipe");
        }
        epoll.add(bell.heard(), 7, Interest::Changes).unwrap();
        let mut events = Events::with_capacity(4);
        let mut rung = 0;
        while bell.ring().unwrap() {
            rung += 1;
            assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 1, "ring {rung}");
            assert_eq!(events.iter().next().unwrap().token, 7);
            assert_eq!(epoll.wait(&mut events, Some(Duration::ZERO)).unwrap(), 0, "ring {rung}");
        }
        assert!(rung >= 4096, "{rung}");
    }

    #[test]
    fn pipes_are_told_from_others() {
        let bell = PipeBell::new().unwrap();
        assert!(is_pipe(bell.heard()));
        assert!(!is_pipe(Epoll::new().unwrap().as_fd()));
        assert!(!is_pipe(std::fs::File::open("/proc/self/stat").unwrap()));
    }
}
