//! A greeting and the connection it goes over. Nothing here waits.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use pinfold_sys::{process::Segment, stream};
use rustix::io::Errno;

use super::greeting::{Agreed, Auth, Failure, Greeting, Nonce, Step};
use crate::{
    Error, Result,
    wire::tcp::{greeting::Refusal, offer::Offer},
};

/// How long a caller has for all of its greeting, ns.
const PATIENCE_NS: u64 = 5_000_000_000;
/// A connection without a word for so long is probed.
const SILENCE: Duration = Duration::from_secs(5);
/// Bytes taken at a time: no packet of a greeting is longer.
const AT_ONCE: usize = 512;

/// A pair that is ready to exchange frames.
pub(crate) struct Met {
    pub socket: OwnedFd,
    pub agreed: Box<Agreed>,
    /// What has come behind the greeting.
    pub rest: Vec<u8>,
    /// Where this side connected to.
    pub address: Option<String>,
    /// Where the peer is.
    pub place: String,
}

/// One side of a greeting under way.
pub(crate) struct Handshake {
    /// Until the pair is there.
    socket: Option<OwnedFd>,
    greeting: Greeting,
    us: Offer,
    /// Accepting: why the caller cannot stay.
    full: Option<Refusal>,
    /// Whether the connection is still coming about.
    is_dialling: bool,
    address: Option<String>,
    place: String,
    patience: Duration,
    agreed: Option<Box<Agreed>>,
    rest: Vec<u8>,
}

impl Handshake {
    /// Begins to connect to `to`, which is what `address` stands for.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub(crate) fn connect(
        address: &str,
        to: SocketAddr,
        auth: Auth,
        us: Offer,
        now_ns: u64,
        patience: Duration,
    ) -> Result<Handshake> {
        let socket = stream::connect(to).map_err(|error| refused("connect", address, error))?;
        let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4);
        let deadline_ns = now_ns.saturating_add(patience_ns);
        let nonce = Nonce::fresh()?;
        let greeting = Greeting::connect(auth, nonce, address, us.clone(), None, deadline_ns);
        Ok(Handshake {
            socket: Some(socket),
            greeting,
            us,
            full: None,
            is_dialling: true,
            address: Some(address.to_owned()),
            place: format!("tcp:{to}"),
            patience,
            agreed: None,
            rest: Vec::new(),
        })
    }

    /// Answers a caller; `full` if it cannot stay.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub(crate) fn accepted(
        socket: OwnedFd,
        from: SocketAddr,
        auth: Auth,
        us: Offer,
        full: Option<Refusal>,
        now_ns: u64,
    ) -> Result<Handshake> {
        let place = format!("tcp:{from}");
        tune(&socket, &place)?;
        let greeting =
            Greeting::accept(auth, Nonce::fresh()?, &place, now_ns.saturating_add(PATIENCE_NS));
        Ok(Handshake {
            socket: Some(socket),
            greeting,
            us,
            full,
            is_dialling: false,
            address: None,
            place,
            patience: Duration::from_nanos(PATIENCE_NS),
            agreed: None,
            rest: Vec::new(),
        })
    }

    /// The connection, to be watched for changes; `None` after a step that ended well.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// When to take the next step at the latest.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.greeting.deadline_ns()
    }

    /// Goes as far as it can now. `None`: not at the end yet.
    ///
    /// # Errors
    /// Why there is no pair. The other side has been told what it may know.
    pub(crate) fn step(&mut self, now_ns: u64) -> Result<Option<Met>> {
        let Some(socket) = self.socket.take() else { return Err(Error::Closed) };
        let done = self.talk(&socket);
        if done.is_err() {
            // Its last word. If that does not go, the other side sees the end.
            let _ = self.send(&socket);
        }
        if done? && let Some(agreed) = self.agreed.take() {
            let rest = std::mem::take(&mut self.rest);
            let (address, place) = (self.address.take(), self.place.clone());
            return Ok(Some(Met { socket, agreed, rest, address, place }));
        }
        if let Some(failure) = self.greeting.expired(now_ns) {
            return Err(self.failed(failure));
        }
        self.socket = Some(socket);
        Ok(None)
    }

    /// Whether all is said.
    fn talk(&mut self, socket: &OwnedFd) -> Result<bool> {
        if self.is_dialling {
            let there = stream::is_connected(socket);
            if !there.map_err(|error| refused("connect", &self.place, error))? {
                return Ok(false);
            }
            tune(socket, &self.place)?;
            self.is_dialling = false;
        }
        loop {
            if !self.send(socket)? {
                return Ok(false);
            }
            if self.agreed.is_some() {
                return Ok(true);
            }
            let mut bytes = [0; AT_ONCE];
            match recv(socket, &mut bytes).map_err(|error| refused("recv", &self.place, error))? {
                stream::Received::Nothing => return Ok(false),
                stream::Received::End => {
                    let failure = self.greeting.closed();
                    return Err(failure.map_or(Error::Closed, |failure| self.failed(failure)));
                }
                stream::Received::Bytes(len) => self.hear(&bytes[..len])?,
            }
        }
    }

    /// Takes what has come.
    fn hear(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.agreed.is_some() {
                self.rest.extend_from_slice(bytes);
                return Ok(());
            }
            let (used, step) = self.greeting.feed(bytes).map_err(|failure| self.failed(failure))?;
            bytes = &bytes[used..];
            match step {
                Step::More => {}
                Step::Agreed(agreed) => self.agreed = Some(agreed),
                Step::Decide(asked) => {
                    let why = if asked.peer.endpoint_id == self.us.endpoint_id {
                        Some(Refusal::Itself)
                    } else if asked.resumes.is_some() {
                        Some(Refusal::UnknownSession { incarnation: self.us.incarnation })
                    } else {
                        self.full
                    };
                    if let Some(why) = why {
                        let failure = self.greeting.decline(why);
                        return Err(self.failed(failure));
                    }
                    let admitted = self.greeting.admit(&self.us, None);
                    admitted.map_err(|failure| self.failed(failure))?;
                }
            }
        }
        Ok(())
    }

    /// Says what there is to say. Whether all of it is said.
    fn send(&mut self, socket: &OwnedFd) -> Result<bool> {
        while !self.greeting.output().is_empty() {
            let sent = send(socket, self.greeting.output());
            match sent.map_err(|error| refused("send", &self.place, error))? {
                0 => return Ok(false),
                sent => self.greeting.sent(sent),
            }
        }
        Ok(true)
    }

    fn failed(&self, failure: Failure) -> Error {
        let peer = self.address.clone().unwrap_or_else(|| self.place.clone());
        match failure {
            Failure::TooLate { .. } => Error::NoAnswer { name: peer, patience: self.patience },
            failure => Error::Greeting { peer, why: failure.to_string() },
        }
    }
}

fn tune(socket: &OwnedFd, place: &str) -> Result<()> {
    stream::tune(socket, SILENCE).map_err(|error| Error::os("setsockopt", place, error))
}

#[allow(unsafe_code)]
fn send(socket: &OwnedFd, bytes: &[u8]) -> std::io::Result<usize> {
    let part = Segment { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() };
    // SAFETY: it is this slice, which is only read.
    unsafe { stream::send(socket, &[part], false) }
}

#[allow(unsafe_code)]
fn recv(socket: &OwnedFd, bytes: &mut [u8]) -> std::io::Result<stream::Received> {
    let part = Segment { ptr: bytes.as_mut_ptr(), len: bytes.len() };
    // SAFETY: it is this slice.
    unsafe { stream::recv(socket, &[part]) }
}

/// Nobody there is what it is on one host.
fn refused(call: &'static str, address: &str, error: std::io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => Error::NameGone { name: address.to_owned() },
        _ => Error::os(call, address, error),
    }
}
