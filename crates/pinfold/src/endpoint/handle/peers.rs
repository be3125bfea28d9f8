//! The peers an endpoint is connected with.

use std::time::{Duration, Instant};

use crate::{
    Error, Gone, PeerId, Result,
    endpoint::{Endpoint, PeerInfo},
    transport::{
        local::Address,
        tcp::{self, dial::Patience},
    },
    worker::Engine,
};

/// Time between two looks for a name that is not there yet.
const NAME_AGAIN: Duration = Duration::from_millis(20);
/// The most time that a disconnection waits for sent messages to be handed on.
const HAND_ON: Duration = Duration::from_millis(500);

/// The endpoint that is called.
enum Called {
    Host(Address),
    Wire(tcp::address::Address),
}

impl Called {
    fn parse(address: &str) -> Result<Called> {
        Ok(if address.starts_with("tcp:") {
            let called = tcp::address::parse(address)?;
            if called.port() == 0 {
                let why = "port 0 is for listening, at any that is free; name the port in use";
                return Err(Error::BadAddress { address: address.to_owned(), why });
            }
            Called::Wire(called)
        } else {
            Called::Host(address.parse()?)
        })
    }
}

impl Endpoint {
    /// The address at which endpoints on other hosts can connect, `tcp:HOST:PORT` with the port in
    /// use, if this one [listens](crate::Builder::listen) there. The host is an address, or the
    /// given name if that stands for several addresses, at all of which it listens.
    pub fn listens_at(&self) -> Option<String> {
        let engine = self.shared().enter().ok()?;
        engine.connections.listens_tcp().map(|at| format!("tcp:{at}"))
    }

    /// Checks that `address` can be called, by its form alone.
    ///
    /// # Errors
    /// [`Error::BadAddress`].
    pub fn check_address(address: &str) -> Result<()> {
        Called::parse(address).map(drop)
    }

    /// Connects to the endpoint that listens at `address`: `local:NAME`, `local:USER/NAME` for
    /// another user's that admits this one, or `tcp:HOST:PORT` for one on another host. On one host
    /// it takes three crossings of a socket and, where allowed, the trial of the paths; some 100 µs
    /// if the other side is in a call of its endpoint.
    ///
    /// An endpoint may call its own `local:NAME`: both ends of the pair are then its peers, and all
    /// that goes between two goes between them. By its own port it is refused, since somebody in
    /// the middle could pass off its own greeting as another's.
    ///
    /// A host's name is looked up, and all its addresses are called as in RFC 8305: IPv6 and IPv4
    /// in turns, each 250 ms after the last or once that has failed. The first connection is taken.
    ///
    /// # Errors
    /// [`Error::NameGone`] if no endpoint listens there, [`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`], [`Error::BadAddress`];
    /// [`Error::NoAnswer`] if the other side does not answer in the endpoint's connect time-out;
    /// [`Error::Os`] if this process or the listening one has no descriptors left. With other hosts
    /// also [`Error::KeyNeeded`], and [`Error::Greeting`] if the keys differ, or the two do not
    /// agree on something else.
    pub fn connect(&self, address: &str) -> Result<PeerId> {
        self.connect_to(&Called::parse(address)?)
    }

    fn connect_to(&self, called: &Called) -> Result<PeerId> {
        let call = self.begin(|engine| {
            let connect = engine.config.connect_timeout;
            match called {
                Called::Host(address) => engine.call(address, connect),
                Called::Wire(address) => {
                    engine.connect_tcp(address, Patience { connect, greet: None, again: false })
                }
            }
        })?;
        self.connected(call)
    }

    /// Begins to connect.
    fn begin(&self, call: impl FnOnce(&mut Engine) -> Result<u64>) -> Result<u64> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        call(&mut engine)
    }

    /// Waits for the outcome of that call.
    fn connected(&self, call: u64) -> Result<PeerId> {
        self.shared()
            .wait_for(None, |engine| match engine.connections.take_connected(call) {
                None => engine.check().err().map(Err),
                connected => connected,
            })?
            .unwrap_or(Err(Error::Closed))
    }

    /// As [`Endpoint::connect`], but waits up to `patience` for an obstacle to pass: no endpoint
    /// listens yet, a name is not known yet or no name server answers, there is no route, a host is
    /// down or does not answer, a directory is not there or does not let this user pass. Once an
    /// endpoint listens, it has the connect time-out to answer.
    ///
    /// It returns before `patience` is over if there is a connection, or an error that waiting does
    /// not change.
    ///
    /// # Errors
    /// As [`Endpoint::connect`]: after `patience`, the last obstacle.
    pub fn connect_wait(&self, address: &str, patience: Duration) -> Result<PeerId> {
        let called = Called::parse(address)?;
        match &called {
            _ if patience.is_zero() => self.connect_to(&called),
            Called::Host(address) => self.connect_wait_here(address, patience),
            Called::Wire(address) => {
                let call = self.begin(|engine| {
                    let greet = Some(engine.config.connect_timeout);
                    engine.connect_tcp(address, Patience { connect: patience, greet, again: true })
                })?;
                self.connected(call)
            }
        }
    }

    fn connect_wait_here(&self, address: &Address, patience: Duration) -> Result<PeerId> {
        let end = Instant::now().checked_add(patience);
        loop {
            let begun = self.begin(|engine| engine.call(address, engine.config.connect_timeout));
            let (error, passes) = match begun.map(|call| self.connected(call)) {
                Ok(Ok(peer)) => return Ok(peer),
                // No endpoint is there, or this user cannot see whether one is.
                Err(error) => {
                    let passes = matches!(error, Error::NameGone { .. } | Error::NotAllowed { .. });
                    (error, passes)
                }
                // The call has ended meanwhile.
                Ok(Err(error)) => {
                    let passes = matches!(
                        error,
                        Error::NameGone { .. }
                            | Error::PeerGone { how: Gone::Died | Gone::Closed, .. }
                    );
                    (error, passes)
                }
            };
            if !passes || end.is_some_and(|end| Instant::now() >= end) {
                return Err(error);
            }
            self.shared().enter()?.progress();
            pinfold_sys::cpu::clock::pause(NAME_AGAIN);
        }
    }

    /// Waits for the next peer to connect. Peers that this endpoint connected to are not among
    /// them: [`Endpoint::connect`] returned those.
    ///
    /// # Errors
    /// [`Error::NotListening`] if the endpoint does not listen; [`Error::NameLost`], once, when
    /// another has taken its name and no peer can connect any more; [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn accept(&self) -> Result<PeerId> {
        self.accept_until(None)?.unwrap_or(Err(Error::Closed))
    }

    /// Waits at most `patience` for the next peer to connect.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::accept`].
    pub fn accept_timeout(&self, patience: Duration) -> Result<PeerId> {
        let end = Instant::now().checked_add(patience);
        self.accept_until(end)?.unwrap_or(Err(Error::Timeout(patience)))
    }

    fn accept_until(&self, end: Option<Instant>) -> Result<Option<Result<PeerId>>> {
        self.shared().wait_for(end, |engine| match engine.check() {
            Err(error) => Some(Err(error)),
            Ok(()) if engine.connections.listens() => {
                let newcomer = engine.newcomers.pop_front().map(Ok);
                newcomer.or_else(|| engine.connections.take_lost().map(Err))
            }
            Ok(()) => Some(Err(Error::NotListening)),
        })
    }

    /// The connected peers. In a forked child: none.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.shared().enter().map(|engine| engine.infos()).unwrap_or_default()
    }

    /// Facts about a connected peer.
    pub fn peer(&self, peer: PeerId) -> Option<PeerInfo> {
        let engine = self.shared().enter().ok()?;
        engine.present(peer).ok()?;
        engine.peers.get(peer).map(|peer| peer.info.clone())
    }

    /// Ends the connection with a peer; operations with it end with an error. A message of this
    /// endpoint that the peer is reading at that moment ends with an error there, too.
    ///
    /// Messages to a peer on another host are handed to the network first, and those that were sent
    /// without a wait are delivered; that may wait, for at most half a second, for a peer that
    /// takes nothing. For memory that was given to the peer, see [`Endpoint::handoff`].
    pub fn disconnect(&self, peer: PeerId) {
        let end = Instant::now() + HAND_ON;
        let _ = self.shared().wait_for(Some(end), |engine| {
            let quiet = engine.peers.get(peer).is_none_or(|peer| peer.transport.is_quiet());
            (quiet && !engine.has_unsent(Some(peer))).then_some(())
        });
        if let Ok(mut engine) = self.shared().enter() {
            engine.remove_peer(peer, Gone::Disconnected);
        }
    }
}
