//! Progress: lanes, sockets, copies in parts, and sends that wait for room, each in turn and at its
//! rate.

use pinfold_sys::cpu::clock;

use super::{Engine, core::Core, peer::Peer};
use crate::{
    failpoint::{self, Point},
    memory::arena::after_close,
};

/// Descriptors taken from one lane before the next lane's turn.
const LANE_TURN: u32 = 64;
/// Consumed descriptors after which the sender is told of them at the latest.
pub(crate) const PUBLISH_AFTER: u64 = 16;
/// Between looks at the sockets while polling: a death or a call from a quiet peer is noticed
/// within this time.
const EVENTS_EVERY_NS: u64 = 50_000;
/// Polls between looks at the clock.
pub(crate) const POLLS_A_CLOCK: u32 = 64;

impl Engine {
    /// Does what can be done now without waiting. Returns whether anything was done.
    #[inline]
    pub(crate) fn progress(&mut self) -> bool {
        if self.armed && !self.driven {
            self.disarm();
        }
        let mut moved = false;
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            moved |= self.poll_lane(index);
            if self.poll_set.are_many() && self.hot.get(at) == Some(&index) && self.may_leave(index)
            {
                self.hot.swap_remove(at);
            } else {
                at += 1;
            }
        }
        // The events that a leader sleeps on must not be taken from under it.
        if self.poll_set.asks() && !self.asleep {
            moved |= self.ask_for_news();
        }
        if !self.core.blocked.is_empty() {
            moved |= self.retry_blocked();
        }
        if !self.core.gets.is_empty() || !self.core.puts.is_empty() {
            moved |= self.copy_some();
        }
        if self.core.active.has_chores() {
            moved |= self.fetch_active();
        }
        self.polls += 1;
        if self.polls >= POLLS_A_CLOCK {
            self.polls = 0;
            moved |= self.look_around();
        }
        if moved {
            self.rest.disturb();
        }
        moved
    }

    /// Looks at the sockets now and then, for a caller whose messages are always there already.
    pub(crate) fn turn(&mut self) {
        self.polls += 1;
        if self.polls >= POLLS_A_CLOCK {
            self.polls = 0;
            self.look_around();
        }
    }

    /// Looks at the sockets if that is due.
    #[cold]
    fn look_around(&mut self) -> bool {
        let now = clock::now_ns();
        if now < self.events_at {
            return false;
        }
        self.events_at = now + EVENTS_EVERY_NS;
        self.update_credit_gauges_if_due(now);
        self.cool_down(now);
        if self.core.lane_budget.was_short() {
            self.trim_lanes();
        }
        // A sleeping leader does this itself; the events that it sleeps on must not be taken from
        // it.
        self.tell_of_gone_arenas();
        self.collect_donations();
        self.core.imported.settle();
        after_close::sweep();
        if !self.core.registry.deferred_free.is_empty() {
            self.core.registry.deferred_free.look();
        }
        if self.asleep { false } else { self.handle_events() }
    }

    /// Ends the donated buffers that receivers have given back.
    fn collect_donations(&mut self) {
        if self.core.donations_out == 0 {
            return;
        }
        for id in self.peers.ids() {
            if let Some(peer) = self.peers.get_mut(id) {
                self.core.collect_donations(peer);
            }
        }
    }

    /// Takes memory back from lanes that have nothing in flight, for those that want to grow.
    fn trim_lanes(&mut self) {
        for id in self.peers.ids() {
            let Some(peer) = self.peers.get_mut(id) else { continue };
            if peer.blocked || !peer.sends().is_empty() {
                continue;
            }
            if let Err(violation) = peer.tx.trim(&mut self.core.lane_budget) {
                self.cut_off(id, violation);
            }
        }
    }

    /// Takes the messages that have come from one peer. Returns whether any had.
    #[inline]
    pub(crate) fn poll_lane(&mut self, index: u32) -> bool {
        let Some(peer) = self.peers.at_mut(index) else { return false };
        if let Some(how) = peer.leaving() {
            self.poll_leaving(index, how);
            return false;
        }
        let mut moved = false;
        // Descriptors in the lane come first.
        if peer.is_turned() && peer.rx.head().is_none() {
            match self.core.turn(peer, false) {
                Ok(came) => moved = came,
                Err(ended) => {
                    let id = peer.id;
                    self.connection_ended(id, ended);
                    return true;
                }
            }
        }
        if peer.rx.head().is_none() {
            peer.idle_polls = peer.idle_polls.saturating_add(1);
            peer.tx.nothing_on_the_way();
            if peer.rx.unpublished() > 0 {
                Engine::publish(&mut self.core, peer);
            }
            return moved;
        }
        peer.idle_polls = 0;
        let mut turns = 0;
        while turns < LANE_TURN
            && let Some(header) = peer.rx.head()
        {
            if let Err(violation) = self.core.receive(peer, header) {
                let id = peer.id;
                self.cut_off(id, violation);
                return true;
            }
            if peer.rx.unpublished() >= PUBLISH_AFTER {
                Engine::publish(&mut self.core, peer);
            }
            turns += 1;
        }
        Engine::publish(&mut self.core, peer);
        self.core.update_peer_gauges(peer);
        self.update_gauges();
        true
    }

    /// Tells the peer how many descriptors have been consumed.
    #[inline(always)]
    pub(crate) fn publish(core: &mut Core, peer: &mut Peer) {
        failpoint::hit(Point::BeforePublish);
        if peer.rx.publish() {
            core.ring_now(peer);
        }
        failpoint::hit(Point::AfterPublish);
    }

    /// Tries sends and answers again that had found no room.
    fn retry_blocked(&mut self) -> bool {
        let mut moved = false;
        for index in std::mem::take(&mut self.core.blocked) {
            let Some(peer) = self.peers.at_mut(index) else { continue };
            if !peer.blocked {
                continue;
            }
            peer.blocked = false;
            let (before, asked) = (peer.tx.produced(), peer.room_asked);
            match self.core.pump(peer) {
                // Nothing went: the request to ring still stands.
                Ok(()) if peer.tx.produced() == before => peer.room_asked = asked,
                Ok(()) => moved = true,
                Err(violation) => {
                    let id = peer.id;
                    self.cut_off(id, violation);
                }
            }
        }
        moved
    }

    /// One step of each copy from or to a peer's memory.
    fn copy_some(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..self.core.gets.len() {
            let Some(key) = self.core.gets.pop_front() else { break };
            let Some(id) = self.core.peer_of_get(key) else { continue };
            self.core.gets.push_back(key);
            let Some(peer) = self.peers.get_mut(id) else { continue };
            let step = match self.core.is_requested(key) {
                true => self.core.look_after_request(peer, key),
                false => self.core.get_step(peer, key),
            };
            match step {
                Ok(step) => moved |= step,
                Err(violation) => self.cut_off(id, violation),
            }
        }
        for _ in 0..self.core.puts.len() {
            let Some(key) = self.core.puts.pop_front() else { break };
            let Some(id) = self.core.ops.send_mut(key).map(|op| op.peer) else { continue };
            let Some(peer) = self.peers.get_mut(id) else { continue };
            if self.core.put_step(peer, key) {
                self.core.puts.push_back(key);
                moved = true;
            }
        }
        moved
    }
}
