//! Events of the engine's descriptors, and timers that are due.

use pinfold_sys::{
    cpu::clock,
    io::{alarm::Alarm, poll::Events},
};

use super::{
    ALARM, BELL, GREETING, KICK, KIND_SHIFT, LISTENER, PROCESS, RING, SAME_HOST, SOCKET, TCP,
    accept_budget::TURN_NS, connect, names, reconnect, requests, tcp_connect, token, watch,
};
use crate::{
    Gone,
    worker::{
        engine::Engine,
        extent_exchange::{self, Exchanged},
        polled, teardown, transport_progress, transport_sends,
    },
};

/// Looks at every descriptor that has events. Returns whether any had.
pub(crate) fn handle_events(engine: &mut Engine) -> bool {
    let Some(events) = engine.connections.events() else { return false };
    see_to_due(engine);
    see_to_postponed(engine);
    see_to(engine, &events)
}

/// The same after a sleep that these events ended, of which there may be more.
pub(crate) fn handle_events_of_sleep(engine: &mut Engine, ended_by: &Events) {
    if ended_by.is_empty() || ended_by.is_full() {
        see_to(engine, ended_by);
        handle_events(engine);
        return;
    }
    see_to_due(engine);
    see_to_postponed(engine);
    see_to(engine, ended_by);
}

/// The same in between, for connections that are not looked at one by one. Timers that are due
/// can wait.
pub(crate) fn ask_for_news(engine: &mut Engine) -> bool {
    let Some(events) = engine.connections.events() else { return false };
    let any = see_to(engine, &events);
    engine.poll_set.asked(any);
    any
}

fn see_to(engine: &mut Engine, events: &Events) -> bool {
    let mut any = false;
    let mut had_ns = 0;
    for event in events.iter() {
        let (kind, index) = (event.token >> KIND_SHIFT, event.token as u32);
        let generation = (event.token >> 32) as u32 & 0x1fff_ffff;
        let peer = engine.peers.at_mut(index);
        let peer = peer.filter(|peer| peer.id.generation() & 0x1fff_ffff == generation);
        match (kind, peer) {
            (LISTENER, _) => {
                had_ns += take_time(engine, |engine| match index {
                    TCP => tcp_connect::accept_tcp_callers(engine),
                    index => connect::answer_callers(engine, index == SAME_HOST),
                })
            }
            (KICK, _) => {
                let _ = engine.connections.kick.clear();
                extent_exchange::tell_of_gone_arenas(engine);
                tcp_connect::dial_by_names(engine);
            }
            // The event is not reported twice.
            (GREETING, _) if had_ns >= TURN_NS => {
                engine.connections.postponed.push_back(index as usize)
            }
            (GREETING, _) => {
                had_ns += take_time(engine, |engine| connect::greet(engine, index as usize))
            }
            (ALARM, _) => {
                // The timers that are due were just seen to.
                let _ = engine.connections.alarm.as_ref().map(Alarm::clear);
                engine.connections.alarm_ns = None;
            }
            (RING, _) => {
                if !transport_sends::land(&mut engine.peers, &mut engine.core) {
                    continue;
                }
            }
            (SOCKET, Some(peer)) => {
                let id = peer.id;
                if peer.is_turned() {
                    if peer.hot {
                        // The socket is looked at anyway, until there is no more of it.
                        continue;
                    }
                    match transport_progress::turn(&mut engine.core, peer, false) {
                        Ok(_) => polled::heat(engine, index),
                        Err(ended) => reconnect::connection_ended(engine, id, ended),
                    }
                    any = true;
                    continue;
                }
                match extent_exchange::take_extents_to_bell(&mut engine.core.imported, peer) {
                    Ok(Exchanged::Closed) => {
                        let how = if peer.rx.is_closed() { Gone::Closed } else { Gone::Died };
                        teardown::remove_peer(engine, id, how);
                    }
                    Ok(Exchanged::Some) => polled::heat(engine, index),
                    Ok(Exchanged::None) => continue,
                    Err(violation) => teardown::cut_off(engine, id, violation),
                }
            }
            (BELL, Some(_)) => polled::heat(engine, index),
            (PROCESS, Some(peer)) => {
                let id = peer.id;
                let how = if peer.rx.is_closed() { Gone::Closed } else { Gone::Died };
                teardown::remove_peer(engine, id, how);
            }
            _ => continue,
        }
        any = true;
    }
    any
}

/// Does work for callers, and counts the time. Returns how long it took, ns.
fn take_time(engine: &mut Engine, work: impl FnOnce(&mut Engine)) -> u64 {
    let began = clock::now_ns();
    work(engine);
    let now = clock::now_ns();
    let rest = engine.connections.share.worked(began, now);
    // Without peers there is nothing else to do.
    if let Some(until_ns) = rest.filter(|_| engine.peers.live() > 0) {
        engine.connections.rest_until(until_ns);
    }
    now - began
}

/// Goes on with greetings that were postponed.
fn see_to_postponed(engine: &mut Engine) {
    let mut had_ns = 0;
    while had_ns < TURN_NS
        && let Some(at) = engine.connections.postponed.pop_front()
    {
        had_ns += take_time(engine, |engine| connect::greet(engine, at));
    }
}

/// Sees to the timers that are due.
fn see_to_due(engine: &mut Engine) {
    let now = clock::now_ns();
    if engine.connections.listen_again_ns.is_some_and(|at| now >= at) {
        engine.connections.listen_again_ns = None;
        // Some of the listeners may be watched still.
        if let Some(listener) = &engine.connections.listener {
            let _ = watch(&engine.connections.epoll, listener.fd(), token(LISTENER, 0, 0));
        }
        if let Some(listener) = &engine.connections.tcp {
            let _ = listener.watch(&engine.connections.epoll, token(LISTENER, TCP, 0));
        }
        if let Some(listener) = &engine.connections.same_host {
            let _ = watch(&engine.connections.epoll, listener.fd(), token(LISTENER, SAME_HOST, 0));
        }
    }
    names::look_after_names(engine, now);
    look_after_turned(engine, now);
    reconnect::see_to_reconnecting(engine, now);
    requests::see_to_resting(engine, now);
    for at in 0..engine.connections.greetings.len() {
        if let Some(greeting) = &engine.connections.greetings[at]
            && now >= greeting.handshake.deadline_ns()
        {
            connect::greet(engine, at);
        }
    }
}

/// Looks whether peers on other hosts answer, if it is time to.
pub(crate) fn look_after_turned(engine: &mut Engine, now_ns: u64) {
    if transport_progress::poll_ns(&mut engine.core, &mut engine.connections, || now_ns)
        .is_none_or(|at_ns| now_ns < at_ns)
    {
        return;
    }
    engine.connections.poll_ns = None;
    for id in engine.peers.ids() {
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        match peer.transport.look(now_ns) {
            Ok(at_ns) => {
                engine.connections.poll_ns =
                    engine.connections.poll_ns.into_iter().chain(at_ns).min();
            }
            Err(ended) => reconnect::connection_ended(engine, id, ended),
        }
    }
}
