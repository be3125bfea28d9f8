//! Joining: this endpoint calls, or is called, and greetings are taken as far as they go.

use std::time::Duration;

use pinfold_sys::cpu::clock;

use super::{
    super::{
        core::Core,
        handshakes::{Call, Greeting, Handshake, Step},
        op::Done,
        peer::Peer,
        pending_peer::{Outcome, PendingPeer},
    },
    BELL, Connections, GREETING, GREETINGS_MAX, LISTEN_AGAIN_NS, PROCESS, SOCKET,
    accept_budget::TURN_NS,
    accepts, reconnect, tcp_connect, token,
    tries::{self, Tried},
    watch,
};
use crate::{
    Error, Gone, PeerId, Result,
    failpoint::{self, Point},
    status::Tally,
    transport::{
        local::{self, Address, Limits},
        tcp::{handshake, unauthenticated::Caller},
    },
    worker::{credit, ends, engine::Engine, gauges, polled, teardown},
};

/// Makes a call to an endpoint on this host.
pub(super) fn call(engine: &mut Engine, address: &Address, call: Call) {
    let begun = begin_here(engine, address);
    greet_for(engine, call, begun);
}

fn begin_here(engine: &mut Engine, address: &Address) -> Result<(Handshake, Limits)> {
    room_for_peer(engine)?;
    let now = clock::now_ns();
    let granted = credit::grant(&mut engine.core.grants, false);
    let patience = engine.config.connect_timeout;
    let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX / 4);
    let handshake = local::Handshake::connect(
        address,
        &engine.connections.us,
        granted,
        now,
        patience.min(u64::MAX / 4),
    );
    let handshake = handshake.inspect_err(|_| credit::ungrant(&mut engine.core.grants, granted))?;
    Ok((Handshake::Shm(Box::new(handshake)), granted))
}

/// Goes on with a call whose greeting has `begun`, unless it could not.
pub(super) fn greet_for(engine: &mut Engine, call: Call, begun: Result<(Handshake, Limits)>) {
    let added = begun.and_then(|(handshake, granted)| {
        let added = engine.connections.add_greeting(Greeting::new(handshake, granted));
        added.inspect_err(|_| credit::ungrant(&mut engine.core.grants, granted))
    });
    match added {
        Ok(at) => {
            if let Some(greeting) = &mut engine.connections.greetings[at] {
                greeting.call = Some(call);
            }
            engine.kick = true;
            greet(engine, at);
        }
        Err(error) => tries::not_connected(engine, call, error, Tried::AtOnce),
    }
}

pub(super) fn room_for_peer(engine: &Engine) -> Result<()> {
    let greetings = engine.connections.greetings.iter().flatten();
    let coming = greetings.filter(|greeting| greeting.takes_place()).count();
    if engine.peers.live() + coming >= engine.config.peers_max {
        return Err(Error::LimitReached {
            what: "the number of peers of this endpoint",
            limit: engine.config.peers_max as u64,
            remedy: "raise Builder::peers_max, or disconnect some",
        });
    }
    Ok(())
}

/// Takes callers off a listener's queue: that of the local name, or of the one beside it.
pub(super) fn answer_callers(engine: &mut Engine, same_host: bool) {
    let mut turned_away = 0;
    let end = clock::now_ns() + TURN_NS;
    while clock::now_ns() < end {
        let greetings = engine.connections.greetings.iter().flatten();
        let theirs = greetings.filter(|it| it.call.is_none() && it.takes_place()).count();
        if theirs + turned_away >= GREETINGS_MAX {
            return;
        }
        let Connections { listener, same_host: other, epoll, .. } = &mut engine.connections;
        let listener = if same_host { other } else { listener };
        let Some(listener) = listener else { return };
        match listener.accept() {
            Ok(Some((socket, who))) => {
                // A caller that was sent here by a connection has its place already.
                let room = same_host || room_for_peer(engine).is_ok();
                let granted = credit::grant(&mut engine.core.grants, false);
                let handshake = local::Handshake::accepted(
                    socket,
                    who,
                    &engine.config.access,
                    &engine.connections.us,
                    granted,
                    room,
                    engine.config.peers_max as u64,
                    clock::now_ns(),
                );
                answer(engine, Handshake::Shm(Box::new(handshake)), granted, same_host, None);
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
                engine.connections.listen_again_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
                return;
            }
        }
    }
}

pub(super) fn answer(
    engine: &mut Engine,
    handshake: Handshake,
    granted: Limits,
    same_host: bool,
    caller: Option<Caller>,
) {
    let greeting = Greeting { same_host, caller, ..Greeting::new(handshake, granted) };
    match engine.connections.add_greeting(greeting) {
        Ok(at) => greet(engine, at),
        Err(error) => {
            tracing::warn!(%error, "a caller was turned away");
            credit::ungrant(&mut engine.core.grants, granted);
        }
    }
}

/// Takes a greeting as far as it goes.
pub(super) fn greet(engine: &mut Engine, at: usize) {
    tcp_connect::see_to_room(engine, at);
    if let Err(error) = tcp_connect::dial(engine, at) {
        return conclude(engine, at, Err(error));
    }
    if let Some(step) = step(engine, at) {
        stepped(engine, at, step);
    }
}

/// Takes a step of a greeting; `None` if there is none.
fn step(engine: &mut Engine, at: usize) -> Option<Result<Step>> {
    let Connections { greetings, sessions, epoll, .. } = &mut engine.connections;
    let handshake = &mut greetings.get_mut(at)?.as_mut()?.handshake;
    let (paths, tally, peers) = (engine.config.paths, &engine.core.copies, &engine.peers);
    let ticket = |session: &[u8; 16]| peers.get(*sessions.get(session)?)?.ticket();
    Some(handshake.step(clock::now_ns(), paths, tally, epoll, &ticket))
}

/// Acts on the result of a step of a greeting.
fn stepped(engine: &mut Engine, at: usize, step: Result<Step>) {
    let greeting = engine.connections.greetings.get_mut(at).and_then(Option::as_mut);
    if let Some(session) = greeting.and_then(|it| it.handshake.take_readmitted()) {
        reconnect::replaced(engine, at, &session);
    }
    let result = match step {
        Ok(Step::More) => return,
        Ok(Step::Here(here)) => {
            let links = &mut engine.connections;
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
            return greet(engine, at);
        }
        Ok(Step::Done(outcome)) => Ok(outcome),
        Err(error) => match tcp_connect::dial_on(engine, at, error) {
            Some(error) => Err(error),
            None => return greet(engine, at),
        },
    };
    conclude(engine, at, result);
}

/// A greeting is over.
pub(super) fn conclude(engine: &mut Engine, at: usize, result: Result<Outcome>) {
    let Some(mut greeting) = engine.connections.greetings.get_mut(at).and_then(Option::take) else {
        return;
    };
    let (granted, same_host) = (greeting.granted, greeting.same_host);
    let call = greeting.call.take();
    if result.is_err() {
        greeting.handshake.unwatch(&engine.connections.epoll);
    }
    let joined = match (result, greeting.resumes) {
        (Ok(Outcome::Joins(pending)), None) => {
            pending.transport.unwatch(&engine.connections.epoll);
            let admitted =
                if same_host { engine.connections.check_admitted(&pending) } else { Ok(()) };
            admitted.and_then(|()| join(engine, *pending, granted))
        }
        (Ok(Outcome::Returns(back)), Some(id)) => {
            credit::ungrant(&mut engine.core.grants, granted);
            return reconnect::returns(engine, id, back);
        }
        (Err(error), Some(id)) => {
            credit::ungrant(&mut engine.core.grants, granted);
            return reconnect::call_failed(engine, id, &error);
        }
        (Err(error), None) => Err(error),
        // Neither side of a greeting takes the one outcome for the other.
        (Ok(_), _) => Err(Error::Closed),
    };
    drop(greeting);
    if let Err(error) = &joined {
        tracing::debug!(%error, "a greeting failed");
        credit::ungrant(&mut engine.core.grants, granted);
    }
    match (call, joined) {
        (Some(call), Ok(id)) => ends::finish(&mut engine.core, call.op, Ok(Done::Connected(id))),
        (Some(call), Err(error)) => tries::not_connected(engine, call, error, Tried::Greeting),
        (None, Ok(id)) => accepts::came(engine, id),
        (None, Err(_)) => {}
    }
    engine.core.wakes.any = true;
}

/// A peer is connected.
pub(crate) fn join(engine: &mut Engine, pending: PendingPeer, granted: Limits) -> Result<PeerId> {
    #[cfg(test)]
    let pending = pending.with_faults(engine.config.faults);
    let (model, own) = (engine.core.model, engine.connections.us.barrier_global);
    let reconnect_timeout = engine.config.reconnect_timeout;
    let (status, endpoint) = (&mut engine.core.status, pending.endpoint_id);
    let (label, place) = (pending.label.clone(), pending.place.clone());
    let copies = &engine.core.copies;
    let id = engine
        .peers
        .add(|id| Peer::new(id, pending, granted, model, own, copies, status.enlist(id)));
    let Some(peer) = engine.peers.get_mut(id) else { return Err(Error::Closed) };
    gauges::introduce(
        &engine.core.ops,
        &engine.core.status,
        peer,
        endpoint,
        &label,
        place.as_deref(),
    );
    engine.core.status.peers_joined.add(1);
    if let Err(error) =
        engine.connections.watch_peer(peer, &engine.core, handshake::silence(reconnect_timeout))
    {
        // The credit granted to the peer is the caller's to take back.
        (peer.granted, peer.announced_max) = (0, 0);
        teardown::record_gone(engine, id, Gone::Disconnected);
        return Err(error);
    }
    tracing::debug!(peer = peer.info.name, paths = ?peer.info.paths, "a peer joined");
    failpoint::hit(Point::Joined);
    polled::heat(engine, id.index());
    Ok(id)
}

impl Connections {
    /// Has the epoll tell of a new peer.
    fn watch_peer(&mut self, peer: &mut Peer, core: &Core, silence: Duration) -> Result<()> {
        let (index, generation) = (peer.id.index(), peer.id.generation());
        let news = token(SOCKET, index, generation);
        let bell = token(BELL, index, generation);
        peer.transport.begin(&core.driver, silence);
        let watched = peer.transport.watch(&self.epoll, news, bell);
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
