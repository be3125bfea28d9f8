//! The peers an endpoint is connected with.

use std::time::{Duration, Instant};

use crate::{
    AcceptRequest, ConnectRequest, Error, Gone, PeerId, Result,
    endpoint::{Endpoint, PeerInfo, spans},
    worker::{connections::requests::Called, followers::Awaited, outstanding, teardown},
};

/// The most time that a disconnection waits for sent messages to be handed on.
const HAND_ON: Duration = Duration::from_millis(500);

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
    /// A host's name is looked up by a thread that this starts, and all its addresses are called as
    /// in RFC 8305: IPv6 and IPv4 in turns, each 250 ms after the last or once that has failed. The
    /// first connection is taken.
    ///
    /// # Errors
    /// [`Error::NameGone`] if no endpoint listens there, [`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`], [`Error::BadAddress`];
    /// [`Error::NoAnswer`] if the other side does not answer in the endpoint's connect time-out;
    /// [`Error::Os`] if this process or the listening one has no descriptors left. With other hosts
    /// also [`Error::KeyNeeded`], and [`Error::Greeting`] if the keys differ, or the two do not
    /// agree on something else.
    pub fn connect(&self, address: &str) -> Result<PeerId> {
        spans::connect(address, || self.connect_request(address).wait())
    }

    /// As [`Endpoint::connect`], but does not wait: the call goes on while the endpoint makes
    /// progress, and the [request](ConnectRequest) tells of its end. It can be waited for, polled,
    /// awaited, cancelled, or added to a [queue](crate::CompletionQueue). A host's name is looked
    /// up by another thread.
    ///
    /// An endpoint has 1,024 calls under way at a time; others end with
    /// [`Error::LimitReached`] at once.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// use pinfold::Endpoint;
    ///
    /// let name = format!("local:doc-connecting-{}", std::process::id());
    /// let endpoint = Endpoint::listen(&name)?;
    /// // One thread calls, here even itself, and is called.
    /// let mut calls = endpoint.connect_request(&name);
    /// let mut is_called = endpoint.accept_request();
    /// let (mut called, mut caller) = (None, None);
    /// while called.is_none() || caller.is_none() {
    ///     endpoint.progress()?;
    ///     called = called.or_else(|| calls.try_wait());
    ///     caller = caller.or_else(|| is_called.try_wait());
    /// }
    /// let (called, caller) = (called.unwrap()?, caller.unwrap()?);
    /// endpoint.send(called, 1, b"how now")?;
    /// assert_eq!(&*endpoint.recv(caller, 1)?, b"how now");
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_request(&self, address: &str) -> ConnectRequest {
        ConnectRequest::post(self.shared(), address, None)
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
        self.connect_wait_request(address, patience).wait()
    }

    /// As [`Endpoint::connect_wait`], but does not wait, see [`Endpoint::connect_request`]. A name
    /// on this host that is not there is called again every 20 ms, and less often beside more than
    /// a hundred others.
    pub fn connect_wait_request(&self, address: &str, patience: Duration) -> ConnectRequest {
        let patience = Some(patience).filter(|patience| !patience.is_zero());
        ConnectRequest::post(self.shared(), address, patience)
    }

    /// Waits for the next peer to connect. Peers that this endpoint connected to are not among
    /// them: [`Endpoint::connect`] returned those.
    ///
    /// # Errors
    /// [`Error::NotListening`] if the endpoint does not listen; [`Error::NameLost`], once, when
    /// another has taken its name and no peer can connect any more; [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn accept(&self) -> Result<PeerId> {
        spans::accept(|| self.accept_request().wait())
    }

    /// Waits at most `patience` for the next peer to connect.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::accept`].
    pub fn accept_timeout(&self, patience: Duration) -> Result<PeerId> {
        let accepted = self.accept_request().wait_timeout(patience);
        accepted.unwrap_or(Err(Error::Timeout(patience)))
    }

    /// As [`Endpoint::accept`], but does not wait: peers go to those that accept in the order of
    /// their calls, whether these wait or not, and the [request](AcceptRequest) tells which one
    /// came. By the time that is looked at the peer may have gone again.
    pub fn accept_request(&self) -> AcceptRequest {
        AcceptRequest::post(self.shared())
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
        let _ = self.shared().wait_for(Some(end), Awaited::Anything, |engine| {
            let quiet = engine.peers.get(peer).is_none_or(|peer| peer.transport.is_quiet());
            (quiet && !outstanding::has_unsent(engine, Some(peer))).then_some(())
        });
        if let Ok(mut engine) = self.shared().enter() {
            teardown::remove_peer(&mut engine, peer, Gone::Disconnected);
        }
    }
}
