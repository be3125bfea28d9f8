//! Messages over a stream of bytes: the code that pipes and stream sockets share.
//!
//! If latency counts, both ends look again at once, with calls that do not wait: a sleep and a
//! wake-up would cost microseconds. If processor time counts, they wait in the kernel. One call
//! writes a message and one reads it, as far as the kernel's buffer allows.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::{Errno, read, write},
};

use super::{Subject, Waiting};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    sync::Watch,
};

/// Both directions of a stream.
pub(crate) struct Bytes {
    out: OwnedFd,
    into: OwnedFd,
    watch: Watch,
}

impl Bytes {
    /// Writes to `out` and reads from `into`, which may be the same file.
    pub(super) fn new(out: OwnedFd, into: OwnedFd, watch: Watch) -> Result<Bytes> {
        let mut bytes = Bytes { out, into, watch };
        bytes.set_waiting(Waiting::Spin)?;
        Ok(bytes)
    }

    /// Writes what fits now.
    #[inline]
    fn write_some(&self, bytes: &[u8]) -> Result<usize> {
        match write(&self.out, bytes) {
            Ok(done) => Ok(done),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(why) => Err(Fail::os("write")(why)),
        }
    }

    /// Reads the bytes that are there now.
    #[inline]
    fn read_some(&self, into: &mut [u8]) -> Result<usize> {
        match read(&self.into, into) {
            Ok(0) => Err(Fail::Gone),
            Ok(done) => Ok(done),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(why) => Err(Fail::os("read")(why)),
        }
    }
}

impl Subject for Bytes {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut patience = self.watch.patience();
        let mut done = 0;
        while done < message.len() {
            match self.write_some(&message[done..])? {
                0 => patience.again()?,
                some => done += some,
            }
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, into: &mut [u8]) -> Result<()> {
        let mut patience = self.watch.patience();
        let mut done = 0;
        while done < into.len() {
            match self.read_some(&mut into[done..])? {
                0 => patience.again()?,
                some => done += some,
            }
        }
        Ok(())
    }

    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()> {
        let size = out.size();
        let mut patience = self.watch.patience();
        let (mut sent, mut received) = ((0, 0), (0, 0));
        while sent.0 < count || received.0 < count {
            let mut moved = 0;
            if sent.0 < count {
                let some = self.write_some(&out.get(sent.0)[sent.1..])?;
                moved += some;
                sent = advance(sent, some, size);
            }
            if received.0 < count {
                let some = self.read_some(&mut into.get_mut(received.0)[received.1..])?;
                moved += some;
                received = advance(received, some, size);
            }
            if moved == 0 {
                patience.again()?;
            }
        }
        Ok(())
    }

    fn set_waiting(&mut self, waiting: Waiting) -> Result<()> {
        for fd in [self.out.as_fd(), self.into.as_fd()] {
            let mut flags = fcntl_getfl(fd).map_err(Fail::os("fcntl"))?;
            flags.set(OFlags::NONBLOCK, waiting == Waiting::Spin);
            fcntl_setfl(fd, flags).map_err(Fail::os("fcntl"))?;
        }
        Ok(())
    }
}

/// Moves on by `some` bytes from (message, offset).
fn advance((message, offset): (usize, usize), some: usize, size: usize) -> (usize, usize) {
    if offset + some == size { (message + 1, 0) } else { (message, offset + some) }
}
