#![allow(unsafe_code)]
//! The sends of a connection from where the bytes lie, without a ring: by calls that hold the pages
//! for one send.
//!
//! **Invariant.** None of its own: `Transmitter` has it.

use std::os::fd::BorrowedFd;

use pinfold_sys::{
    process::Segment as Part,
    socket::stream::zerocopy::{Flight, ZeroCopy},
};
use rustix::io::Errno;

use super::driver::{self, PER_SEND_MAX};

/// The connection's ability to send so.
#[derive(Debug, Default)]
enum Facility {
    #[default]
    Unasked,
    There(ZeroCopy),
    Not,
}

/// The calls of one connection. Another one begins with none.
#[derive(Debug, Default)]
pub(super) struct Calls(Facility);

/// Bytes that the kernel may look at.
#[derive(Debug)]
#[must_use = "only with this it is known when it is over"]
pub(super) struct Called {
    flight: Flight,
    bytes: u64,
}

impl Calls {
    /// Sends as much as there is room for of these parts of one message: returns how many bytes, 0
    /// if there is no room.
    ///
    /// # Errors
    /// `ENOBUFS`: so many are out that there is no place for another. `ENOMEM`: there is none even
    /// if nothing is. `EOPNOTSUPP`: the connection cannot.
    ///
    /// # Safety
    /// The parts can be read, and are not written until the bytes in flight [have
    /// landed](Calls::land) or the message is not wanted any more.
    pub(super) unsafe fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        parts: &[Part],
    ) -> Result<(usize, Option<Called>), Errno> {
        if matches!(self.0, Facility::Unasked) {
            let made = ZeroCopy::new(socket);
            let made = made.inspect_err(|error| tracing::debug!(%error, "calls copy"));
            self.0 = made.map_or(Facility::Not, Facility::There);
        }
        let Facility::There(calls) = &mut self.0 else { return Err(Errno::OPNOTSUPP) };
        // SAFETY: by contract.
        match unsafe { calls.send(socket, &driver::first(parts, PER_SEND_MAX)) } {
            Ok(None) => Ok((0, None)),
            Ok(Some((sent, flight))) => Ok((sent, Some(Called { flight, bytes: sent as u64 }))),
            Err(Errno::NOBUFS) if calls.in_flight() == 0 => Err(Errno::NOMEM),
            Err(errno) => Err(errno),
        }
    }

    /// Takes note of the kernel's completions.
    pub(super) fn collect(&mut self, socket: BorrowedFd<'_>) {
        if let Facility::There(calls) = &mut self.0 {
            calls.collect(socket);
        }
    }

    /// Checks that the kernel is done with some bytes: returns how many they are, and whether it
    /// has copied them.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn land(&mut self, called: Called) -> Result<(u64, bool), Called> {
        let Called { flight, bytes } = called;
        let Facility::There(calls) = &mut self.0 else { return Err(Called { flight, bytes }) };
        match calls.land(flight) {
            Ok(copied) => Ok((bytes, copied)),
            Err(flight) => Err(Called { flight, bytes }),
        }
    }
}
