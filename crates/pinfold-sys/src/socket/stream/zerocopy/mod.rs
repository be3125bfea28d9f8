//! Sending over a connection by calls that do not copy: `MSG_ZEROCOPY`, for where there is no
//! io_uring. See the kernel's `Documentation/networking/msg_zerocopy.rst`.
//!
//! The kernel reads bytes that the network has not got yet where they lie, also to send them once
//! more. Once it does not, there is a notice in the socket's error queue, of which `epoll(7)` tells
//! by `EPOLLERR`: nothing is wrong with the connection then.
#![allow(unsafe_code)]
// Invariant: the kernel is given lists of memory and room for its answers as long as it is told;
// the callers of `send` vouch for the memory itself.

mod numbers;
#[cfg(test)]
mod tests;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
};

use rustix::io::Errno;

use self::numbers::{Notice, Numbers};
use super::{message, restarted};
use crate::{
    failed::{Failed, may_be_denied},
    process::Segment,
};

/// Constants of `linux/socket.h` and `linux/errqueue.h`; the `libc` crate has them not for all
/// architectures.
const SO_ZEROCOPY: libc::c_int = 60;
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Room for the data of a notice: it and an address, each behind a head.
const CONTROL_WORDS: usize = 16;

/// The bytes that one call has sent, which the kernel may still read. Dropped, nobody learns when
/// that is over.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the memory has to stay as it is until this has landed"]
pub struct Flight {
    owner: u32,
    number: u64,
}

/// The calls of one connection.
#[derive(Debug)]
pub struct ZeroCopy {
    numbers: Numbers,
    owner: u32,
}

impl ZeroCopy {
    /// For this connection, and no other: nobody else sends there by such calls, or reads its error
    /// queue.
    ///
    /// # Errors
    /// The error of `setsockopt(2)`: `EOPNOTSUPP`, `ENOPROTOOPT` before Linux 4.14. The error of a
    /// filter for `recvmsg`, without which nobody would learn that a flight is over.
    pub fn new(socket: impl AsFd) -> Result<ZeroCopy, Failed> {
        let on: libc::c_int = 1;
        let len = size_of_val(&on) as libc::socklen_t;
        may_collect(&socket)?;
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: the option is an `int`, which is read.
        let set = unsafe {
            libc::setsockopt(socket, libc::SOL_SOCKET, SO_ZEROCOPY, (&raw const on).cast(), len)
        };
        match set {
            0 => Ok(ZeroCopy { numbers: Numbers::default(), owner: crate::mem::pin::next_owner() }),
            _ => Err(Failed::of("setsockopt")(io::Error::last_os_error())),
        }
    }

    /// Sends as far as there is room: returns how many bytes, and the flight of those that the
    /// kernel may still read. `None`: there is no room. At most [`PARTS_MAX`](super::PARTS_MAX)
    /// parts, with some byte in them.
    ///
    /// All bytes that are asked for count against `RLIMIT_MEMLOCK` until the flight lands, be they
    /// sent or not.
    ///
    /// # Errors
    /// `ENOBUFS`: that limit, or `net.core.optmem_max`, which bounds the notices that are out.
    /// Nothing is sent. `EPIPE`, `ECONNRESET`, `ETIMEDOUT`: the connection is broken.
    ///
    /// # Safety
    /// Each part can be read, and is not written until the flight has landed, or nothing that the
    /// kernel reads there matters to anybody.
    pub unsafe fn send(
        &mut self,
        socket: impl AsFd,
        parts: &[Segment],
    ) -> Result<Option<(usize, Flight)>, Errno> {
        let socket = socket.as_fd().as_raw_fd();
        let flags = libc::MSG_ZEROCOPY | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let message = message(parts);
        // SAFETY: the list is as long as it says, and its parts can be read, by contract.
        let sent = restarted(|| unsafe { libc::sendmsg(socket, &raw const message, flags) });
        match sent {
            // Only a call that sends something is counted.
            Ok(0) | Err(Errno::AGAIN) => Ok(None),
            Ok(bytes) => {
                let (owner, number) = (self.owner, self.numbers.take());
                Ok(Some((bytes, Flight { owner, number })))
            }
            Err(errno) => Err(errno),
        }
    }

    /// Takes note of all notices, a range of calls at a time. No system call if nothing is out;
    /// else one more than there are notices. The kernel merges notices that follow one another.
    pub fn collect(&mut self, socket: impl AsFd) {
        let socket = socket.as_fd().as_raw_fd();
        while self.numbers.out() > 0 {
            match next(socket) {
                Ok(Some(notice)) => self.numbers.noticed(notice),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Flights that have not landed, as far as was [collected](ZeroCopy::collect).
    pub fn in_flight(&self) -> usize {
        self.numbers.out()
    }

    /// Flights that would [land](ZeroCopy::land), as far as was collected.
    pub fn over(&self) -> usize {
        self.numbers.over()
    }

    /// Ends a flight whose bytes the kernel no longer reads, as far as was
    /// [collected](ZeroCopy::collect): returns whether it has copied any of them.
    ///
    /// # Errors
    /// The flight: it may still read, or it is another connection's.
    pub fn land(&mut self, flight: Flight) -> Result<bool, Flight> {
        if flight.owner != self.owner {
            return Err(flight);
        }
        self.numbers.land(flight.number).ok_or(flight)
    }
}

/// Checks that no filter keeps notices from being read.
///
/// # Errors
/// The error of a filter for `recvmsg`.
pub fn may_collect(socket: impl AsFd) -> Result<(), Failed> {
    match next(socket.as_fd().as_raw_fd()) {
        Err(errno) if may_be_denied(errno) => Err(Failed { call: "recvmsg", errno }),
        _ => Ok(()),
    }
}

/// Takes the first notice in a socket's error queue; `None` if it is something else.
fn next(socket: RawFd) -> Result<Option<Notice>, Errno> {
    let mut control = [0u64; CONTROL_WORDS];
    let mut message = message(&[]);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: there is room for no bytes, and for as much behind them as is said.
    restarted(|| unsafe { libc::recvmsg(socket, &raw mut message, flags) })?;
    // SAFETY: the kernel has written heads that lie within the room, and made the length theirs.
    let mut head = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !head.is_null() {
        // SAFETY: it is one of those heads, in memory of this function, aligned as a word.
        let (level, kind, len) =
            unsafe { ((*head).cmsg_level, (*head).cmsg_type, (*head).cmsg_len) };
        let of_errors = (level, kind) == (libc::SOL_IP, libc::IP_RECVERR)
            || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR);
        // SAFETY: a calculation.
        let full = unsafe { libc::CMSG_LEN(size_of::<libc::sock_extended_err>() as u32) } as usize;
        if of_errors && len >= full {
            // SAFETY: so many bytes are behind the head; it is read as it lies.
            let error =
                unsafe { libc::CMSG_DATA(head).cast::<libc::sock_extended_err>().read_unaligned() };
            if error.ee_origin == ORIGIN_ZEROCOPY && error.ee_errno == 0 {
                let copied = error.ee_code & CODE_COPIED != 0;
                return Ok(Some(Notice { first: error.ee_info, last: error.ee_data, copied }));
            }
        }
        // SAFETY: as above.
        head = unsafe { libc::CMSG_NXTHDR(&raw const message, head) };
    }
    Ok(None)
}
