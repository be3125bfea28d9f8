//! A greeting and the connection it goes over. Nothing here waits.

mod secure;

use std::{
    net::SocketAddr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use pinfold_sys::{process::Segment, socket::stream};
use rustix::io::Errno;

use super::{
    congestion::HostsWay,
    connection::{Connection, Outgoing},
    dial::{Connected, Terms, how_failed},
    greeting::{self, Agreed, Auth, Failure, Greeting, Nonce, Ticket},
    happy_eyeballs::Failed,
    tls::Securing,
};
use crate::{
    Error, Refusal, Result,
    transport::local::Address,
    wire::tcp::{
        greeting::{self as wire, Role},
        offer::Offer,
    },
};

/// The time that a caller has for all of its greeting, ns.
const PATIENCE_NS: u64 = 5_000_000_000;
/// A connection without a word for so long is probed, at most and at least.
const SILENCE_MAX: Duration = Duration::from_secs(5);
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// Bytes taken at a time: no packet of a greeting is longer.
const AT_ONCE: usize = 512;
/// The word for the missing packets of a silent side while a connection is being encrypted.
const ENCRYPTING: &str = "its part of the encryption";

/// The outcome of a step.
pub(crate) enum Step {
    More,
    /// Connecting: the peer is on this host, so try that before the next step. The greeting waits:
    /// the last word, with which the pair would stay on the connection, is not said.
    Here(Here),
    Met(Box<Met>),
}

/// The place of a peer on this host.
pub(crate) struct Here {
    pub at: Address,
    /// The endpoint that has to be there.
    pub endpoint_id: [u8; 16],
}

/// A pair that is ready to exchange frames.
pub(crate) struct Met {
    pub socket: Connection,
    pub agreed: Box<Agreed>,
    /// The reason why neither can reach the other's memory.
    pub apart: Refusal,
    /// The bytes that have come behind the greeting.
    pub rest: Vec<u8>,
    /// The address that this side called.
    pub home: Option<Home>,
    /// The peer's address.
    pub place: String,
}

/// The address at which a peer was called.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    /// As it was given.
    pub address: String,
    /// The socket address that was called.
    pub to: SocketAddr,
    /// All that the address stood for.
    pub places: Vec<SocketAddr>,
}

/// The time for which a connection may be silent until it is probed, if a peer that is away is
/// waited for so long.
pub(crate) fn silence(reconnect_timeout: Duration) -> Duration {
    if reconnect_timeout.is_zero() {
        SILENCE_MAX
    } else {
        (reconnect_timeout / 2).clamp(SILENCE_MIN, SILENCE_MAX)
    }
}

/// One side of a greeting under way.
pub(crate) struct Handshake {
    /// Until the pair is there.
    socket: Option<OwnedFd>,
    way: HostsWay,
    greeting: Greeting,
    us: Offer,
    /// Accepting: why the caller cannot stay.
    full: Option<wire::Refusal>,
    /// True if the peer has said anything.
    has_heard: bool,
    home: Option<Home>,
    place: String,
    patience: Duration,
    /// The session that the peer was let in to go on with, until the endpoint asks for it.
    readmitted: Option<[u8; 16]>,
    /// The reason why the peer has refused to go on.
    refused: Option<wire::Refusal>,
    agreed: Option<Box<Agreed>>,
    rest: Vec<u8>,
    /// The connection is being encrypted.
    securing: Option<Box<Securing>>,
    /// True if the way by the local socket is being tried.
    waits: bool,
    /// The result of that.
    out_of_reach: Option<Refusal>,
}

impl Handshake {
    /// Begins to greet a peer that was called.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub(crate) fn connected(name: &str, there: Connected, terms: &Terms) -> Result<Handshake> {
        let Connected { socket, mut way, to, auth, places, deadline_ns, patience } = there;
        let (address, place) = (name.to_owned(), format!("tcp:{to}"));
        tune(&socket, &mut way, terms.silence, &place);
        let (us, ticket) = (terms.us.clone(), terms.ticket.clone());
        let nonce = Nonce::fresh()?;
        let greeting = Greeting::connect(auth, nonce, name, us.clone(), ticket, deadline_ns);
        Ok(Handshake {
            socket: Some(socket),
            way,
            greeting,
            us,
            full: None,
            has_heard: false,
            home: Some(Home { address, to, places }),
            place,
            patience,
            readmitted: None,
            refused: None,
            agreed: None,
            rest: Vec::new(),
            securing: None,
            waits: false,
            out_of_reach: None,
        })
    }

    /// Answers a caller.
    ///
    /// # Errors
    /// [`Error::Os`].
    pub(crate) fn accepted(
        (socket, mut way): (OwnedFd, HostsWay),
        from: SocketAddr,
        auth: Auth,
        us: Offer,
        now_ns: u64,
        silence: Duration,
    ) -> Result<Handshake> {
        let place = format!("tcp:{from}");
        tune(&socket, &mut way, silence, &place);
        let greeting =
            Greeting::accept(auth, Nonce::fresh()?, &place, now_ns.saturating_add(PATIENCE_NS));
        Ok(Handshake {
            socket: Some(socket),
            way,
            greeting,
            us,
            full: None,
            has_heard: false,
            home: None,
            place,
            patience: Duration::from_nanos(PATIENCE_NS),
            readmitted: None,
            refused: None,
            agreed: None,
            rest: Vec::new(),
            securing: None,
            waits: false,
            out_of_reach: None,
        })
    }

    /// The connection, to be watched for changes; `None` after a step that ended well.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// The latest time of the next step.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.greeting.deadline_ns()
    }

    /// Accepting: the endpoint that has proved its key and was let in, and may still say that it
    /// will not come, as one that has found the local socket does.
    pub(crate) fn admitted(&self) -> Option<[u8; 16]> {
        self.greeting.admitted()
    }

    /// Accepting: the reason why no other peer can stay now, if none can.
    pub(crate) fn is_full(&mut self, full: Option<wire::Refusal>) {
        self.full = full;
    }

    /// The address that this side connected to.
    pub(crate) fn address(&self) -> Option<&str> {
        self.home.as_ref().map(|home| home.address.as_str())
    }

    /// The socket address that it stood for, and how a greeting that fails with `error` has failed
    /// there.
    pub(crate) fn how_failed(&self, error: &Error) -> Option<(SocketAddr, Failed)> {
        let to = self.home.as_ref()?.to;
        let passes = match error {
            // Another process listens in its place (a proxy), or the peer has just ended.
            Error::Greeting { .. } | Error::Closed => {
                !self.has_heard || self.refused == Some(wire::Refusal::Closing)
            }
            Error::NameGone { .. } => true,
            Error::Os { source, .. } => {
                let errno = Errno::from_io_error(source);
                !self.has_heard && errno.map(how_failed) == Some(Failed::Passing)
            }
            _ => false,
        };
        Some((to, if passes { Failed::Passing } else { Failed::ForGood }))
    }

    /// After [`Step::Here`]: it did not come to that, so the pair stays on the connection.
    pub(crate) fn stay(&mut self, why: Refusal) {
        self.waits = false;
        self.out_of_reach = Some(why);
    }

    /// The session that a peer was just let in to go on with. From here on only this greeting's
    /// connection may bring frames for it: the peer was told how many had come.
    pub(crate) fn take_readmitted(&mut self) -> Option<[u8; 16]> {
        self.readmitted.take()
    }

    /// The reason why the peer has refused to go on, if it has.
    pub(crate) fn refused(&self) -> Option<wire::Refusal> {
        self.refused
    }

    /// Goes as far as it can now. `sessions` knows those that peers may go on with.
    ///
    /// # Errors
    /// The reason why there is no pair. The other side has been told as much as it may know.
    pub(crate) fn step(
        &mut self,
        now_ns: u64,
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<Step> {
        if self.waits {
            return Ok(Step::More);
        }
        let Some(socket) = self.socket.take() else { return Err(Error::Closed) };
        let done = self.talk(&socket, sessions);
        self.talked(socket, done, now_ns)
    }

    /// The step that follows from the packets sent and received.
    fn talked(&mut self, socket: OwnedFd, done: Result<bool>, now_ns: u64) -> Result<Step> {
        if done.is_err() {
            // Its last word. If that does not go, the other side sees the end.
            let _ = self.send(&socket);
            if let Some(securing) = &mut self.securing {
                let _ = securing.session().send(Outgoing::new(&socket, false));
            }
        }
        if done? && let Some(agreed) = self.agreed.take() {
            return Ok(Step::Met(Box::new(self.met(socket, agreed))));
        }
        if let Some(here) = self.here() {
            self.waits = true;
            self.socket = Some(socket);
            return Ok(Step::Here(here));
        }
        if let Some(failure) = self.greeting.expired(now_ns) {
            return Err(self.failed(failure));
        }
        if self.securing.is_some() && now_ns >= self.greeting.deadline_ns() {
            let (peer, missing) = (self.peer(), ENCRYPTING);
            return Err(self.failed(Failure::TooLate { peer, missing }));
        }
        self.socket = Some(socket);
        Ok(Step::More)
    }

    /// Both have said all.
    fn met(&mut self, socket: OwnedFd, agreed: Box<Agreed>) -> Met {
        let rest = std::mem::take(&mut self.rest);
        let (home, place) = (self.home.take(), self.place.clone());
        let congestion = std::mem::take(&mut self.way).settle(&socket);
        let socket = match self.securing.take() {
            Some(securing) => Connection::encrypted(socket, securing.into_session()),
            None => Connection::from(socket),
        };
        let socket = socket.under(congestion);
        let apart = self.out_of_reach.unwrap_or_else(|| apart(&self.us, &agreed));
        Met { socket, agreed, apart, rest, home, place }
    }

    /// Connecting: the peer's place on this host, if that is still to be tried.
    fn here(&self) -> Option<Here> {
        // A side that goes on over a connection stays with it.
        let calls = self.home.is_some();
        let agreed = self.agreed.as_ref().filter(|it| calls && it.peer_received.is_none())?;
        let at = agreed.local_address().filter(|_| self.out_of_reach.is_none())?;
        Some(Here { at, endpoint_id: agreed.peer.endpoint_id })
    }

    /// Sends and receives. Returns whether all is sent.
    fn talk(
        &mut self,
        socket: &OwnedFd,
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<bool> {
        loop {
            if self.here().is_some() || !self.send(socket)? {
                return Ok(false);
            }
            if let Some(agreed) = &self.agreed {
                return if agreed.tls { self.secure(socket) } else { Ok(true) };
            }
            if !self.hear_more(socket, sessions)? {
                return Ok(false);
            }
        }
    }

    /// Takes bytes that have come over the connection. Returns whether any have.
    fn hear_more(
        &mut self,
        socket: &OwnedFd,
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<bool> {
        let mut bytes = [0; AT_ONCE];
        match recv(socket, &mut bytes).map_err(|error| refused("recvfrom", &self.place, error))? {
            stream::Received::Nothing => Ok(false),
            stream::Received::End => {
                let failure = self.greeting.closed();
                Err(failure.map_or(Error::Closed, |failure| self.failed(failure)))
            }
            stream::Received::Bytes(len) => {
                self.has_heard = true;
                self.hear(&bytes[..len], sessions)?;
                Ok(true)
            }
        }
    }

    /// The other side, for messages.
    fn peer(&self) -> std::sync::Arc<str> {
        self.address().unwrap_or(&self.place).into()
    }

    /// Takes bytes that have come.
    fn hear(
        &mut self,
        mut bytes: &[u8],
        sessions: &dyn Fn(&[u8; 16]) -> Option<Ticket>,
    ) -> Result<()> {
        while !bytes.is_empty() {
            if self.agreed.is_some() {
                self.rest.extend_from_slice(bytes);
                return Ok(());
            }
            let (used, step) = self.greeting.feed(bytes).map_err(|failure| self.failed(failure))?;
            bytes = &bytes[used..];
            match step {
                greeting::Step::More => {}
                greeting::Step::Agreed(agreed) => self.agreed = Some(agreed),
                greeting::Step::Decide(asked) => {
                    let ticket = asked.resumes.and_then(|id| sessions(&id));
                    let why = if asked.peer.endpoint_id == self.us.endpoint_id {
                        Some(wire::Refusal::Itself)
                    } else if asked.resumes.is_some() && ticket.is_none() {
                        Some(wire::Refusal::UnknownSession { incarnation: self.us.incarnation })
                    } else {
                        // A side that goes on with a session has its place.
                        self.full.filter(|_| ticket.is_none())
                    };
                    if let Some(why) = why {
                        let failure = self.greeting.decline(why);
                        return Err(self.failed(failure));
                    }
                    let admitted = self.greeting.admit(&self.us, ticket);
                    admitted.map_err(|failure| self.failed(failure))?;
                    self.readmitted = asked.resumes;
                }
            }
        }
        Ok(())
    }

    /// Sends the greeting's output. Returns whether all of it is sent.
    fn send(&mut self, socket: &OwnedFd) -> Result<bool> {
        while !self.greeting.output().is_empty() {
            let sent = send(socket, self.greeting.output());
            match sent.map_err(|error| refused("sendto", &self.place, error))? {
                0 => return Ok(false),
                sent => self.greeting.sent(sent),
            }
        }
        Ok(true)
    }

    fn failed(&mut self, failure: Failure) -> Error {
        if let Failure::Refused { why, .. } | Failure::Declined { why, .. } = failure {
            self.refused = Some(why);
        }
        let peer = self.address().unwrap_or(&self.place).to_owned();
        match failure {
            Failure::TooLate { .. } => Error::NoAnswer { name: peer, patience: self.patience },
            failure => Error::Greeting { peer, why: failure.to_string(), reason: failure.reason() },
        }
    }
}

/// The reason why two have agreed on a connection and on no more.
fn apart(us: &Offer, agreed: &Agreed) -> Refusal {
    match &agreed.peer {
        peer if peer.host == us.host && agreed.role == Role::Accepting => Refusal::OutOfReach(0),
        peer if peer.host == us.host => Refusal::OutOfReach(Errno::NOENT.raw_os_error()),
        peer if peer.host.boot == us.host.boot => Refusal::OtherNamespace,
        _ => Refusal::OtherHost,
    }
}

fn tune(socket: &OwnedFd, way: &mut HostsWay, silence: Duration, place: &str) {
    match stream::hurry_within_host(socket) {
        Ok(true) => *way = HostsWay::default(),
        Ok(false) => {}
        Err(error) => tracing::debug!(%error, place, "congestion is controlled as everywhere"),
    }
    if let Err(error) = stream::tune(socket, silence) {
        tracing::debug!(%error, place, "a connection is not set up as it should be");
    }
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

/// An address without a listener gives the same error as on one host.
fn refused(call: &'static str, address: &str, error: std::io::Error) -> Error {
    match Errno::from_io_error(&error) {
        Some(Errno::CONNREFUSED) => Error::NameGone { name: address.to_owned() },
        _ => Error::os(call, address, error),
    }
}
