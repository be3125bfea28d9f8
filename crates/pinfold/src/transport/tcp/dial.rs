//! Calls to a peer, until there is a connection with one of its addresses. Nothing here waits.
//!
//! [`happy_eyeballs`](super::happy_eyeballs) says which to try, and when. The greeting is over one
//! connection at a time; if that comes to nothing, the race goes on.

use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use pinfold_sys::{
    failed::Failed as Call,
    io::poll::{Epoll, Interest},
    socket::stream,
};
use rustix::io::Errno;

use super::{
    address::{Address, Host},
    congestion::HostsWay,
    greeting::{Auth, Ticket},
    happy_eyeballs::{Failed, HappyEyeballs, Next},
    key::Key,
    listener,
    lookup::{Lookup, Lookups},
};
use crate::{Error, Result, wire::tcp::offer::Offer};

/// The time limits of calling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Until there is a connection.
    pub connect: Duration,
    /// From then on, until the peer has answered; if `None`, the rest of the former.
    pub greet: Option<Duration>,
    /// True if a call is tried again after a failure that may pass.
    pub again: bool,
}

/// The terms on which a peer is greeted.
pub(crate) struct Terms {
    pub us: Offer,
    /// The ticket of the session to go on with.
    pub ticket: Option<Ticket>,
    /// The time for which the connection may be silent.
    pub silence: Duration,
}

/// A call in progress: the peer's address, and the attempts at it.
pub(crate) struct Dial {
    /// As it was given.
    name: String,
    address: Option<Address>,
    pub terms: Terms,
    patience: Patience,
    race: HappyEyeballs,
    attempts: Vec<Attempt>,
    lookup: Option<Lookup>,
    /// The reasons why there is no connection: of each address, and of the name.
    why: Vec<(Option<SocketAddr>, Error)>,
    due_ns: u64,
}

struct Attempt {
    to: SocketAddr,
    socket: OwnedFd,
    way: HostsWay,
    auth: Auth,
}

/// A connection that has come about, and is watched.
pub(crate) struct Connected {
    pub socket: OwnedFd,
    pub way: HostsWay,
    pub to: SocketAddr,
    pub auth: Auth,
    /// All addresses that might have been called.
    pub places: Vec<SocketAddr>,
    /// Deadline of its greeting, ns, and its distance from the first call.
    pub deadline_ns: u64,
    pub patience: Duration,
}

/// The outcome of a step.
pub(crate) enum Dialled {
    More,
    There(Box<Connected>),
}

impl Dial {
    /// Calls an address.
    pub(crate) fn new(address: &Address, terms: Terms, patience: Patience, now_ns: u64) -> Dial {
        let until_ns = after(now_ns, patience.connect);
        let race = match address.host() {
            Host::Ip(ip) => {
                let place = SocketAddr::from((*ip, address.port()));
                HappyEyeballs::new(&[place], patience.again, now_ns, until_ns)
            }
            Host::Name(_) => HappyEyeballs::by_name(patience.again, now_ns, until_ns),
        };
        Dial::by(address.to_string(), Some(address.clone()), race, terms, patience, now_ns)
    }

    /// Calls places that an address is known to stand for.
    pub(crate) fn known(
        name: &str,
        places: &[SocketAddr],
        terms: Terms,
        patience: Patience,
        now_ns: u64,
    ) -> Dial {
        let until_ns = after(now_ns, patience.connect);
        let race = HappyEyeballs::new(places, patience.again, now_ns, until_ns);
        Dial::by(name.to_owned(), None, race, terms, patience, now_ns)
    }

    fn by(
        name: String,
        address: Option<Address>,
        race: HappyEyeballs,
        terms: Terms,
        patience: Patience,
        now_ns: u64,
    ) -> Dial {
        let (attempts, lookup, why) = (Vec::new(), None, Vec::new());
        Dial { name, address, terms, patience, race, attempts, lookup, why, due_ns: now_ns }
    }

    /// As it was given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The latest time of the next step.
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Goes as far as it can now. Sockets are watched under `token`.
    ///
    /// # Errors
    /// The reason why there is no connection, and will be none.
    pub(crate) fn step(
        &mut self,
        now_ns: u64,
        key: Option<&Arc<Key>>,
        lookups: &Lookups,
        epoll: &Epoll,
        token: u64,
    ) -> Result<Dialled> {
        self.take_places(now_ns);
        loop {
            if let Some(there) = self.look(now_ns, epoll) {
                return Ok(Dialled::There(Box::new(there)));
            }
            match self.race.next(now_ns) {
                Next::LookUp => {
                    self.lookup = self.address.as_ref().and_then(|address| lookups.ask(address));
                    if self.lookup.is_none() {
                        self.race.no_room(now_ns);
                    }
                }
                Next::Try(to) => {
                    if let Err((error, how)) = self.call(to, key, epoll, token) {
                        self.failed(now_ns, to, error, how);
                    }
                }
                Next::End(to) => {
                    self.end(epoll, |attempt| attempt.to == to);
                    self.note(Some(to), self.no_answer());
                }
                Next::Wait(at_ns) => {
                    self.due_ns = at_ns;
                    return Ok(Dialled::More);
                }
                Next::Over => {
                    self.unwatch(epoll);
                    return Err(self.error());
                }
            }
        }
    }

    /// An attempt, or the greeting over its connection, has failed.
    pub(crate) fn failed(&mut self, now_ns: u64, to: SocketAddr, error: Error, how: Failed) {
        tracing::debug!(%error, %to, ?how, "not there");
        self.note(Some(to), error);
        self.race.failed(now_ns, to, how);
    }

    /// Ends all attempts.
    pub(crate) fn unwatch(&mut self, epoll: &Epoll) {
        self.end(epoll, |_| true);
    }

    fn end(&mut self, epoll: &Epoll, which: impl Fn(&Attempt) -> bool) {
        self.attempts.retain(|attempt| {
            let ends = which(attempt);
            if ends {
                let _ = epoll.remove(&attempt.socket);
            }
            !ends
        });
    }

    /// Takes the result of a lookup.
    fn take_places(&mut self, now_ns: u64) {
        let Some(found) = self.lookup.as_ref().and_then(Lookup::take) else { return };
        self.lookup = None;
        match found {
            Ok(places) => {
                self.why.retain(|(to, _)| to.is_some_and(|to| places.contains(&to)));
                self.race.found(now_ns, &places);
            }
            Err(error) => {
                // A caller that was told to wait waits for a name as well.
                let passes = matches!(&error, Error::Os { source, .. } if passes_for_name(source));
                self.note(None, error);
                self.race.not_found(now_ns, passes);
            }
        }
    }

    /// Begins to connect.
    fn call(
        &mut self,
        to: SocketAddr,
        key: Option<&Arc<Key>>,
        epoll: &Epoll,
        token: u64,
    ) -> Result<(), (Error, Failed)> {
        let auth = listener::auth(to.ip(), key, &self.name);
        let auth = auth.map_err(|error| (error, Failed::Useless))?;
        let mut way = HostsWay::default();
        let socket = stream::connect_after(to, |socket| way = HostsWay::put_off(socket));
        let socket = socket.map_err(|failed| not_connected(&self.name, failed))?;
        let watched = epoll.add(&socket, token, Interest::Changes);
        watched
            .map_err(|error| (Error::os("epoll_ctl", "the endpoint", error), Failed::ForGood))?;
        self.attempts.push(Attempt { to, socket, way, auth });
        Ok(())
    }

    /// Checks the attempts. The first that came about is taken, and the others end.
    fn look(&mut self, now_ns: u64, epoll: &Epoll) -> Option<Connected> {
        let mut at = 0;
        while let Some(attempt) = self.attempts.get(at) {
            match is_there(attempt) {
                Ok(false) => at += 1,
                Ok(true) => {
                    let Attempt { to, socket, way, auth } = self.attempts.swap_remove(at);
                    self.unwatch(epoll);
                    self.race.won(now_ns, to);
                    let places = self.race.places().collect();
                    let Patience { connect, greet, .. } = self.patience;
                    let deadline_ns =
                        greet.map_or(self.race.until_ns(), |greet| after(now_ns, greet));
                    let patience = greet.unwrap_or(connect);
                    let there = Connected { socket, way, to, auth, places, deadline_ns, patience };
                    return Some(there);
                }
                Err(failed) => {
                    let attempt = self.attempts.swap_remove(at);
                    let _ = epoll.remove(&attempt.socket);
                    let (error, how) = not_connected(&self.name, failed);
                    self.failed(now_ns, attempt.to, error, how);
                }
            }
        }
        None
    }

    fn note(&mut self, of: Option<SocketAddr>, error: Error) {
        self.why.retain(|(to, _)| *to != of);
        self.why.push((of, error));
    }

    fn no_answer(&self) -> Error {
        Error::NoAnswer { name: self.name.clone(), patience: self.patience.connect }
    }

    /// The error that says most of all that were found.
    fn error(&mut self) -> Error {
        let why = std::mem::take(&mut self.why);
        let most = why.into_iter().max_by_key(|(_, error)| weight(error));
        most.map_or_else(|| self.no_answer(), |(_, error)| error)
    }
}

/// Returns whether a connection has come about.
fn is_there(attempt: &Attempt) -> Result<bool, Call> {
    let is_there = stream::is_connected(&attempt.socket)?;
    // If nothing listens on this host, the kernel may choose the very port that is called for the
    // caller's own end.
    let ours = |socket| stream::local_address(socket).is_ok_and(|ours| ours == attempt.to);
    if is_there && ours(attempt.socket.as_fd()) {
        return Err(Call { call: "connect", errno: Errno::CONNREFUSED });
    }
    Ok(is_there)
}

fn after(now_ns: u64, time: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The amount that an error says about the peer: more if the peer has answered.
fn weight(error: &Error) -> u32 {
    match error {
        Error::KeyNeeded { .. } => 0,
        Error::Os { call: "getaddrinfo", .. } => 1,
        Error::NoAnswer { .. } => 2,
        Error::Os { .. } => 3,
        Error::NameGone { .. } => 4,
        _ => 5,
    }
}

fn passes_for_name(error: &std::io::Error) -> bool {
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    !Errno::from_io_error(error).is_some_and(|errno| lacks.contains(&errno))
}

/// The error of a connection that did not come about. An address without a listener gives the same
/// error as on one host.
fn not_connected(name: &str, failed: Call) -> (Error, Failed) {
    match failed.errno {
        Errno::CONNREFUSED => (Error::NameGone { name: name.to_owned() }, Failed::Passing),
        errno => (Error::failed(name)(failed), how_failed(errno)),
    }
}

/// Classifies a failure: it may pass or not. Routes, interfaces and hosts come up, and messages of
/// ICMP, which are of the moment (RFC 5461), become `errno`s by `icmp_err_convert` of the kernel;
/// so do the rules of a firewall.
pub(crate) fn how_failed(errno: Errno) -> Failed {
    match errno {
        Errno::NETUNREACH
        | Errno::HOSTUNREACH
        | Errno::NETDOWN
        | Errno::HOSTDOWN
        | Errno::NONET
        | Errno::ADDRNOTAVAIL
        | Errno::CONNREFUSED
        | Errno::CONNRESET
        | Errno::CONNABORTED
        | Errno::PIPE
        | Errno::TIMEDOUT
        | Errno::NOPROTOOPT
        | Errno::OPNOTSUPP
        | Errno::PROTO
        | Errno::MSGSIZE
        | Errno::ACCESS
        | Errno::PERM
        | Errno::NETRESET
        | Errno::AGAIN
        | Errno::NOBUFS => Failed::Passing,
        Errno::AFNOSUPPORT | Errno::INVAL => Failed::Useless,
        _ => Failed::ForGood,
    }
}
