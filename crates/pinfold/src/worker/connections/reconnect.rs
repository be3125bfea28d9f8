//! Peers on other hosts whose connections broke: they are called again, or call, and go on.

use std::{net::SocketAddr, time::Duration};

use pinfold_sys::cpu::clock;
use rustix::io::Errno;

use super::{
    super::{
        credit::LEAST,
        handshakes::{Greeting, Handshake},
        peer::Peer,
        pending_peer::Session,
    },
    BELL, Connections, SOCKET, connect, token,
};
use crate::{
    Error, Gone, PeerId, Result,
    transport::{
        Back, Ended,
        tcp::{
            address::{Address, Host},
            dial::{Dial, Patience, Terms},
            greeting::Ticket,
            handshake,
            lookup::Lookup,
            reconnect::{Due, Reconnect},
        },
    },
    wire::tcp::greeting::Refusal,
    worker::{engine::Engine, polled, table::PeerTable, teardown, transport_progress},
};

impl Peer {
    /// The ticket by which the peer's session goes on now.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let (session, received) = (self.session.as_ref()?, self.transport.reached()?);
        let stays = !self.is_leaving();
        stays.then(|| Ticket { received, ..session.ticket.clone() })
    }
}

impl Connections {
    /// A peer is no longer waited for, nor called.
    pub(super) fn end_reconnect(&mut self, id: PeerId) {
        self.reconnecting.retain(|(peer, _)| *peer != id);
        self.end_greetings(id, None);
    }

    /// Gives up all greetings that are to lead a peer back, but for one.
    fn end_greetings(&mut self, id: PeerId, but: Option<usize>) {
        for (at, greeting) in self.greetings.iter_mut().enumerate() {
            if Some(at) != but
                && let Some(mut given_up) = greeting.take_if(|it| it.resumes == Some(id))
            {
                given_up.handshake.unwatch(&self.epoll);
            }
        }
    }
}

/// Returns whether a peer whose connection has ended is waited for.
pub(crate) fn may_return(engine: &mut Engine, id: PeerId, ended: Ended) -> bool {
    let why = match ended {
        Ended::Gone => Errno::CONNRESET.raw_os_error(),
        Ended::Broken(errno) => errno,
        Ended::Closed | Ended::Violation(_) => return false,
    };
    let Some(peer) = engine.peers.get_mut(id) else { return false };
    if engine.core.closed || peer.is_leaving() || peer.session.is_none() {
        return false;
    }
    go_without(engine, id, why);
    see_to_reconnecting(engine, clock::now_ns());
    true
}

/// A peer is without a connection from here on.
fn go_without(engine: &mut Engine, id: PeerId, why: i32) {
    let Some(peer) = engine.peers.get_mut(id) else { return };
    let epoll = &engine.connections.epoll;
    if !peer.transport.resume().is_some_and(|transport| transport.break_off(epoll)) {
        return;
    }
    let calls = peer.session.as_ref().is_some_and(|session| session.home.is_some());
    tracing::debug!(peer = peer.info.name, why, calls, "a connection broke");
    engine.connections.end_reconnect(id);
    // Without a random number there is at least the time.
    let chance = super::super::random().map_or_else(|_| clock::now_ns(), u64::from_ne_bytes);
    let reconnect =
        Reconnect::new(clock::now_ns(), engine.config.reconnect_timeout, calls, why, chance);
    engine.connections.reconnecting.push((id, reconnect));
    // A thread that sleeps has to do so for less long now.
    engine.kick = true;
    engine.core.wakes.any = true;
}

/// Calls the peers that are to be called, and gives up those that stayed away for too long.
pub(super) fn see_to_reconnecting(engine: &mut Engine, now_ns: u64) {
    let mut at = 0;
    while let Some((id, reconnect)) = engine.connections.reconnecting.get_mut(at) {
        let id = *id;
        at += 1;
        match reconnect.due(now_ns) {
            Due::Nothing => {}
            Due::Call(patience) => {
                if let Err(error) = call_again(engine, id, patience) {
                    call_failed(engine, id, &error);
                }
            }
            Due::GiveUp(why) => {
                at -= 1;
                engine.connections.end_reconnect(id);
                teardown::remove_peer(engine, id, Gone::Lost(why));
            }
        }
    }
}

/// Begins to call a peer again. Nothing here waits.
fn call_again(engine: &mut Engine, id: PeerId, patience: Duration) -> Result<()> {
    let Some(peer) = engine.peers.get_mut(id) else { return Ok(()) };
    let ticket = peer.ticket();
    let session = peer.session.as_mut();
    let Some(Session { home: Some(home), lookup, .. }) = session else { return Ok(()) };
    if ticket.is_none() {
        return Ok(());
    }
    if let Some(found) = lookup.as_ref().and_then(Lookup::take) {
        *lookup = None;
        if let Ok(places) = found {
            home.places = places;
        }
    }
    // The place where the peer was last is tried first.
    let places: Vec<_> = [home.to].into_iter().chain(home.places.iter().copied()).collect();
    let (name, now) = (home.address.clone(), clock::now_ns());
    let reconnect_timeout = engine.config.reconnect_timeout;
    let us = engine.connections.offer(LEAST, reconnect_timeout)?;
    let terms = Terms { us, ticket, silence: handshake::silence(reconnect_timeout) };
    let patience = Patience { connect: patience, greet: None, again: false };
    let dial = Dial::known(&name, &places, terms, patience, now);
    let handshake = Handshake::Dial(Box::new(dial));
    let greeting = Greeting { resumes: Some(id), ..Greeting::new(handshake, LEAST) };
    let at = engine.connections.add_greeting(greeting)?;
    connect::greet(engine, at);
    Ok(())
}

/// The end of a peer whose greeting at `to`, which was to lead it back, was `refused`; `None`
/// if it may still be there.
pub(super) fn gone_for_good(
    peers: &PeerTable,
    id: PeerId,
    refused: Option<Refusal>,
    to: SocketAddr,
) -> Option<Gone> {
    let session = peers.get(id)?.session.as_ref()?;
    // An endpoint that answers elsewhere may be another with the same name, also of the same
    // process.
    if session.home.as_ref()?.to != to {
        return None;
    }
    match refused? {
        Refusal::UnknownSession { incarnation } if incarnation == session.ticket.incarnation => {
            Some(Gone::Forgot)
        }
        Refusal::UnknownSession { .. } | Refusal::OtherEndpoint => Some(Gone::Died),
        _ => None,
    }
}

/// A greeting that was to lead a peer back has failed.
pub(super) fn call_failed(engine: &mut Engine, id: PeerId, error: &Error) {
    tracing::debug!(%error, ?id, "a peer did not come back");
    let Connections { lookups, reconnecting, .. } = &mut engine.connections;
    let session = engine.peers.get_mut(id).and_then(|peer| peer.session.as_mut());
    // Without a home it is the peer that calls, and it may do so once more.
    let Some(Session { home: Some(home), lookup, .. }) = session else { return };
    // The peer may be elsewhere; then that place is called as well.
    if lookup.is_none()
        && let Ok(address) = home.address.parse::<Address>()
        && matches!(address.host(), Host::Name(_))
    {
        *lookup = lookups.ask(&address);
    }
    if let Some((_, reconnect)) = reconnecting.iter_mut().find(|(peer, _)| *peer == id) {
        reconnect.failed(clock::now_ns(), errno_of(error));
    }
    engine.kick = true;
    engine.core.wakes.any = true;
}

/// A peer that has a session here calls: its connections are over, for it was told in this
/// greeting how much has come.
pub(super) fn replaced(engine: &mut Engine, at: usize, session: &[u8; 16]) {
    let Some(&id) = engine.connections.sessions.get(session) else { return };
    go_without(engine, id, Errno::CONNRESET.raw_os_error());
    engine.connections.end_greetings(id, Some(at));
    if let Some(greeting) = &mut engine.connections.greetings[at] {
        greeting.resumes = Some(id);
    }
}

/// A peer is back.
pub(super) fn returns(engine: &mut Engine, id: PeerId, back: Back) {
    let _ = engine.connections.epoll.remove(&back.socket);
    engine.connections.end_reconnect(id);
    let Some(peer) = engine.peers.get_mut(id) else { return };
    let home = peer.session.as_mut().and_then(|session| session.home.as_mut());
    if let Some((home, to)) = home.zip(back.to) {
        home.to = to;
    }
    let Some(transport) = peer.transport.resume() else { return };
    let resumed = transport.go_on(back);
    let news = token(SOCKET, id.index(), id.generation());
    let bell = token(BELL, id.index(), id.generation());
    let watched = peer.transport.watch(&engine.connections.epoll, news, bell);
    peer.info.encryption = peer.transport.encryption();
    peer.info.reconnections += 1;
    tracing::debug!(peer = peer.info.name, times = peer.info.reconnections, "a peer is back");
    polled::heat(engine, id.index());
    engine.kick = true;
    engine.core.wakes.any = true;
    let watched = watched.map_err(Ended::from);
    let turned = resumed.and(watched).and_then(|()| {
        let peer = engine.peers.get_mut(id);
        peer.map_or(Ok(false), |peer| transport_progress::turn(&mut engine.core, peer, false))
    });
    if let Err(ended) = turned {
        connection_ended(engine, id, ended);
    }
}

/// The `errno` of the error, as far as it is known.
fn errno_of(error: &Error) -> i32 {
    let errno = match error {
        Error::Os { source, .. } => source.raw_os_error(),
        Error::NameGone { .. } => Some(Errno::CONNREFUSED.raw_os_error()),
        Error::NoAnswer { .. } => Some(Errno::TIMEDOUT.raw_os_error()),
        _ => None,
    };
    errno.unwrap_or(Errno::CONNRESET.raw_os_error())
}

/// The connection with a peer on another host has ended, and with it the peer, unless it may
/// come back.
#[cold]
pub(crate) fn connection_ended(engine: &mut Engine, id: PeerId, ended: Ended) {
    if may_return(engine, id, ended) {
        return;
    }
    let how = match ended {
        Ended::Closed => Gone::Closed,
        Ended::Gone => Gone::Died,
        Ended::Broken(errno) => Gone::Lost(errno),
        Ended::Violation(violation) => Gone::Misbehaved(violation.0),
    };
    teardown::remove_peer(engine, id, how);
}
