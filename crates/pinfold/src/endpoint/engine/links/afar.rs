//! Calls to other hosts, and from them.

use std::{net::SocketAddr, os::fd::OwnedFd, time::Duration};

use pinfold_sys::clock;

use super::{
    super::{
        Engine,
        greetings::{self, Greeting, Handshake},
    },
    LISTEN_AGAIN_NS, Links,
};
use crate::{
    Result,
    link::{
        local::{Limits, Us},
        tcp::{
            self,
            congestion::HostsWay,
            handshake::{self, Call, Handshake as Wire},
            strangers::{self, Caller, Room},
        },
    },
    wire::tcp::{greeting::Refusal, offer::Offer},
};

impl Links {
    /// Callers from other hosts that have not shown the key.
    fn strangers(&self) -> Vec<(usize, Caller)> {
        let greetings = self.greetings.iter().enumerate();
        greetings.filter_map(|(at, it)| Some((at, it.as_ref()?.stranger()?))).collect()
    }

    /// What this endpoint says of itself. `away_max`: how long it waits for a peer to come back.
    pub(super) fn offer(&self, granted: Limits, away_max: Duration) -> Result<Offer> {
        let Us { endpoint_id, label, paths, .. } = &self.us;
        let here = (self.shortcut, self.local_name());
        let resumes = !away_max.is_zero();
        greetings::offer(*endpoint_id, label, granted, *paths, here, resumes, self.encrypts)
    }
}

impl Engine {
    /// Begins to connect to an endpoint at `to`, which `address` stands for. The result comes under the
    /// number returned.
    pub(crate) fn call_afar(
        &mut self,
        address: &str,
        to: SocketAddr,
        patience: Duration,
    ) -> Result<u64> {
        self.room_for_peer()?;
        let auth = tcp::listener::auth(to.ip(), self.links.key.as_ref(), address)?;
        let granted = self.grant(true);
        let away_max = self.config.away_max;
        let us = self.links.offer(granted, away_max);
        let silence = handshake::silence(away_max);
        let call = Call { address, to, auth, ticket: None, patience, silence };
        let handshake = us.and_then(|us| Wire::connect(call, us, clock::now_ns()));
        let handshake = handshake.inspect_err(|_| self.ungrant(granted))?;
        self.greet_by(Handshake::Wire(Box::new(handshake), None), granted)
    }

    /// Takes callers from other hosts off the listener's queue.
    pub(super) fn answer_callers_from_afar(&mut self) {
        while let Some(listener) = &self.links.afar {
            let now = clock::now_ns();
            let room = strangers::room(&self.links.strangers(), now);
            if let Room::Later(at_ns) = room {
                // They stay queued, and the listener is left alone, or it would keep the endpoint awake.
                let _ = self.links.epoll.remove(listener.fd());
                self.links.listen_again_ns = Some(at_ns);
                return;
            }
            match listener.accept() {
                Ok(Some((socket, from))) => {
                    if let Room::InPlaceOf(at) = room {
                        self.show_out(at);
                    }
                    if let Err(error) = self.answer_from_afar(socket, from) {
                        tracing::warn!(%error, "a caller was turned away");
                    }
                }
                Ok(None) => return,
                Err(error) => {
                    // It stays queued, and the listener is left alone for a while.
                    tracing::warn!(%error, "a caller cannot be answered now");
                    let _ = self.links.epoll.remove(listener.fd());
                    self.links.listen_again_ns = Some(clock::now_ns() + LISTEN_AGAIN_NS);
                    return;
                }
            }
        }
    }

    fn answer_from_afar(&mut self, socket: (OwnedFd, HostsWay), from: SocketAddr) -> Result<()> {
        let auth = tcp::listener::auth(from.ip(), self.links.key.as_ref(), &from.to_string())?;
        let granted = self.grant(true);
        let away_max = self.config.away_max;
        let us = self.links.offer(granted, away_max);
        let (now, silence) = (clock::now_ns(), handshake::silence(away_max));
        let handshake = us.and_then(|us| Wire::accepted(socket, from, auth, us, now, silence));
        let handshake = handshake.inspect_err(|_| self.ungrant(granted))?;
        let caller = Some(Caller { from: from.ip(), since_ns: now });
        self.answer(Handshake::Wire(Box::new(handshake), None), granted, false, caller);
        Ok(())
    }

    /// A stranger makes room for another caller, unless it has just said what it has to.
    fn show_out(&mut self, at: usize) {
        self.greet(at);
        let greeting = self.links.greetings.get_mut(at);
        let gone = greeting.and_then(|it| it.take_if(|greeting| greeting.stranger().is_some()));
        if let Some(greeting) = gone {
            tracing::debug!(caller = ?greeting.caller, "a stranger makes room for another caller");
            greeting.handshake.unwatch(&self.links.epoll);
            self.ungrant(greeting.granted);
        }
    }

    /// Has a greeting that a stranger began know whether there is a place for it.
    pub(super) fn see_to_room(&mut self, at: usize) {
        let begun = self.links.greetings.get(at).and_then(Option::as_ref);
        if begun.and_then(Greeting::stranger).is_none() {
            return;
        }
        let full = Refusal::Full { peers_max: self.config.peers_max as u64 };
        let full = self.room_for_peer().is_err().then_some(full);
        if let Some(Greeting { handshake: Handshake::Wire(wire, _), .. }) =
            &mut self.links.greetings[at]
        {
            wire.is_full(full);
        }
    }
}
