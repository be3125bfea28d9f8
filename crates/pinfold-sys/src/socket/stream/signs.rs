//! The kernel's signs that the other end of a connection is there.
#![allow(unsafe_code)]
// Invariant: the kernel is given room for the integer that it writes.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

use rustix::io::Errno;

use super::info::info;
use crate::failed::may_be_denied;

/// Signs of life of the other end, and of its absence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signs {
    /// Something that was handed to the connection has not been acknowledged: it is on its way, or
    /// the other end has no room for it.
    pub waits: bool,
    /// True if a retransmission, or a probe of an end without room, has not been answered.
    pub unanswered: bool,
    /// Time since it acknowledged something, or said that it has no room.
    pub silent: Duration,
}

/// Looks for signs of life. Two system calls.
///
/// If a filter denies `ioctl`, waiting data is known in packets, not in bytes, from the other of
/// the two.
///
/// `TCP_USER_TIMEOUT` cannot say this: it also ends a connection whose other end answers that it
/// has no room.
///
/// # Errors
/// The error of `getsockopt(2)` for `TCP_INFO`.
pub fn signs(socket: impl AsFd) -> io::Result<Signs> {
    let (info, _) = info(&socket)?;
    let waits = match queued(&socket) {
        Err(errno) if may_be_denied(errno) => info.unacked > 0 || info.unsent_bytes > 0,
        queued => queued? > 0,
    };
    Ok(Signs {
        waits,
        unanswered: info.retransmits > 0 || info.probes > 0,
        silent: Duration::from_millis(info.last_ack_recv.into()),
    })
}

/// The bytes that are not acknowledged: `SIOCOUTQ` of `tcp(7)`.
fn queued(socket: impl AsFd) -> Result<libc::c_int, Errno> {
    let socket = socket.as_fd().as_raw_fd();
    let mut queued = 0;
    // SAFETY: the kernel writes one integer.
    if unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut queued) } == 0 {
        return Ok(queued);
    }
    Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Instant};

    use super::*;
    use crate::{
        process::Segment,
        socket::stream::{self, Received, tests::pair},
    };

    #[test]
    fn an_end_without_room_answers() {
        let (one, two) = pair();
        let idle = signs(&one).unwrap();
        assert!(!idle.waits && !idle.unanswered);
        let mut block = vec![7; 1 << 20];
        let part = [Segment { ptr: block.as_mut_ptr(), len: block.len() }];
        let mut sent = 0;
        // SAFETY: it is this vector.
        while let bytes @ 1.. = unsafe { stream::send(&one, &part, false) }.unwrap() {
            sent += bytes;
        }
        // Waits longer than the silence that is tolerated: the end is probed, and answers.
        let end = Instant::now() + Duration::from_secs(5);
        let mut answered = false;
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
            let signs = signs(&one).unwrap();
            assert!(signs.waits);
            answered |= !signs.unanswered && signs.silent < Duration::from_millis(100);
        }
        assert!(answered);
        assert!(stream::is_connected(&one).unwrap());
        let mut got = 0;
        while got < sent {
            // SAFETY: as above.
            match unsafe { stream::recv(&two, &part) }.unwrap() {
                Received::Bytes(bytes) => got += bytes,
                Received::Nothing => thread::sleep(Duration::from_millis(1)),
                Received::End => panic!("{got} of {sent} bytes"),
            }
        }
        let end = Instant::now() + Duration::from_secs(20);
        while signs(&one).unwrap().waits {
            assert!(Instant::now() < end);
        }
    }
}
