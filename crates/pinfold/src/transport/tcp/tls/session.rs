//! One side of an encrypted channel: bytes of the connection go in and come out, and so do those
//! that are to be kept secret. No I/O.
//!
//! Accounting: of `incoming` the bytes from `start` to `end` have come, and TLS has not looked at
//! them. TLS itself holds less than a record more of incoming bytes, at most one record that is
//! decrypted and not taken, and at most [`OUTGOING_BYTES`] that are encrypted and not sent, but for
//! those of a handshake.

use std::{
    fmt,
    io::{self, BufRead, Write},
    sync::OnceLock,
};

use rustls::{ClientConnection, Connection, ServerConnection, pki_types::ServerName};

pub(super) use rustls::Error as Fault;

use super::{EXPORTED_BYTES, identity::Identity};
use crate::wire::tcp::greeting::Role;

/// Bytes that are taken from the connection at a time.
const INCOMING_BYTES: usize = 64 << 10;
/// Bytes that wait to be sent, encrypted.
const OUTGOING_BYTES: usize = 64 << 10;
/// Plain bytes of one record, at most (RFC 8446, section 5.1).
pub(crate) const RECORD_BYTES: usize = 16 << 10;

/// The label of the value that both ends derive from their handshake to bind it to something else
/// (RFC 9266, section 2).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// One side of a channel.
pub(crate) struct Session {
    /// Thousands of bytes.
    tls: Box<Connection>,
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    /// The error in the bytes that came.
    failed: Option<rustls::Error>,
}

/// The side that begins.
fn calling() -> io::Result<Box<Connection>> {
    // It is not sent, nor looked at.
    let name = ServerName::try_from("pinfold").map_err(io::Error::other)?;
    let made = ClientConnection::new(identity()?.client.clone(), name);
    made.map(|tls| Box::new(tls.into())).map_err(io::Error::other)
}

/// The side that answers.
fn called() -> io::Result<Box<Connection>> {
    let made = ServerConnection::new(identity()?.server.clone());
    made.map(|tls| Box::new(tls.into())).map_err(io::Error::other)
}

impl Session {
    /// A channel that has yet to come about: the side that called begins.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn new(role: Role) -> io::Result<Session> {
        let mut tls = match role {
            Role::Connecting => calling(),
            Role::Accepting => called(),
        }?;
        tls.set_buffer_limit(Some(OUTGOING_BYTES));
        let incoming = vec![0; INCOMING_BYTES].into_boxed_slice();
        Ok(Session { tls, incoming, start: 0, end: 0, failed: None })
    }

    /// Returns whether the handshake is over: from here on bytes can be [put](Session::put).
    pub(crate) fn is_open(&self) -> bool {
        !self.tls.is_handshaking()
    }

    /// Its cipher suite, by the standard's name; once the handshake is over.
    pub(crate) fn suite(&self) -> Option<&'static str> {
        self.tls.negotiated_cipher_suite()?.suite().as_str()
    }

    /// A value that only the two ends of this channel can know, once the handshake is over.
    pub(crate) fn exported(&self) -> Option<[u8; EXPORTED_BYTES]> {
        let made = self.tls.export_keying_material([0; EXPORTED_BYTES], BINDING_LABEL, Some(&[]));
        made.ok().filter(|_| self.is_open())
    }

    /// The place for bytes of the connection; not empty after a [`take`](Session::take) that was
    /// not stopped.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        &mut self.incoming[self.end..]
    }

    /// So many were put there.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.incoming.len());
    }

    /// Decrypts the bytes that have come, and hands them to `each` as long as that takes all that
    /// it is given. Returns how many bytes it took.
    ///
    /// # Errors
    /// Bytes that came were not sent by the other end, or not by an honest one. Bytes that were
    /// handed out before, also by this call, are good.
    pub(crate) fn take(
        &mut self,
        mut each: impl FnMut(&[u8]) -> usize,
    ) -> Result<usize, rustls::Error> {
        let mut took = 0;
        loop {
            let mut reader = self.tls.reader();
            if let Ok(bytes) = reader.fill_buf()
                && !bytes.is_empty()
            {
                let (len, used) = (bytes.len(), each(bytes).min(bytes.len()));
                reader.consume(used);
                took += used;
                if used < len {
                    return Ok(took);
                }
                continue;
            }
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            if self.start == self.end {
                return Ok(took);
            }
            let read = self.tls.read_tls(&mut &self.incoming[self.start..self.end]);
            let read = read.map_err(|error| rustls::Error::General(error.to_string()));
            self.failed = match read {
                Ok(0) => Some(rustls::Error::General("it ended the channel".into())),
                Ok(read) => {
                    self.start += read;
                    self.tls.process_new_packets().err()
                }
                Err(error) => Some(error),
            };
        }
    }

    /// Encrypts bytes that are to be sent. Returns how many of them, fewer if too many wait to be
    /// sent.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        // Its only error is a lack of memory, which does not occur.
        self.tls.writer().write(bytes).unwrap_or(0)
    }

    /// Returns whether there is something to send.
    pub(crate) fn wants_sending(&self) -> bool {
        self.tls.wants_write()
    }

    /// Sends all waiting bytes, as far as `to` takes them.
    ///
    /// # Errors
    /// The error of `to`; `WouldBlock` is none.
    pub(crate) fn send(&mut self, mut to: impl io::Write) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut to) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({:?})", self.suite())
    }
}

/// This process's, drawn at the first call.
fn identity() -> io::Result<&'static Identity> {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    if let Some(identity) = IDENTITY.get() {
        return Ok(identity);
    }
    let drawn = Identity::draw()?;
    Ok(IDENTITY.get_or_init(|| drawn))
}
