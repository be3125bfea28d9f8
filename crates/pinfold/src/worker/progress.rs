//! Progress: lanes, sockets, copies in parts, and sends that wait for room, each in turn and at its
//! rate.

use pinfold_sys::cpu::clock;

use super::{
    answers::{self, PUBLISH_AFTER},
    connections::{events, reconnect},
    engine::Engine,
    extent_exchange, gauges, inbound, outbound, polled, sleep, teardown, transport_progress,
};
use crate::{
    memory::arena::after_close,
    protocol::{
        active::dispatch,
        handoff::collect,
        rendezvous::{get, put, request},
    },
};

/// Descriptors taken from one lane before the next lane's turn.
const LANE_TURN: u32 = 64;

/// Between looks at the sockets while polling: a death or a call from a quiet peer is noticed
/// within this time.
const EVENTS_EVERY_NS: u64 = 50_000;
/// Idle polls after which a peer is asked for the room that a send waits for.
const ASKS_AFTER: u32 = 64;
/// Polls between looks at the clock.
pub(crate) const POLLS_A_CLOCK: u32 = 64;

/// Does what can be done now without waiting. Returns whether anything was done.
#[inline]
pub(crate) fn progress(engine: &mut Engine) -> bool {
    if engine.armed && !engine.driven {
        sleep::disarm(engine);
    }
    let mut moved = false;
    let mut at = 0;
    while let Some(&index) = engine.hot.get(at) {
        moved |= poll_lane(engine, index);
        if engine.poll_set.are_many()
            && engine.hot.get(at) == Some(&index)
            && polled::may_leave(engine, index)
        {
            engine.hot.swap_remove(at);
        } else {
            at += 1;
        }
    }
    // The events that a leader sleeps on must not be taken from under it.
    if engine.poll_set.asks() && !engine.asleep {
        moved |= events::ask_for_news(engine);
    }
    if !engine.core.blocked.is_empty() {
        moved |= retry_blocked(engine);
    }
    if !engine.core.gets.is_empty() || !engine.core.puts.is_empty() {
        moved |= copy_some(engine);
    }
    if engine.core.active.has_chores() {
        moved |= dispatch::fetch_active(engine);
    }
    engine.polls += 1;
    if engine.polls >= POLLS_A_CLOCK {
        engine.polls = 0;
        moved |= look_around(engine);
    }
    if moved {
        engine.rest.disturb();
    }
    moved
}

/// Looks at the sockets now and then, for a caller whose messages are always there already.
pub(crate) fn turn(engine: &mut Engine) {
    engine.polls += 1;
    if engine.polls >= POLLS_A_CLOCK {
        engine.polls = 0;
        look_around(engine);
    }
}

/// Looks at the sockets if that is due.
#[cold]
fn look_around(engine: &mut Engine) -> bool {
    let now = clock::now_ns();
    if now < engine.events_at {
        return false;
    }
    engine.events_at = now + EVENTS_EVERY_NS;
    gauges::update_credit_gauges_if_due(engine, now);
    sleep::cool_down(engine, now);
    if engine.core.lane_budget.was_short() {
        trim_lanes(engine);
    }
    // A sleeping leader does this itself; the events that it sleeps on must not be taken from
    // it.
    extent_exchange::tell_of_gone_arenas(engine);
    collect::collect_all(&mut engine.peers, &mut engine.core);
    engine.core.imported.settle();
    after_close::sweep();
    if !engine.core.registry.deferred_free.is_empty() {
        engine.core.registry.deferred_free.look();
    }
    if engine.asleep { false } else { events::handle_events(engine) }
}

/// Takes memory back from lanes that have nothing in flight, for those that want to grow.
fn trim_lanes(engine: &mut Engine) {
    for id in engine.peers.ids() {
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        if peer.blocked || !peer.sends().is_empty() {
            continue;
        }
        if let Err(violation) = peer.tx.trim(&mut engine.core.lane_budget) {
            teardown::cut_off(engine, id, violation);
        }
    }
}

/// Takes the messages that have come from one peer. Returns whether any had.
#[inline]
pub(crate) fn poll_lane(engine: &mut Engine, index: u32) -> bool {
    let Some(peer) = engine.peers.at_mut(index) else { return false };
    if let Some(how) = peer.leaving() {
        teardown::poll_leaving(engine, index, how);
        return false;
    }
    let mut moved = false;
    // Descriptors in the lane come first.
    if peer.is_turned() && peer.rx.head().is_none() {
        // A program that only looks never waits: a send for which there is no room has the peer
        // asked for it all the same.
        let asks = peer.blocked && peer.idle_polls % ASKS_AFTER == ASKS_AFTER - 1;
        match transport_progress::turn(&mut engine.core, peer, asks) {
            Ok(came) => moved = came,
            Err(ended) => {
                let id = peer.id;
                reconnect::connection_ended(engine, id, ended);
                return true;
            }
        }
    }
    if peer.rx.head().is_none() {
        peer.idle_polls = peer.idle_polls.saturating_add(1);
        peer.tx.nothing_on_the_way();
        if peer.rx.unpublished() > 0 {
            answers::publish(&mut engine.core, peer);
        }
        return moved;
    }
    peer.idle_polls = 0;
    let mut turns = 0;
    while turns < LANE_TURN
        && let Some(header) = peer.rx.head()
    {
        if let Err(violation) = inbound::receive(&mut engine.core, peer, header) {
            let id = peer.id;
            teardown::cut_off(engine, id, violation);
            return true;
        }
        if peer.rx.unpublished() >= PUBLISH_AFTER {
            answers::publish(&mut engine.core, peer);
        }
        turns += 1;
    }
    answers::publish(&mut engine.core, peer);
    gauges::update_peer_gauges(&engine.core.ops, peer);
    gauges::update_gauges(engine);
    true
}

/// Tries sends and answers again that had found no room.
fn retry_blocked(engine: &mut Engine) -> bool {
    let mut moved = false;
    for index in std::mem::take(&mut engine.core.blocked) {
        let Some(peer) = engine.peers.at_mut(index) else { continue };
        if !peer.blocked {
            continue;
        }
        peer.blocked = false;
        let (before, asked) = (peer.tx.produced(), peer.room_asked);
        match outbound::pump(&mut engine.core, peer) {
            // Nothing went: the request to ring still stands.
            Ok(()) if peer.tx.produced() == before => peer.room_asked = asked,
            Ok(()) => moved = true,
            Err(violation) => {
                let id = peer.id;
                teardown::cut_off(engine, id, violation);
            }
        }
    }
    moved
}

/// One step of each copy from or to a peer's memory.
fn copy_some(engine: &mut Engine) -> bool {
    let mut moved = false;
    for _ in 0..engine.core.gets.len() {
        let Some(key) = engine.core.gets.pop_front() else { break };
        let Some(id) = engine.core.peer_of_get(key) else { continue };
        engine.core.gets.push_back(key);
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        let step = match request::is_requested(&mut engine.core.ops, key) {
            true => request::look_after_request(&mut engine.core, peer, key),
            false => get::get_step(&mut engine.core, peer, key),
        };
        match step {
            Ok(step) => moved |= step,
            Err(violation) => teardown::cut_off(engine, id, violation),
        }
    }
    for _ in 0..engine.core.puts.len() {
        let Some(key) = engine.core.puts.pop_front() else { break };
        let Some(id) = engine.core.ops.send_mut(key).map(|op| op.peer) else { continue };
        if engine.core.ops.is_lent(key) {
            engine.core.puts.push_back(key);
            continue;
        }
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        if put::put_step(&mut engine.core, peer, key) {
            engine.core.puts.push_back(key);
            moved = true;
        }
    }
    moved
}
