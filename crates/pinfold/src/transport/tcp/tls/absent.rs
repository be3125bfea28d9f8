//! A library without the feature `tls` has no encrypted channels.

use std::{convert::Infallible, fmt, io};

use super::EXPORTED_BYTES;
use crate::wire::tcp::greeting::Role;

/// Plain bytes of one record, at most (RFC 8446, section 5.1).
pub(crate) const RECORD_BYTES: usize = 16 << 10;

/// The fault of bytes that came: there are none.
#[derive(Debug)]
pub(crate) struct Fault(Infallible);

/// One side of a channel: there is none.
#[derive(Debug)]
pub(crate) struct Session(Infallible);

impl Session {
    /// # Errors
    /// Always: [`Config::check`](crate::endpoint::config::Config::check) comes before.
    pub(crate) fn new(_: Role) -> io::Result<Session> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn suite(&self) -> Option<&'static str> {
        match self.0 {}
    }

    pub(crate) fn exported(&self) -> Option<[u8; EXPORTED_BYTES]> {
        match self.0 {}
    }

    pub(crate) fn room(&mut self) -> &mut [u8] {
        match self.0 {}
    }

    pub(crate) fn came(&mut self, _: usize) {
        match self.0 {}
    }

    pub(crate) fn take(&mut self, _: impl FnMut(&[u8]) -> usize) -> Result<usize, Fault> {
        match self.0 {}
    }

    pub(crate) fn put(&mut self, _: &[u8]) -> usize {
        match self.0 {}
    }

    pub(crate) fn wants_sending(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn send(&mut self, _: impl io::Write) -> io::Result<()> {
        match self.0 {}
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}
