//! Events of the engine's descriptors, and timers that are due.

use pinfold_sys::{
    cpu::clock,
    io::{alarm::Alarm, poll::Events},
};

use super::{
    ALARM, GREETING, KICK, KIND_SHIFT, LISTENER, PROCESS, RING, SAME_HOST, SOCKET, TCP,
    accept_budget::TURN_NS, token, watch,
};
use crate::{
    Gone,
    worker::{Engine, extent_exchange::Exchanged},
};

impl Engine {
    /// Looks at every descriptor that has events. Returns whether any had.
    pub(crate) fn handle_events(&mut self) -> bool {
        let Some(events) = self.connections.events() else { return false };
        self.see_to_due();
        self.see_to_postponed();
        self.see_to(&events)
    }

    /// The same in between, for connections that are not looked at one by one. Timers that are due
    /// can wait.
    pub(crate) fn ask_for_news(&mut self) -> bool {
        let Some(events) = self.connections.events() else { return false };
        let any = self.see_to(&events);
        self.poll_set.asked(any);
        any
    }

    fn see_to(&mut self, events: &Events) -> bool {
        let mut any = false;
        let mut had_ns = 0;
        for event in events.iter() {
            let (kind, index) = (event.token >> KIND_SHIFT, event.token as u32);
            let generation = (event.token >> 32) as u32 & 0x1fff_ffff;
            let peer = self.peers.at_mut(index);
            let peer = peer.filter(|peer| peer.id.generation & 0x1fff_ffff == generation);
            match (kind, peer) {
                (LISTENER, _) => {
                    had_ns += self.take_time(|engine| match index {
                        TCP => engine.accept_tcp_callers(),
                        index => engine.answer_callers(index == SAME_HOST),
                    })
                }
                (KICK, _) => {
                    let _ = self.connections.kick.clear();
                    self.tell_of_gone_arenas();
                    self.dial_by_names();
                }
                // The event is not reported twice.
                (GREETING, _) if had_ns >= TURN_NS => {
                    self.connections.postponed.push_back(index as usize)
                }
                (GREETING, _) => had_ns += self.take_time(|engine| engine.greet(index as usize)),
                (ALARM, _) => {
                    // The timers that are due were just seen to.
                    let _ = self.connections.alarm.as_ref().map(Alarm::clear);
                    self.connections.alarm_ns = None;
                }
                (RING, _) => {
                    if !self.land() {
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
                        match self.core.turn(peer, false) {
                            Ok(_) => self.heat(index),
                            Err(ended) => self.connection_ended(id, ended),
                        }
                        any = true;
                        continue;
                    }
                    match self.core.take_extents(peer) {
                        Ok(Exchanged::Closed) => {
                            let how = if peer.rx.is_closed() { Gone::Closed } else { Gone::Died };
                            self.remove_peer(id, how);
                        }
                        Ok(Exchanged::Some) => self.heat(index),
                        Ok(Exchanged::None) => continue,
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

    /// Does work for callers, and counts the time. Returns how long it took, ns.
    fn take_time(&mut self, work: impl FnOnce(&mut Engine)) -> u64 {
        let began = clock::now_ns();
        work(self);
        let now = clock::now_ns();
        let rest = self.connections.share.worked(began, now);
        // Without peers there is nothing else to do.
        if let Some(until_ns) = rest.filter(|_| self.peers.live() > 0) {
            self.connections.rest_until(until_ns);
        }
        now - began
    }

    /// Goes on with greetings that were postponed.
    fn see_to_postponed(&mut self) {
        let mut had_ns = 0;
        while had_ns < TURN_NS
            && let Some(at) = self.connections.postponed.pop_front()
        {
            had_ns += self.take_time(|engine| engine.greet(at));
        }
    }

    /// Sees to the timers that are due.
    fn see_to_due(&mut self) {
        let now = clock::now_ns();
        if self.connections.listen_again_ns.is_some_and(|at| now >= at) {
            self.connections.listen_again_ns = None;
            // Some of the listeners may be watched still.
            if let Some(listener) = &self.connections.listener {
                let _ = watch(&self.connections.epoll, listener.fd(), token(LISTENER, 0, 0));
            }
            if let Some(listener) = &self.connections.tcp {
                let _ = listener.watch(&self.connections.epoll, token(LISTENER, TCP, 0));
            }
            if let Some(listener) = &self.connections.same_host {
                let _ =
                    watch(&self.connections.epoll, listener.fd(), token(LISTENER, SAME_HOST, 0));
            }
        }
        self.look_after_names(now);
        self.look_after_turned(now);
        self.see_to_reconnecting(now);
        self.see_to_resting(now);
        for at in 0..self.connections.greetings.len() {
            if let Some(greeting) = &self.connections.greetings[at]
                && now >= greeting.handshake.deadline_ns()
            {
                self.greet(at);
            }
        }
    }
}
