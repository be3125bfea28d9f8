//! Calls to other hosts, and from them.

use std::{mem, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use pinfold_sys::{cpu::clock, mem::memfd};

use super::{
    super::handshakes::{self, Call, Greeting, Handshake},
    Connections, GREETING, LISTEN_AGAIN_NS,
    accept_budget::TURN_NS,
    connect, reconnect, token,
};
use crate::{
    Error, Result,
    transport::{
        local::{Limits, Us},
        tcp::{
            self,
            address::Address,
            congestion::HostsWay,
            dial::{Dial, Dialled, Patience, Terms},
            handshake::{self, Handshake as Wire},
            happy_eyeballs::Failed,
            unauthenticated::{self, Caller, Room},
        },
    },
    wire::{
        layout::SEGMENT_BYTES,
        tcp::{greeting::Refusal, offer::Offer},
    },
    worker::{config::Config, credit, engine::Engine, teardown},
};

impl Connections {
    /// Callers from other hosts that have not shown the key.
    fn unauthenticated(&self) -> Vec<(usize, Caller)> {
        let greetings = self.greetings.iter().enumerate();
        greetings.filter_map(|(at, it)| Some((at, it.as_ref()?.tcp_peer()?))).collect()
    }

    /// The greeting's offer of this endpoint. `reconnect_timeout`: how long it waits for a peer to
    /// come back.
    pub(super) fn offer(&self, granted: Limits, reconnect_timeout: Duration) -> Result<Offer> {
        let Us { endpoint_id, label, paths, .. } = &self.us;
        let here = (self.shortcut, self.local_name());
        let resumes = !reconnect_timeout.is_zero();
        handshakes::offer(*endpoint_id, label, granted, *paths, here, resumes, self.encrypts)
    }
}

/// Makes a call to an endpoint on another host.
pub(super) fn call_tcp(engine: &mut Engine, address: &Address, patience: Patience, call: Call) {
    let begun = begin_tcp(engine, address, patience);
    connect::greet_for(engine, call, begun);
}

fn begin_tcp(
    engine: &mut Engine,
    address: &Address,
    patience: Patience,
) -> Result<(Handshake, Limits)> {
    connect::room_for_peer(engine)?;
    let granted = credit::grant(&mut engine.core.grants, true);
    let reconnect_timeout = engine.config.reconnect_timeout;
    let us = engine
        .connections
        .offer(granted, reconnect_timeout)
        .inspect_err(|_| credit::ungrant(&mut engine.core.grants, granted))?;
    let terms = Terms { us, ticket: None, silence: handshake::silence(reconnect_timeout) };
    let dial = Dial::new(address, terms, patience, clock::now_ns());
    Ok((Handshake::Dial(Box::new(dial)), granted))
}

/// Goes on with the calls of a greeting that has no connection yet; once there is one, the
/// greeting begins there.
///
/// # Errors
/// Why there will be no connection.
pub(super) fn dial(engine: &mut Engine, at: usize) -> Result<()> {
    let Connections { greetings, epoll, key, lookups, .. } = &mut engine.connections;
    let greeting = greetings.get_mut(at).and_then(Option::as_mut);
    let Some(Greeting { handshake, dial: calls, .. }) = greeting else { return Ok(()) };
    let Handshake::Dial(dial) = handshake else { return Ok(()) };
    let (now, about) = (clock::now_ns(), token(GREETING, at as u32, 0));
    let due_ns = dial.due_ns();
    loop {
        match dial.step(now, key.as_ref(), lookups, epoll, about) {
            Ok(Dialled::More) => {
                // A thread that sleeps may have to do so for less long.
                engine.kick |= dial.due_ns() < due_ns;
                return Ok(());
            }
            Ok(Dialled::There(there)) => {
                let to = there.to;
                match Wire::connected(dial.name(), *there, &dial.terms) {
                    Ok(wire) => {
                        let greets = Handshake::Tcp(Box::new(wire), None);
                        if let Handshake::Dial(dial) = mem::replace(handshake, greets) {
                            *calls = Some(dial);
                        }
                        return Ok(());
                    }
                    Err(error) => dial.failed(now, to, error, Failed::ForGood),
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// A greeting has failed: if others can be called, goes on with them, and the greeting is to be
/// taken further. If not, hands the error back.
pub(super) fn dial_on(engine: &mut Engine, at: usize, error: Error) -> Option<Error> {
    let greeting = engine.connections.greetings.get(at)?.as_ref();
    let Handshake::Tcp(wire, _) = &greeting?.handshake else { return Some(error) };
    let Some((to, how)) = wire.how_failed(&error) else { return Some(error) };
    if let Some(id) = greeting?.resumes
        && let Some(gone) = reconnect::gone_for_good(&engine.peers, id, wire.refused(), to)
    {
        connect::conclude(engine, at, Err(error));
        engine.connections.end_reconnect(id);
        teardown::remove_peer(engine, id, gone);
        return None;
    }
    let greeting = engine.connections.greetings.get_mut(at)?.as_mut()?;
    let Some(mut dial) = greeting.dial.take() else { return Some(error) };
    greeting.handshake.unwatch(&engine.connections.epoll);
    dial.failed(clock::now_ns(), to, error, how);
    greeting.handshake = Handshake::Dial(dial);
    None
}

/// A name was looked up.
pub(super) fn dial_by_names(engine: &mut Engine) {
    for at in 0..engine.connections.greetings.len() {
        let greeting = engine.connections.greetings[at].as_ref();
        if greeting.is_some_and(|it| matches!(it.handshake, Handshake::Dial(_))) {
            connect::greet(engine, at);
        }
    }
}

/// Takes callers from other hosts off the listener's queue.
pub(super) fn accept_tcp_callers(engine: &mut Engine) {
    let end = clock::now_ns() + TURN_NS;
    while let Some(listener) = &engine.connections.tcp {
        let now = clock::now_ns();
        if now >= end {
            return;
        }
        let room = unauthenticated::room(&engine.connections.unauthenticated(), now);
        if let Room::Later(at_ns) = room {
            // They stay queued, and the listener is left alone, or it would keep the endpoint
            // awake.
            listener.unwatch(&engine.connections.epoll);
            engine.connections.listen_again_ns = Some(at_ns);
            return;
        }
        match listener.accept() {
            Ok(Some((socket, from))) => {
                if let Room::InPlaceOf(at) = room {
                    show_out(engine, at);
                }
                if let Err(error) = accept_tcp_caller(engine, socket, from) {
                    tracing::warn!(%error, "a caller was turned away");
                }
            }
            Ok(None) => return,
            Err(error) => {
                // The caller stays queued, and the listener is left alone for a while.
                tracing::warn!(%error, "a caller cannot be answered now");
                listener.unwatch(&engine.connections.epoll);
                engine.connections.listen_again_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
                return;
            }
        }
    }
}

fn accept_tcp_caller(
    engine: &mut Engine,
    socket: (OwnedFd, HostsWay),
    from: SocketAddr,
) -> Result<()> {
    let granted = credit::grant(&mut engine.core.grants, true);
    let now = clock::now_ns();
    let handshake =
        begin_tcp_handshake(&engine.config, &engine.connections, socket, from, granted, now);
    let handshake = handshake.inspect_err(|_| credit::ungrant(&mut engine.core.grants, granted))?;
    let caller = Some(Caller { from: from.ip(), since_ns: now });
    connect::answer(engine, Handshake::Tcp(handshake, None), granted, false, caller);
    Ok(())
}

/// In a box, since the callers of this function need the stack.
#[inline(never)]
fn begin_tcp_handshake(
    config: &Config,
    connections: &Connections,
    socket: (OwnedFd, HostsWay),
    from: SocketAddr,
    granted: Limits,
    now_ns: u64,
) -> Result<Box<Wire>> {
    let auth = tcp::listener::auth(from.ip(), connections.key.as_ref(), &from.to_string())?;
    let reconnect_timeout = config.reconnect_timeout;
    let us = connections.offer(granted, reconnect_timeout)?;
    let silence = handshake::silence(reconnect_timeout);
    Ok(Box::new(Wire::accepted(socket, from, auth, us, now_ns, silence)?))
}

/// An unauthenticated caller makes room for another, unless its message has just come.
fn show_out(engine: &mut Engine, at: usize) {
    connect::greet(engine, at);
    let greeting = engine.connections.greetings.get_mut(at);
    let gone = greeting.and_then(|it| it.take_if(|greeting| greeting.tcp_peer().is_some()));
    if let Some(mut greeting) = gone {
        tracing::debug!(caller = ?greeting.caller, "a stranger makes room for another caller");
        greeting.handshake.unwatch(&engine.connections.epoll);
        credit::ungrant(&mut engine.core.grants, greeting.granted);
    }
}

/// Tells a greeting that an unauthenticated caller began whether there is a place for it.
pub(super) fn see_to_room(engine: &mut Engine, at: usize) {
    let begun = engine.connections.greetings.get(at).and_then(Option::as_ref);
    if begun.and_then(Greeting::tcp_peer).is_none() {
        return;
    }
    let full = Refusal::Full { peers_max: engine.config.peers_max as u64 };
    let full = connect::room_for_peer(engine).is_err().then_some(full);
    let full = full.or_else(|| {
        let failed = memfd::check_limit(SEGMENT_BYTES).err()?;
        Some(Refusal::Exhausted { errno: failed.errno.raw_os_error().unsigned_abs() })
    });
    if let Some(Greeting { handshake: Handshake::Tcp(wire, _), .. }) =
        &mut engine.connections.greetings[at]
    {
        wire.is_full(full);
    }
}
