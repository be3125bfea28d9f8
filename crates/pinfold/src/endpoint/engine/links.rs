//! The engine's descriptors: the listener, greetings under way, peers' sockets and processes.

mod afar;
mod away;
mod beside;

use std::{io, net::SocketAddr, os::fd::AsFd, sync::Arc, time::Duration};

use pinfold_sys::{
    alarm::Alarm,
    barrier, clock,
    poll::{Epoll, EventFd, Events, Interest},
};
use rustc_hash::FxHashMap;

use super::{
    Engine,
    greetings::{Greeting, Handshake, Step},
    joining::{Joining, Outcome},
    line::Line,
    mail::Mail,
    peer::Peer,
};
use crate::{
    Error, Gone, PeerId, Result, arena,
    endpoint::config::Config,
    failpoint::{self, Point},
    link::{
        local::{self, Address, Limits, Listener, Us},
        tcp::{
            self,
            absence::Absence,
            key::Key,
            outlet::{Driver, Outlet},
        },
    },
    status::Tally,
};

/// Greetings under way at a time that others began, and callers turned away at a time. Further
/// ones wait in the listener's queue.
const GREETINGS_MAX: usize = 128;
/// Events taken from the kernel at a time.
const EVENTS_AT_ONCE: usize = 64;

/// How long callers wait after there was no descriptor left to answer one with.
const LISTEN_AGAIN_NS: u64 = 100_000_000;

const KIND_SHIFT: u32 = 61;
const LISTENER: u64 = 0;
const KICK: u64 = 1;
const GREETING: u64 = 2;
const SOCKET: u64 = 3;
const PROCESS: u64 = 4;
const RING: u64 = 5;
const ALARM: u64 = 6;
/// The index of the listener for other hosts; that of this host has 0.
const AFAR: u32 = 1;
/// That of the listener for those who called by host and port and are on this host.
const BESIDE: u32 = 2;

fn token(kind: u64, index: u32, generation: u32) -> u64 {
    kind << KIND_SHIFT | u64::from(generation & 0x1fff_ffff) << 32 | u64::from(index)
}

pub(crate) struct Links {
    epoll: Arc<Epoll>,
    pub kick: Arc<EventFd>,
    /// Tells a caller that waits on the endpoint's descriptor what the endpoint's own thread has
    /// done meanwhile.
    pub bell: EventFd,
    /// Wakes a caller that waits on the endpoint's descriptor when something is due; made when the first is.
    alarm: Option<Alarm>,
    listener: Option<Listener>,
    /// Where peers on other hosts can call.
    afar: Option<tcp::listener::Listener>,
    /// Where those of them can call that are on this host.
    beside: Option<Listener>,
    /// Whether to look for such.
    shortcut: bool,
    key: Option<Arc<Key>>,
    us: Us,
    greetings: Vec<Option<Greeting>>,
    /// Peers whose connections may break, by their sessions.
    sessions: FxHashMap<[u8; 16], PeerId>,
    /// Peers without a connection.
    absent: Vec<(PeerId, Absence)>,
    /// Results of connecting that nobody has fetched.
    connected: Vec<(u64, Result<PeerId>)>,
    calls: u64,
    /// When to listen again, after there was no descriptor left to answer a caller with.
    listen_again_ns: Option<u64>,
}

impl Links {
    pub(crate) fn open(config: &Config, epoll: Arc<Epoll>) -> Result<Links> {
        let endpoint_id = super::random()?;
        let us = Us {
            endpoint_id,
            label: config.label.clone(),
            paths: config.paths,
            barrier_global: barrier::register() && barrier::global_available(),
        };
        let kick = EventFd::new().map_err(|error| Error::os("eventfd", "the endpoint", error))?;
        let bell = EventFd::new().map_err(|error| Error::os("eventfd", "the endpoint", error))?;
        let kick = Arc::new(kick);
        watch(&epoll, &*kick, token(KICK, 0, 0))?;
        arena::wake_when_gone(&kick);
        let listener = match &config.listen {
            Some(address) => {
                let listener = Listener::bind(address, &config.access)?;
                watch(&epoll, listener.fd(), token(LISTENER, 0, 0))?;
                Some(listener)
            }
            None => None,
        };
        let afar = match &config.listen_afar {
            Some(address) => {
                let listener = tcp::listener::Listener::bind(address, config.key.as_ref())?;
                watch(&epoll, listener.fd(), token(LISTENER, AFAR, 0))?;
                Some(listener)
            }
            None => None,
        };
        let beside = afar.as_ref().and_then(|_| beside::listen(config, &us, &epoll));
        Ok(Links {
            epoll,
            kick,
            bell,
            alarm: None,
            listener,
            afar,
            beside,
            shortcut: config.local_shortcut,
            key: config.key.clone(),
            us,
            greetings: Vec::new(),
            sessions: FxHashMap::default(),
            absent: Vec::new(),
            connected: Vec::new(),
            calls: 0,
            listen_again_ns: None,
        })
    }

    /// What this endpoint calls itself to others.
    pub(crate) fn endpoint_id(&self) -> [u8; 16] {
        self.us.endpoint_id
    }

    /// Whether a peer can still join.
    pub(crate) fn may_join(&self) -> bool {
        self.listens() || self.greetings.iter().any(Option::is_some)
    }

    /// Whether others can connect.
    pub(crate) fn listens(&self) -> bool {
        self.listener.is_some() || self.afar.is_some()
    }

    /// Where peers on other hosts can call.
    pub(crate) fn listens_afar(&self) -> Option<SocketAddr> {
        self.afar.as_ref().map(tcp::listener::Listener::at)
    }

    /// When the next greeting runs out of time.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let greetings = self.greetings.iter().flatten();
        let greetings = greetings.map(|greeting| greeting.handshake.deadline_ns());
        let absent = self.absent.iter().map(|(_, absence)| absence.due_ns());
        greetings.chain(absent).chain(self.listen_again_ns).min()
    }

    /// Has the endpoint's descriptor become readable at a time, or no more at any.
    pub(crate) fn set_alarm(&mut self, at_ns: Option<u64>) -> io::Result<()> {
        if self.alarm.is_none() && at_ns.is_some() {
            let alarm = Alarm::new()?;
            self.epoll.add(&alarm, token(ALARM, 0, 0), Interest::Read)?;
            self.alarm = Some(alarm);
        }
        self.alarm.as_ref().map_or(Ok(()), |alarm| alarm.set(at_ns))
    }

    /// Stops watching a peer.
    pub(crate) fn forget(&mut self, peer: &Peer) {
        // Closing would do, were it not for copies of the descriptors in forked children.
        peer.line.unwatch(&self.epoll);
        if let Some(pidfd) = &peer.reach.pidfd {
            let _ = self.epoll.remove(pidfd);
        }
        if let Some(session) = &peer.session {
            self.sessions.remove(&session.ticket.id);
            self.end_absence(peer.id);
        }
    }

    /// The result of a call to connect.
    pub(crate) fn take_connected(&mut self, call: u64) -> Option<Result<PeerId>> {
        let at = self.connected.iter().position(|(other, _)| *other == call)?;
        Some(self.connected.swap_remove(at).1)
    }

    pub(crate) fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = self.epoll.remove(listener.fd());
        }
        if let Some(listener) = self.afar.take() {
            let _ = self.epoll.remove(listener.fd());
        }
        if let Some(listener) = self.beside.take() {
            let _ = self.epoll.remove(listener.fd());
        }
        self.greetings.clear();
        self.absent.clear();
    }

    /// Leaves everything to the process this one was forked from.
    pub(crate) fn forsake(&mut self) {
        self.listener = None;
        self.afar = None;
        self.beside = None;
        std::mem::forget(std::mem::take(&mut self.greetings));
    }

    fn add_greeting(&mut self, greeting: Greeting) -> Result<usize> {
        let at = match self.greetings.iter().position(Option::is_none) {
            Some(at) => at,
            None => {
                self.greetings.push(None);
                self.greetings.len() - 1
            }
        };
        greeting.handshake.watch(&self.epoll, token(GREETING, at as u32, 0))?;
        self.greetings[at] = Some(greeting);
        Ok(at)
    }
}

fn watch(epoll: &Epoll, fd: impl AsFd, token: u64) -> Result<()> {
    let readable = Interest::Read;
    epoll.add(fd, token, readable).map_err(|error| Error::os("epoll_ctl", "the endpoint", error))
}

/// What sends long messages of an endpoint to other hosts.
pub(super) fn driver(config: &Config, epoll: &Arc<Epoll>) -> Arc<Driver> {
    Arc::new(Driver::new(config.sending, Arc::clone(epoll), token(RING, 0, 0)))
}

impl Engine {
    /// Begins to connect. The result comes under the number returned.
    pub(crate) fn call(&mut self, address: &Address, patience: Duration) -> Result<u64> {
        self.room_for_peer()?;
        let now = clock::now_ns();
        let granted = self.grant();
        let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4);
        let handshake = local::Handshake::connect(
            address,
            &self.links.us,
            granted,
            now,
            patience.min(u64::MAX / 4),
        );
        let handshake = handshake.inspect_err(|_| self.ungrant(granted))?;
        self.greet_by(Handshake::Host(Box::new(handshake)), granted)
    }

    fn greet_by(&mut self, handshake: Handshake, granted: Limits) -> Result<u64> {
        self.links.calls += 1;
        let call = self.links.calls;
        let greeting =
            Greeting { handshake, granted, call: Some(call), beside: false, resumes: None };
        let at = self.links.add_greeting(greeting)?;
        self.kick = true;
        self.greet(at);
        Ok(call)
    }

    fn room_for_peer(&self) -> Result<()> {
        let coming = self.links.greetings.iter().flatten().count();
        if self.peers.live() + coming >= self.config.peers_max {
            return Err(Error::LimitReached {
                what: "the number of peers of this endpoint",
                limit: self.config.peers_max as u64,
                remedy: "raise Builder::peers_max, or disconnect some",
            });
        }
        Ok(())
    }

    /// Sets credit aside for a peer that may be about to join.
    pub(crate) fn grant(&mut self) -> Limits {
        let granted = self.config.grant(self.grants.left());
        let cost = self.config.grant_cost(granted.unexpected_bytes, granted.rendezvous_max);
        if self.grants.take(cost) {
            return granted;
        }
        // The budget is spent: one announcement at a time, which any budget stands.
        Limits { unexpected_bytes: 0, rendezvous_max: 1 }
    }

    /// Takes the credit back that was set aside.
    pub(crate) fn ungrant(&mut self, granted: Limits) {
        if granted.unexpected_bytes > 0 || granted.rendezvous_max > 1 {
            let cost = self.config.grant_cost(granted.unexpected_bytes, granted.rendezvous_max);
            self.grants.give(cost);
        }
    }

    /// Looks at every descriptor that has something to say. Whether any had.
    pub(crate) fn handle_events(&mut self) -> bool {
        let mut events = Events::with_capacity(EVENTS_AT_ONCE);
        let epoll = Arc::clone(&self.links.epoll);
        if let Err(error) = epoll.wait(&mut events, Some(Duration::ZERO)) {
            tracing::warn!(%error, "epoll_wait");
            return false;
        }
        self.see_to_due();
        let mut any = false;
        for event in events.iter() {
            let (kind, index) = (event.token >> KIND_SHIFT, event.token as u32);
            let generation = (event.token >> 32) as u32 & 0x1fff_ffff;
            let peer = self.peers.at_mut(index);
            let peer = peer.filter(|peer| peer.id.generation & 0x1fff_ffff == generation);
            match (kind, peer) {
                (LISTENER, _) if index == AFAR => self.answer_callers_from_afar(),
                (LISTENER, _) => self.answer_callers(index == BESIDE),
                (KICK, _) => {
                    let _ = self.links.kick.clear();
                    self.tell_of_gone_arenas();
                }
                (GREETING, _) => self.greet(index as usize),
                (ALARM, _) => {
                    // What is due was just seen to.
                    let _ = self.links.alarm.as_ref().map(Alarm::clear);
                }
                (RING, _) => {
                    if !self.land() {
                        continue;
                    }
                }
                (SOCKET, Some(peer)) => {
                    let id = peer.id;
                    if peer.line.is_wire() {
                        match self.core.turn(peer, false) {
                            Ok(_) => self.heat(index),
                            Err(ended) => self.connection_ended(id, ended),
                        }
                        any = true;
                        continue;
                    }
                    match self.core.take_parcels(peer) {
                        Ok(Mail::Closed) => {
                            let how = if peer.rx.is_closed() { Gone::Closed } else { Gone::Died };
                            self.remove_peer(id, how);
                        }
                        Ok(Mail::Some) => self.heat(index),
                        Ok(Mail::None) => continue,
                        Err(violation) => self.cut_off(id, violation),
                    }
                }
                (PROCESS, Some(peer)) => {
                    let id = peer.id;
                    let how = if peer.rx.is_closed() { Gone::Closed } else { Gone::Died };
                    self.remove_peer(id, how);
                }
                _ => continue,
            }
            any = true;
        }
        any
    }

    /// Takes callers off a listener's queue: that of the local name, or of the one beside.
    fn answer_callers(&mut self, beside: bool) {
        let mut turned_away = 0;
        loop {
            if self.links.greetings.iter().flatten().count() + turned_away >= GREETINGS_MAX {
                return;
            }
            let Links { listener, beside: other, epoll, .. } = &mut self.links;
            let listener = if beside { other } else { listener };
            let Some(listener) = listener else { return };
            match listener.accept() {
                Ok(Some((socket, who))) => {
                    // Who comes from a connection has its place already.
                    let room = beside || self.room_for_peer().is_ok();
                    let granted = self.grant();
                    let handshake = local::Handshake::accepted(
                        socket,
                        who,
                        &self.config.access,
                        &self.links.us,
                        granted,
                        room,
                        self.config.peers_max as u64,
                        clock::now_ns(),
                    );
                    self.answer(Handshake::Host(Box::new(handshake)), granted, beside);
                }
                Ok(None) => return,
                Err(error) if listener.turn_away(&error) => {
                    tracing::warn!(%error, "a caller was turned away");
                    turned_away += 1;
                }
                Err(error) => {
                    // Not even a word for the caller: it stays queued, and the listener is left
                    // alone for a while, or it would keep the endpoint awake.
                    tracing::warn!(%error, "a caller cannot be answered now");
                    let _ = epoll.remove(listener.fd());
                    self.links.listen_again_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
                    return;
                }
            }
        }
    }

    fn answer(&mut self, handshake: Handshake, granted: Limits, beside: bool) {
        let greeting = Greeting { handshake, granted, call: None, beside, resumes: None };
        match self.links.add_greeting(greeting) {
            Ok(at) => self.greet(at),
            Err(error) => {
                tracing::warn!(%error, "a caller was turned away");
                self.ungrant(granted);
            }
        }
    }

    /// Takes a greeting as far as it goes.
    fn greet(&mut self, at: usize) {
        let Links { greetings, sessions, epoll, .. } = &mut self.links;
        let Some(greeting) = greetings.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let (paths, tally, peers) = (self.config.paths, &self.core.copies, &self.peers);
        let now = clock::now_ns();
        let ticket = |session: &[u8; 16]| peers.get(*sessions.get(session)?)?.ticket();
        let step = greeting.handshake.step(now, paths, tally, epoll, &ticket);
        if let Some(session) = greeting.handshake.take_readmitted() {
            self.replaced(at, &session);
        }
        let result = match step {
            Ok(Step::More) => return,
            Ok(Step::Here(here)) => {
                let links = &mut self.links;
                if let Some(greeting) = &mut links.greetings[at] {
                    let about = token(GREETING, at as u32, 0);
                    let Greeting { handshake, granted, .. } = greeting;
                    handshake.go_beside(&here, &links.us, *granted, now, &links.epoll, about);
                }
                return self.greet(at);
            }
            Ok(Step::Done(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        };
        let Some(greeting) = self.links.greetings[at].take() else { return };
        let (granted, call, beside) = (greeting.granted, greeting.call, greeting.beside);
        if result.is_err() {
            greeting.handshake.unwatch(&self.links.epoll);
        }
        let joined = match (result, greeting.resumes) {
            (Ok(Outcome::Joins(joining)), None) => {
                joining.line.unwatch(&self.links.epoll);
                let admitted = if beside { self.links.check_admitted(&joining) } else { Ok(()) };
                admitted.and_then(|()| self.join(*joining, granted))
            }
            (Ok(Outcome::Returns(back)), Some(id)) => {
                self.ungrant(granted);
                return self.returns(id, back);
            }
            (Err(error), Some(id)) => {
                self.ungrant(granted);
                return self.call_failed(id, &error, greeting.handshake.refused());
            }
            (Err(error), None) => Err(error),
            // Neither side of a greeting takes the one for the other.
            (Ok(_), _) => Err(Error::Closed),
        };
        drop(greeting);
        if let Err(error) = &joined {
            tracing::debug!(%error, "a greeting failed");
            self.ungrant(granted);
        }
        match (call, joined) {
            (Some(call), joined) => self.links.connected.push((call, joined)),
            (None, Ok(id)) => self.newcomers.push_back(id),
            (None, Err(_)) => {}
        }
        self.core.wakes.any = true;
    }

    /// A peer is connected.
    pub(crate) fn join(&mut self, joining: Joining, granted: Limits) -> Result<PeerId> {
        let (model, own) = (self.core.model, self.links.us.barrier_global);
        let (status, endpoint) = (&mut self.core.status, joining.endpoint_id);
        let (label, place) = (joining.label.clone(), joining.place.clone());
        let copies = &self.core.copies;
        let id = self
            .peers
            .add(|id| Peer::new(id, joining, granted, model, own, copies, status.enlist(id)));
        let Some(peer) = self.peers.get_mut(id) else { return Err(Error::Closed) };
        self.core.introduce(peer, endpoint, &label, place.as_deref());
        let (index, generation) = (id.index, id.generation);
        let about = token(SOCKET, index, generation);
        match &mut peer.line {
            Line::Host(socket) => watch(&self.links.epoll, socket, about)?,
            Line::Wire(bridge) => {
                bridge.leave_by(Outlet::new(Arc::clone(&self.core.driver)));
                let watched = bridge.socket().map_or(Ok(()), |socket| {
                    self.links.epoll.add(socket, about, Interest::Changes)
                });
                watched.map_err(|error| Error::os("epoll_ctl", "the endpoint", error))?;
            }
        }
        if let Some(session) = &peer.session {
            self.links.sessions.insert(session.ticket.id, id);
        }
        if let Some(pidfd) = &peer.reach.pidfd {
            watch(&self.links.epoll, pidfd, token(PROCESS, index, generation))?;
        }
        tracing::debug!(peer = peer.info.name, paths = ?peer.info.paths, "a peer joined");
        failpoint::hit(Point::Joined);
        self.core.status.peers_joined.add(1);
        self.heat(index);
        Ok(id)
    }

    /// Sees to what was due by now.
    fn see_to_due(&mut self) {
        let now = clock::now_ns();
        if self.links.listen_again_ns.is_some_and(|at| now >= at) {
            self.links.listen_again_ns = None;
            if let Some(listener) = &self.links.listener
                && let Err(error) = watch(&self.links.epoll, listener.fd(), token(LISTENER, 0, 0))
            {
                tracing::warn!(%error, "the listener cannot be watched");
            }
            if let Some(listener) = &self.links.afar {
                // One of them may be watched still.
                let _ = watch(&self.links.epoll, listener.fd(), token(LISTENER, AFAR, 0));
            }
            if let Some(listener) = &self.links.beside {
                let _ = watch(&self.links.epoll, listener.fd(), token(LISTENER, BESIDE, 0));
            }
        }
        self.see_to_absent(now);
        for at in 0..self.links.greetings.len() {
            if let Some(greeting) = &self.links.greetings[at]
                && now >= greeting.handshake.deadline_ns()
            {
                self.greet(at);
            }
        }
    }
}
