//! A connection by an io_uring, one call at a time: another way to send, to be measured beside.
#![allow(unsafe_code)]
// Invariant: no call returns while the kernel may still use the memory it was given; a ring that
// holds a request that was not begun is never entered again.

use std::{
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use io_uring::{IoUring, opcode, squeue, types::Fd};
use rustix::io::Errno;

use pinfold_sys::cpu::clock;

/// A connected stream socket and a ring of its own.
///
/// For the thread that made it: the kernel then keeps completions until that thread asks
/// (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1; without it where the kernel cannot).
pub(crate) struct RingStream {
    socket: OwnedFd,
    ring: IoUring,
    is_broken: bool,
    one_thread: PhantomData<*const ()>,
}

impl RingStream {
    /// Over `socket`, whose calls may wait. Some 30 µs.
    ///
    /// # Errors
    /// The error of `io_uring_setup(2)`: `ENOSYS`, `EPERM` where that is denied, `ENOMEM`.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<RingStream> {
        let mut lazy = IoUring::builder();
        lazy.setup_single_issuer().setup_defer_taskrun();
        let ring = match lazy.build(2) {
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                IoUring::new(2)?
            }
            made => made?,
        };
        Ok(RingStream { socket, ring, is_broken: false, one_thread: PhantomData })
    }

    /// Sends all of `bytes`; waits until the socket has them.
    ///
    /// # Errors
    /// The error of `send(2)`, without a signal.
    pub(crate) fn send_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let fd = Fd(self.socket.as_raw_fd());
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            let send = opcode::Send::new(fd, bytes.as_ptr(), len).flags(flags);
            // SAFETY: `bytes` is borrowed until the call has ended, and only read.
            let sent = unsafe { self.one(&send.build()) }?;
            bytes = &bytes[sent.min(bytes.len())..];
        }
        Ok(())
    }

    /// Fills all of `into`; `false` if the peer's end comes before that.
    ///
    /// # Errors
    /// The error of `recv(2)`.
    pub(crate) fn recv_all(&mut self, into: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < into.len() {
            let rest = &mut into[filled..];
            let len = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            let fd = Fd(self.socket.as_raw_fd());
            let recv = opcode::Recv::new(fd, rest.as_mut_ptr(), len).flags(libc::MSG_WAITALL);
            // SAFETY: `rest` is borrowed until the call has ended.
            match unsafe { self.one(&recv.build()) }? {
                0 => return Ok(false),
                some => filled += some,
            }
        }
        Ok(true)
    }

    /// Has the kernel do one thing, and waits until it is done.
    ///
    /// # Safety
    /// The memory that `entry` names is the caller's until this returns.
    unsafe fn one(&mut self, entry: &squeue::Entry) -> io::Result<usize> {
        if self.is_broken {
            return Err(Errno::BADF.into());
        }
        // SAFETY: as the caller promises, and nothing else is in the ring: there is room.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::from(Errno::BUSY))?;
        loop {
            let entered = self.ring.submit_and_wait(1);
            if let Some(done) = self.ring.completion().next() {
                let result = done.result();
                return usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
            }
            match entered {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                Err(error) if !self.ring.submission().is_empty() => {
                    // The kernel has not seen it, and shall not.
                    self.is_broken = true;
                    return Err(error);
                }
                // It is under way: there is no way back before it has ended.
                Err(_) => clock::pause(Duration::from_millis(1)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        thread,
    };

    use super::*;

    fn pair() -> Option<(RingStream, RingStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (two, _) = listener.accept().unwrap();
        let one = match RingStream::new(one.into()) {
            Ok(one) => one,
            Err(why) => {
                eprintln!("SKIPPED: there is no io_uring: {why}");
                return None;
            }
        };
        Some((one, RingStream::new(two.into()).unwrap()))
    }

    #[test]
    fn all_bytes_arrive_and_an_end_is_seen() {
        let Some((mut one, two)) = pair() else { return };
        // A ring is one thread's: the other end is a plain socket there.
        let other = two.socket.try_clone().unwrap();
        drop(two);
        let message: Vec<u8> = (0..3_000_000u32).map(|at| (at >> 3) as u8).collect();
        let expected = message.clone();
        let reader = thread::spawn(move || {
            let mut two = RingStream::new(other).unwrap();
            let mut into = vec![0; expected.len()];
            assert!(two.recv_all(&mut into).unwrap());
            assert_eq!(into, expected);
            assert!(!two.recv_all(&mut [0; 8]).unwrap());
        });
        one.send_all(&message).unwrap();
        drop(one);
        reader.join().unwrap();
    }

    #[test]
    fn what_the_socket_says_is_an_error() {
        let Some((mut one, two)) = pair() else { return };
        drop(two);
        let bytes = vec![1; 1 << 20];
        let errors = (0..64).find_map(|_| one.send_all(&bytes).err());
        let kind = errors.map(|error| error.kind());
        let ends = [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset];
        assert!(kind.is_some_and(|kind| ends.contains(&kind)), "{kind:?}");
    }
}
