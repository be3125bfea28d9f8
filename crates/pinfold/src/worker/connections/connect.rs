//! Joining: this endpoint calls, or is called, and greetings are taken as far as they go.

use std::time::Duration;

use pinfold_sys::cpu::clock;

use super::super::{
    Engine,
    core::Core,
    handshakes::{Call, Greeting, Handshake, Step},
    op::Done,
    peer::Peer,
    pending_peer::{Outcome, PendingPeer},
};
use super::{
    Connections, GREETING, GREETINGS_MAX, LISTEN_AGAIN_NS, PROCESS, SOCKET, accept_budget::TURN_NS,
    requests::Tried, token, watch,
};
use crate::{
    Error, Gone, PeerId, Result,
    failpoint::{self, Point},
    status::Tally,
    transport::{
        local::{self, Address, Limits},
        tcp::{handshake, unauthenticated::Caller},
    },
};

impl Engine {
    /// Makes a call to an endpoint on this host.
    pub(super) fn call(&mut self, address: &Address, call: Call) {
        let begun = self.begin_here(address);
        self.greet_for(call, begun);
    }

    fn begin_here(&mut self, address: &Address) -> Result<(Handshake, Limits)> {
        self.room_for_peer()?;
        let now = clock::now_ns();
        let granted = self.grant(false);
        let patience = self.config.connect_timeout;
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4);
        let handshake = local::Handshake::connect(
            address,
            &self.connections.us,
            granted,
            now,
            patience.min(u64::MAX / 4),
        );
        let handshake = handshake.inspect_err(|_| self.ungrant(granted))?;
        Ok((Handshake::Shm(Box::new(handshake)), granted))
    }

    /// Goes on with a call whose greeting has `begun`, unless it could not.
    pub(super) fn greet_for(&mut self, call: Call, begun: Result<(Handshake, Limits)>) {
        let added = begun.and_then(|(handshake, granted)| {
            let added = self.connections.add_greeting(Greeting::new(handshake, granted));
            added.inspect_err(|_| self.ungrant(granted))
        });
        match added {
            Ok(at) => {
                if let Some(greeting) = &mut self.connections.greetings[at] {
                    greeting.call = Some(call);
                }
                self.kick = true;
                self.greet(at);
            }
            Err(error) => self.not_connected(call, error, Tried::AtOnce),
        }
    }

    pub(super) fn room_for_peer(&self) -> Result<()> {
        let greetings = self.connections.greetings.iter().flatten();
        let coming = greetings.filter(|greeting| greeting.takes_place()).count();
        if self.peers.live() + coming >= self.config.peers_max {
            return Err(Error::LimitReached {
                what: "the number of peers of this endpoint",
                limit: self.config.peers_max as u64,
                remedy: "raise Builder::peers_max, or disconnect some",
            });
        }
        Ok(())
    }

    /// Takes callers off a listener's queue: that of the local name, or of the one beside it.
    pub(super) fn answer_callers(&mut self, same_host: bool) {
        let mut turned_away = 0;
        let end = clock::now_ns() + TURN_NS;
        while clock::now_ns() < end {
            let greetings = self.connections.greetings.iter().flatten();
            let theirs = greetings.filter(|it| it.call.is_none() && it.takes_place()).count();
            if theirs + turned_away >= GREETINGS_MAX {
                return;
            }
            let Connections { listener, same_host: other, epoll, .. } = &mut self.connections;
            let listener = if same_host { other } else { listener };
            let Some(listener) = listener else { return };
            match listener.accept() {
                Ok(Some((socket, who))) => {
                    // A caller that was sent here by a connection has its place already.
                    let room = same_host || self.room_for_peer().is_ok();
                    let granted = self.grant(false);
                    let handshake = local::Handshake::accepted(
                        socket,
                        who,
                        &self.config.access,
                        &self.connections.us,
                        granted,
                        room,
                        self.config.peers_max as u64,
                        clock::now_ns(),
                    );
                    self.answer(Handshake::Shm(Box::new(handshake)), granted, same_host, None);
                }
                Ok(None) => return,
                Err(error) if listener.turn_away(&error) => {
                    tracing::warn!(%error, "a caller was turned away");
                    turned_away += 1;
                }
                Err(error) => {
                    // Not even an answer for the caller: it stays queued, and the listener is left
                    // alone for a while, or it would keep the endpoint awake.
                    tracing::warn!(%error, "a caller cannot be answered now");
                    let _ = epoll.remove(listener.fd());
                    self.connections.listen_again_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
                    return;
                }
            }
        }
    }

    pub(super) fn answer(
        &mut self,
        handshake: Handshake,
        granted: Limits,
        same_host: bool,
        caller: Option<Caller>,
    ) {
        let greeting = Greeting { same_host, caller, ..Greeting::new(handshake, granted) };
        match self.connections.add_greeting(greeting) {
            Ok(at) => self.greet(at),
            Err(error) => {
                tracing::warn!(%error, "a caller was turned away");
                self.ungrant(granted);
            }
        }
    }

    /// Takes a greeting as far as it goes.
    pub(super) fn greet(&mut self, at: usize) {
        self.see_to_room(at);
        if let Err(error) = self.dial(at) {
            return self.conclude(at, Err(error));
        }
        if let Some(step) = self.step(at) {
            self.stepped(at, step);
        }
    }

    /// Takes a step of a greeting; `None` if there is none.
    fn step(&mut self, at: usize) -> Option<Result<Step>> {
        let Connections { greetings, sessions, epoll, .. } = &mut self.connections;
        let handshake = &mut greetings.get_mut(at)?.as_mut()?.handshake;
        let (paths, tally, peers) = (self.config.paths, &self.core.copies, &self.peers);
        let ticket = |session: &[u8; 16]| peers.get(*sessions.get(session)?)?.ticket();
        Some(handshake.step(clock::now_ns(), paths, tally, epoll, &ticket))
    }

    /// Acts on the result of a step of a greeting.
    fn stepped(&mut self, at: usize, step: Result<Step>) {
        let greeting = self.connections.greetings.get_mut(at).and_then(Option::as_mut);
        if let Some(session) = greeting.and_then(|it| it.handshake.take_readmitted()) {
            self.replaced(at, &session);
        }
        let result = match step {
            Ok(Step::More) => return,
            Ok(Step::Here(here)) => {
                let links = &mut self.connections;
                if let Some(greeting) = &mut links.greetings[at] {
                    let (about, now) = (token(GREETING, at as u32, 0), clock::now_ns());
                    let Greeting { handshake, granted, .. } = greeting;
                    handshake.upgrade_to_same_host(
                        &here,
                        &links.us,
                        *granted,
                        now,
                        &links.epoll,
                        about,
                    );
                }
                return self.greet(at);
            }
            Ok(Step::Done(outcome)) => Ok(outcome),
            Err(error) => match self.dial_on(at, error) {
                Some(error) => Err(error),
                None => return self.greet(at),
            },
        };
        self.conclude(at, result);
    }

    /// A greeting is over.
    pub(super) fn conclude(&mut self, at: usize, result: Result<Outcome>) {
        let Some(mut greeting) = self.connections.greetings.get_mut(at).and_then(Option::take)
        else {
            return;
        };
        let (granted, same_host) = (greeting.granted, greeting.same_host);
        let call = greeting.call.take();
        if result.is_err() {
            greeting.handshake.unwatch(&self.connections.epoll);
        }
        let joined = match (result, greeting.resumes) {
            (Ok(Outcome::Joins(pending)), None) => {
                pending.transport.unwatch(&self.connections.epoll);
                let admitted =
                    if same_host { self.connections.check_admitted(&pending) } else { Ok(()) };
                admitted.and_then(|()| self.join(*pending, granted))
            }
            (Ok(Outcome::Returns(back)), Some(id)) => {
                self.ungrant(granted);
                return self.returns(id, back);
            }
            (Err(error), Some(id)) => {
                self.ungrant(granted);
                return self.call_failed(id, &error);
            }
            (Err(error), None) => Err(error),
            // Neither side of a greeting takes the one outcome for the other.
            (Ok(_), _) => Err(Error::Closed),
        };
        drop(greeting);
        if let Err(error) = &joined {
            tracing::debug!(%error, "a greeting failed");
            self.ungrant(granted);
        }
        match (call, joined) {
            (Some(call), Ok(id)) => self.core.finish(call.op, Ok(Done::Connected(id))),
            (Some(call), Err(error)) => self.not_connected(call, error, Tried::Greeting),
            (None, Ok(id)) => self.came(id),
            (None, Err(_)) => {}
        }
        self.core.wakes.any = true;
    }

    /// A peer is connected.
    pub(crate) fn join(&mut self, pending: PendingPeer, granted: Limits) -> Result<PeerId> {
        #[cfg(test)]
        let pending = pending.with_faults(self.config.faults);
        let (model, own) = (self.core.model, self.connections.us.barrier_global);
        let reconnect_timeout = self.config.reconnect_timeout;
        let (status, endpoint) = (&mut self.core.status, pending.endpoint_id);
        let (label, place) = (pending.label.clone(), pending.place.clone());
        let copies = &self.core.copies;
        let id = self
            .peers
            .add(|id| Peer::new(id, pending, granted, model, own, copies, status.enlist(id)));
        let Some(peer) = self.peers.get_mut(id) else { return Err(Error::Closed) };
        self.core.introduce(peer, endpoint, &label, place.as_deref());
        self.core.status.peers_joined.add(1);
        if let Err(error) =
            self.connections.watch_peer(peer, &self.core, handshake::silence(reconnect_timeout))
        {
            // The credit granted to the peer is the caller's to take back.
            (peer.granted, peer.announced_max) = (0, 0);
            self.record_gone(id, Gone::Disconnected);
            return Err(error);
        }
        tracing::debug!(peer = peer.info.name, paths = ?peer.info.paths, "a peer joined");
        failpoint::hit(Point::Joined);
        self.heat(id.index);
        Ok(id)
    }
}

impl Connections {
    /// Has the epoll tell of a new peer.
    fn watch_peer(&mut self, peer: &mut Peer, core: &Core, silence: Duration) -> Result<()> {
        let (index, generation) = (peer.id.index, peer.id.generation);
        let about = token(SOCKET, index, generation);
        peer.transport.begin(&core.driver, silence);
        let watched = peer.transport.watch(&self.epoll, about);
        watched.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))?;
        if let Some(session) = &peer.session {
            self.sessions.insert(session.ticket.id, peer.id);
        }
        if let Some(pidfd) = &peer.cma_access.pidfd {
            watch(&self.epoll, pidfd, token(PROCESS, index, generation))?;
        }
        Ok(())
    }
}
