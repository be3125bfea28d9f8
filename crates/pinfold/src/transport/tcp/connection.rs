#![allow(unsafe_code)]
//! A connection with a peer on another host, in the clear or encrypted. It never waits.
//!
//! In the clear it is the socket: one comparison more than a system call. Encrypted, outgoing bytes
//! are copied out of their memory record by record, once, and encrypted there; incoming ones are
//! decrypted and copied to their place. To its user both look the same: when
//! [`recv`](Connection::recv) fills less than it could, the socket has no more, and reports the
//! bytes that come then.
//!
//! **Invariant.** Memory of others is touched only within a call that it was given to, and by
//! copies alone: no reference to it is made.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use pinfold_sys::{
    process::Segment as Part,
    socket::stream::{self, PARTS_MAX, Received},
};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{
    congestion::Congestion,
    tls::{RECORD_BYTES, Session},
};

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    carrier: Carrier,
    congestion: Option<Congestion>,
}

/// The carrier of the bytes.
#[derive(Debug)]
enum Carrier {
    Plain(OwnedFd),
    Encrypted(Box<Channel>),
}

/// A connection that is encrypted.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: OwnedFd,
    session: Session,
    /// The bytes of the next record.
    record: Box<[u8]>,
    /// The error found behind the last good bytes: an `errno`.
    failed: Option<i32>,
}

impl From<OwnedFd> for Connection {
    fn from(socket: OwnedFd) -> Connection {
        Connection { carrier: Carrier::Plain(socket), congestion: None }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.carrier.as_fd()
    }
}

impl AsFd for Carrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Carrier::Plain(socket) => socket.as_fd(),
            Carrier::Encrypted(channel) => channel.socket.as_fd(),
        }
    }
}

impl Connection {
    /// An encrypted connection.
    pub(crate) fn encrypted(socket: OwnedFd, session: Session) -> Connection {
        let record = vec![0; RECORD_BYTES].into_boxed_slice();
        let channel = Box::new(Channel { socket, session, record, failed: None });
        Connection { carrier: Carrier::Encrypted(channel), congestion: None }
    }

    /// The same, whose way to control congestion may change.
    pub(crate) fn under(self, congestion: Option<Congestion>) -> Connection {
        Connection { congestion, ..self }
    }

    /// So many bytes were sent, whether by [`Connection::send`] or not. A system call now and then.
    #[inline]
    pub(crate) fn has_sent(&mut self, bytes: usize) {
        if let Some(congestion) = &mut self.congestion
            && congestion.sent(bytes)
            && !congestion.look(self.carrier.as_fd())
        {
            self.congestion = None;
        }
    }

    /// Its encryption: a suite of TLS 1.3.
    pub(crate) fn suite(&self) -> Option<&'static str> {
        match &self.carrier {
            Carrier::Plain(_) => None,
            Carrier::Encrypted(channel) => Some(channel.session.suite().unwrap_or("TLS 1.3")),
        }
    }

    /// As [`stream::send`]. Bytes of an encrypted one may wait in this process after that; see
    /// [`Connection::flush`].
    ///
    /// # Safety
    /// Each part can be read.
    #[inline]
    pub(crate) unsafe fn send(&mut self, parts: &[Part], more: bool) -> io::Result<usize> {
        match &mut self.carrier {
            // SAFETY: by contract.
            Carrier::Plain(socket) => unsafe { stream::send(&*socket, parts, more) },
            // SAFETY: by contract.
            Carrier::Encrypted(channel) => unsafe { channel.send(parts, more) },
        }
    }

    /// As [`stream::recv`].
    ///
    /// # Safety
    /// Each part can be written.
    #[inline]
    pub(crate) unsafe fn recv(&mut self, parts: &[Part]) -> io::Result<Received> {
        match &mut self.carrier {
            // SAFETY: by contract.
            Carrier::Plain(socket) => unsafe { stream::recv(&*socket, parts) },
            // SAFETY: by contract.
            Carrier::Encrypted(channel) => unsafe { channel.recv(parts) },
        }
    }

    /// Sends the bytes that wait in this process, as far as there is room.
    ///
    /// # Errors
    /// As for [`stream::send`].
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match &mut self.carrier {
            Carrier::Plain(_) => Ok(()),
            Carrier::Encrypted(channel) => channel.flush(false),
        }
    }

    /// Returns whether no bytes wait in this process.
    pub(crate) fn is_flushed(&self) -> bool {
        match &self.carrier {
            Carrier::Plain(_) => true,
            Carrier::Encrypted(channel) => !channel.session.wants_sending(),
        }
    }
}

impl Channel {
    fn flush(&mut self, more: bool) -> io::Result<()> {
        self.session.send(Outgoing::new(&self.socket, more))
    }

    /// # Safety
    /// As [`Connection::send`].
    unsafe fn send(&mut self, parts: &[Part], more: bool) -> io::Result<usize> {
        if let Some(errno) = self.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut left = Places::new(parts);
        let mut sent = 0;
        while !left.is_empty() {
            let mut record = Places::new(&[whole(&mut self.record)]);
            let mut next = left.clone();
            // SAFETY: the parts by contract, and this side's own bytes, which no other thread has.
            let len = unsafe { record.fill_from(&mut next) };
            let was_empty = !self.session.wants_sending();
            let took = self.session.put(&self.record[..len]);
            left.skip(took);
            sent += took;
            // Short of room, or there is enough for a call.
            if took < len {
                self.flush(true)?;
                if self.session.wants_sending() {
                    break;
                }
                if took == 0 && was_empty {
                    // There was room, and it takes nothing: the channel is at its end.
                    self.failed = Some(Errno::BADMSG.raw_os_error());
                    return Err(Errno::BADMSG.into());
                }
            }
        }
        self.flush(more)?;
        Ok(sent)
    }

    /// # Safety
    /// As [`Connection::recv`].
    unsafe fn recv(&mut self, parts: &[Part]) -> io::Result<Received> {
        if let Some(errno) = self.failed {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let mut room = Places::new(parts);
        let (mut got, mut drained) = (0, false);
        let ended = loop {
            let taken = self.session.take(|bytes| {
                let from = Part { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() };
                // SAFETY: the parts by contract; the bytes are only read.
                let put = unsafe { room.fill_from(&mut Places::new(&[from])) };
                got += put;
                put
            });
            if let Err(error) = taken {
                tracing::warn!(%error, "an encrypted connection brought what its peer has not sent");
                // It may tell the peer why.
                let _ = self.flush(false);
                self.failed = Some(Errno::BADMSG.raw_os_error());
                break Received::Nothing;
            }
            if room.is_empty() || drained {
                break Received::Nothing;
            }
            let into = whole(self.session.room());
            // SAFETY: it is this slice.
            match unsafe { stream::recv(&self.socket, &[into]) } {
                Ok(Received::Bytes(bytes)) => {
                    drained = bytes < into.len;
                    self.session.came(bytes);
                }
                Ok(ended) => break ended,
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                    self.failed = Some(errno);
                    break Received::Nothing;
                }
            }
        };
        match (got, self.failed) {
            (0, Some(errno)) => Err(io::Error::from_raw_os_error(errno)),
            (0, None) => Ok(ended),
            (got, _) => Ok(Received::Bytes(got)),
        }
    }
}

fn whole(bytes: &mut [u8]) -> Part {
    Part { ptr: bytes.as_mut_ptr(), len: bytes.len() }
}

/// Memory in parts, from some place in it on.
#[derive(Clone)]
struct Places {
    parts: SmallVec<[Part; 4]>,
    /// The first that is not used up, and how much of it is.
    at: usize,
    done: usize,
}

impl Places {
    fn new(parts: &[Part]) -> Places {
        let mut places = Places { parts: parts.iter().copied().collect(), at: 0, done: 0 };
        places.skip(0);
        places
    }

    fn is_empty(&self) -> bool {
        self.at == self.parts.len()
    }

    fn skip(&mut self, bytes: usize) {
        self.done += bytes;
        while let Some(part) = self.parts.get(self.at)
            && self.done >= part.len
        {
            self.done -= part.len;
            self.at += 1;
        }
    }

    /// Copies as much as is left of either.
    ///
    /// # Safety
    /// These can be written and those read, and they do not overlap.
    unsafe fn fill_from(&mut self, from: &mut Places) -> usize {
        let mut copied = 0;
        while let (Some(to), Some(of)) = (self.parts.get(self.at), from.parts.get(from.at)) {
            let len = (to.len - self.done).min(of.len - from.done);
            // SAFETY: by contract; `skip` keeps `done` below the length.
            unsafe {
                let (of, to) = (of.ptr.add(from.done), to.ptr.add(self.done));
                std::ptr::copy_nonoverlapping(of, to, len);
            }
            self.skip(len);
            from.skip(len);
            copied += len;
        }
        copied
    }
}

/// The destination of encrypted bytes.
pub(super) struct Outgoing<'a> {
    socket: &'a OwnedFd,
    more: bool,
}

impl<'a> Outgoing<'a> {
    /// `more` follows at once.
    pub(super) fn new(socket: &'a OwnedFd, more: bool) -> Outgoing<'a> {
        Outgoing { socket, more }
    }
}

impl io::Write for Outgoing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let part =
            |bytes: &io::IoSlice<'_>| Part { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() };
        let parts: SmallVec<[Part; 8]> = slices.iter().take(PARTS_MAX).map(part).collect();
        // SAFETY: they are these slices, which are only read.
        match unsafe { stream::send(self.socket, &parts, self.more) }? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
