//! Who an endpoint is connected with.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    Error, Gone, PeerId, Result,
    endpoint::{Endpoint, PeerInfo, engine::Engine},
    link::{local::Address, tcp},
};

/// Between two looks for a name that is not there yet.
const NAME_AGAIN: Duration = Duration::from_millis(20);
/// How long a disconnection waits for what was sent to be handed on.
const HAND_ON: Duration = Duration::from_millis(500);

/// Who is called.
enum Called {
    Host(Address),
    Wire(tcp::address::Address),
}

impl Called {
    fn parse(address: &str) -> Result<Called> {
        Ok(if address.starts_with("tcp:") {
            Called::Wire(tcp::address::parse(address)?)
        } else {
            Called::Host(address.parse()?)
        })
    }
}

impl Endpoint {
    /// Where endpoints on other hosts can connect, `tcp:HOST:PORT` with the port in use, if this one
    /// [listens](crate::Builder::listen) there.
    pub fn listens_at(&self) -> Option<String> {
        let engine = self.shared().enter().ok()?;
        engine.links.listens_afar().map(|at| format!("tcp:{at}"))
    }

    /// Connects to the endpoint that listens at `address`: `local:NAME`, `local:USER/NAME` for
    /// another user's that admits this one, or `tcp:HOST:PORT` for one on another host. On one host it takes three crossings of a socket and, where allowed,
    /// the trial of the paths; some 100 µs if the other side is in a call of its endpoint.
    ///
    /// # Errors
    /// [`Error::NameGone`] if nobody listens there, [`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`], [`Error::BadAddress`];
    /// [`Error::NoAnswer`] if the other side does not answer in the endpoint's connect time-out;
    /// [`Error::Os`] if a process has no descriptors left, this one or the one listening. With other hosts
    /// also [`Error::KeyNeeded`], and [`Error::Greeting`] if one does not have the other's key, or they do
    /// not agree on something else.
    pub fn connect(&self, address: &str) -> Result<PeerId> {
        self.dial(&Called::parse(address)?)
    }

    fn dial(&self, called: &Called) -> Result<PeerId> {
        let address = match called {
            Called::Host(address) => {
                return self.dial_by(|engine, patience| engine.call(address, patience));
            }
            Called::Wire(address) => address,
        };
        let name = address.to_string();
        let mut result = Err(Error::NameGone { name: name.clone() });
        // A name may stand for several places, of which not all need be there.
        for place in tcp::listener::resolve(address)? {
            result = self.dial_by(|engine, patience| engine.call_afar(&name, place, patience));
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn dial_by(&self, call: impl FnOnce(&mut Engine, Duration) -> Result<u64>) -> Result<PeerId> {
        let call = {
            let mut engine = self.shared().enter()?;
            engine.check()?;
            let patience = engine.config.connect_timeout;
            call(&mut engine, patience)?
        };
        self.shared()
            .wait_for(None, |engine| match engine.links.take_connected(call) {
                None => engine.check().err().map(Err),
                connected => connected,
            })?
            .unwrap_or(Err(Error::Closed))
    }

    /// As [`Endpoint::connect`], but if nobody listens yet, waits up to `patience` for somebody to.
    ///
    /// # Errors
    /// As [`Endpoint::connect`]; [`Error::NameGone`] after `patience`.
    pub fn connect_wait(&self, address: &str, patience: Duration) -> Result<PeerId> {
        let address = Called::parse(address)?;
        let end = Instant::now().checked_add(patience);
        loop {
            match self.dial(&address) {
                Err(Error::NameGone { .. }) if end.is_none_or(|end| Instant::now() < end) => {
                    self.shared().enter()?.progress();
                    thread::sleep(NAME_AGAIN);
                }
                result => return result,
            }
        }
    }

    /// Waits for the next peer to connect. Peers that this endpoint connected to are not among
    /// them: [`Endpoint::connect`] returned those.
    ///
    /// # Errors
    /// [`Error::NotListening`] if the endpoint does not listen, [`Error::Closed`],
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
            Ok(()) if engine.links.listens() => engine.newcomers.pop_front().map(Ok),
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

    /// Ends the connection with a peer; operations with it end with an error. A message of ours
    /// that the peer is reading at that moment ends with an error there, too.
    ///
    /// What was sent to a peer on another host is handed to the network first, and what nobody waits for is delivered;
    /// that may wait, for at most half a second, for a peer that takes nothing. For what the peer has of memory that was
    /// given to it, see [`Endpoint::handoff`].
    pub fn disconnect(&self, peer: PeerId) {
        let end = Instant::now() + HAND_ON;
        let _ = self.shared().wait_for(Some(end), |engine| {
            let quiet = engine.peers.get(peer).is_none_or(|peer| peer.line.is_quiet());
            (quiet && !engine.has_unsent(Some(peer))).then_some(())
        });
        if let Ok(mut engine) = self.shared().enter() {
            engine.remove_peer(peer, Gone::Disconnected);
        }
    }
}
