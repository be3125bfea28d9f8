//! Standard output, the target of a stream.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};

use crate::transfer::{failure::Failure, frame::BLOCK_BYTES};

/// Standard output, or a stand-in for it.
pub(in super::super) struct Output<F> {
    to: F,
    written: u64,
}

impl<F: AsFd> Output<F> {
    /// Writes to `to`.
    pub(in super::super) fn new(to: F) -> Output<F> {
        // Fewer wake-ups on both ends of a pipe. Anything else refuses, and that is fine.
        let _ = rustix::pipe::fcntl_setpipe_size(&to, BLOCK_BYTES);
        Output { to, written: 0 }
    }

    /// Bytes written so far.
    pub(in super::super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes all of `bytes`, however long the reader takes.
    pub(in super::super) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match write_all(self.to.as_fd(), bytes) {
            Ok(()) => {
                self.written += bytes.len() as u64;
                Ok(())
            }
            Err((some, Errno::PIPE)) => {
                Err(Failure::OutputClosed { bytes: self.written + some as u64 })
            }
            Err((_, why)) => Err(Failure::local("writing", "standard output", why)),
        }
    }
}

/// Writes all of `bytes`; a failure carries the number of bytes that went out before.
fn write_all(to: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::write(to, &bytes[done..]) {
            Ok(0) => return Err((done, Errno::IO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // Standard output may be non-blocking by another process's choice.
            Err(Errno::AGAIN) => {
                let mut wanted = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
                match poll(&mut wanted, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(why) => return Err((done, why)),
                }
            }
            Err(why) => return Err((done, why)),
        }
    }
    Ok(())
}
