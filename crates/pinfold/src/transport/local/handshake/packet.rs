//! One message on the socket, with the descriptors that came along.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use pinfold_sys::{
    socket::seqpacket,
    trial::{self, Limited},
};
use rustix::io::Errno;

use super::Handshake;
use crate::{Error, Result, wire::hello};

/// One packet as received.
pub(super) struct Packet {
    bytes: [u8; hello::MESSAGE_MAX],
    len: usize,
    pub(super) fds: Vec<OwnedFd>,
}

impl Packet {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Handshake {
    /// The next packet, if one has come.
    pub(super) fn receive(&self, fds_max: usize) -> Result<Option<Packet>> {
        let mut bytes = [0; hello::MESSAGE_MAX];
        let mut take = || seqpacket::recv(self.fd(), &mut bytes, fds_max);
        // A peer that closed before it read all we sent resets; messages that it sent before still
        // come.
        let got = match take() {
            Err(error) if is(&error, Errno::CONNRESET) => take(),
            got => got,
        };
        let got = match got {
            Ok(got) => got,
            Err(error) if is(&error, Errno::AGAIN) => return Ok(None),
            Err(error) if is(&error, Errno::CONNRESET) => return Err(self.gone()),
            Err(error) => return Err(Error::os("recvmsg", self.peer(), error)),
        };
        if got.truncated && got.len < bytes.len() && got.fds.len() < fds_max {
            let limit = trial::soft_limit(Limited::OpenFiles);
            return Err(Error::LimitReached {
                what: "the number of descriptors this process may have open",
                limit: limit.unwrap_or(u64::MAX),
                remedy: "raise it (ulimit -n), or close some",
            });
        }
        if got.truncated {
            return Err(self.misbehaved("a greeting is too long or has too many descriptors"));
        }
        if got.len == 0 {
            return Err(self.gone());
        }
        Ok(Some(Packet { bytes, len: got.len, fds: got.fds }))
    }

    pub(super) fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        seqpacket::send(self.fd(), message, fds).map_err(|error| {
            match Errno::from_io_error(&error) {
                Some(Errno::PIPE | Errno::CONNRESET) => self.gone(),
                _ => Error::os("sendmsg", self.peer(), error),
            }
        })
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
