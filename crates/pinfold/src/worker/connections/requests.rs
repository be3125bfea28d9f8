//! Connecting and accepting as operations: each ends with a peer, or with why there is none.
//!
//! A [`Call`] belongs to an operation that connects: it is with a greeting, or rests until it is
//! made again. The end of one is the end of the other. A peer whose operation is given up after it
//! has ended is as if there had been none: one that was called is disconnected, one that has called
//! goes to the next that accepts.

use std::time::Duration;

use pinfold_sys::cpu::clock;

use super::{Connections, accept_budget::TURN_NS, connect, tcp_connect};
use crate::{
    Error, Gone, PeerId, Result,
    transport::{
        local,
        tcp::{self, dial::Patience},
    },
    worker::{
        Engine, core, credit,
        handshakes::{Again, Call},
        op::{Done, Op, OpKey, OpKind},
        teardown,
    },
};

/// Calls of one endpoint under way at a time. Each has a descriptor while it does not rest.
const CALLS_MAX: usize = 1024;
/// Time between two calls to a name that is not there yet, ns; and for each call that rests.
const REST_NS: u64 = 20_000_000;
const REST_EACH_NS: u64 = 200_000;

/// The endpoint that is called.
pub(crate) enum Called {
    Host(local::Address),
    Wire(tcp::address::Address),
}

impl Called {
    /// # Errors
    /// [`Error::BadAddress`].
    pub(crate) fn parse(address: &str) -> Result<Called> {
        Ok(if address.starts_with("tcp:") {
            let called = tcp::address::parse(address)?;
            if called.port() == 0 {
                let why = "port 0 is for listening, at any that is free; name the port in use";
                return Err(Error::BadAddress { address: address.to_owned(), why });
            }
            Called::Wire(called)
        } else {
            Called::Host(address.parse()?)
        })
    }
}

/// How far a call got that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// No greeting began.
    AtOnce,
    Greeting,
}

/// Returns whether a call to a name may go better later.
fn passes(error: &Error, tried: Tried) -> bool {
    match error {
        Error::NameGone { .. } => true,
        // This user cannot see whether an endpoint is there; one that is there has refused it.
        Error::NotAllowed { .. } => tried == Tried::AtOnce,
        Error::PeerGone { how: Gone::Died | Gone::Closed, .. } => tried == Tried::Greeting,
        _ => false,
    }
}

/// How long a call rests beside so many others: all of them together leave time for the peers.
fn rest_ns(resting: usize) -> u64 {
    REST_NS.max(REST_EACH_NS * resting as u64)
}

impl Connections {
    /// Calls under way.
    fn calls(&self) -> usize {
        let greetings = self.greetings.iter().flatten();
        greetings.filter(|greeting| greeting.call.is_some()).count() + self.resting.len()
    }

    /// The greeting of an operation that connects.
    fn greeting_of(&self, op: OpKey) -> Option<usize> {
        let is_it = |call: &Call| call.op == op;
        self.greetings.iter().position(|greeting| {
            greeting.as_ref().is_some_and(|greeting| greeting.call.as_ref().is_some_and(is_it))
        })
    }
}

/// Begins to connect. With `patience`, an obstacle has so long to pass.
pub(crate) fn post_connect(
    engine: &mut Engine,
    called: &Called,
    patience: Option<Duration>,
) -> Result<OpKey> {
    engine.check()?;
    if engine.connections.calls() >= CALLS_MAX {
        return Err(Error::LimitReached {
            what: "the number of peers that this endpoint calls at a time",
            limit: CALLS_MAX as u64,
            remedy: "wait for some of them, or cancel some",
        });
    }
    let op = engine.core.ops.insert(Op::new(OpKind::Connect));
    match called {
        Called::Host(address) => {
            let again = patience.map(|patience| {
                let patience = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
                let until_ns = clock::now_ns().saturating_add(patience);
                Box::new(Again { address: address.clone(), until_ns })
            });
            connect::call(engine, address, Call { op, again });
        }
        Called::Wire(address) => {
            let connect = engine.config.connect_timeout;
            let patience = match patience {
                None => Patience { connect, greet: None, again: false },
                Some(patience) => Patience { connect: patience, greet: Some(connect), again: true },
            };
            tcp_connect::call_tcp(engine, address, patience, Call { op, again: None });
        }
    }
    Ok(op)
}

/// A call has come to nothing: it rests if it is made again, or else its operation ends.
pub(super) fn not_connected(engine: &mut Engine, call: Call, error: Error, tried: Tried) {
    let now = clock::now_ns();
    let is_patient = call.again.as_ref().is_some_and(|again| now < again.until_ns);
    if !is_patient || !passes(&error, tried) {
        return core::finish(&mut engine.core, call.op, Err(error));
    }
    let due_ns = now.saturating_add(rest_ns(engine.connections.resting.len()));
    engine.connections.resting.push((due_ns, call));
    // A thread that sleeps has to do so for less long now.
    engine.kick = true;
}

/// Makes the calls again that have rested; for a while, others follow at the next turn.
pub(super) fn see_to_resting(engine: &mut Engine, now_ns: u64) {
    let (mut at, end) = (0, now_ns.saturating_add(TURN_NS));
    while let Some((due_ns, _)) = engine.connections.resting.get(at)
        && clock::now_ns() < end
    {
        if now_ns < *due_ns {
            at += 1;
            continue;
        }
        let (_, call) = engine.connections.resting.swap_remove(at);
        if let Some(address) = call.again.as_ref().map(|again| again.address.clone()) {
            connect::call(engine, &address, call);
        }
    }
}

/// Gives up the call of an operation. Returns `false` if that has just ended otherwise.
pub(crate) fn hang_up(engine: &mut Engine, op: OpKey) -> bool {
    if let Some(at) = engine.connections.greeting_of(op) {
        // The peer's last word may be there already: then it takes this side for connected, and
        // is to hear of the end as a peer does.
        connect::greet(engine, at);
    }
    if engine.core.ops.get(op).is_none_or(|op| op.done.is_some()) {
        return false;
    }
    engine.connections.resting.retain(|(_, call)| call.op != op);
    if let Some(at) = engine.connections.greeting_of(op)
        && let Some(mut greeting) = engine.connections.greetings[at].take()
    {
        greeting.handshake.unwatch(&engine.connections.epoll);
        credit::ungrant(engine, greeting.granted);
    }
    core::finish(&mut engine.core, op, Err(Error::Cancelled));
    true
}

/// Begins to wait for the next peer that calls.
pub(crate) fn post_accept(engine: &mut Engine) -> Result<OpKey> {
    engine.check()?;
    if !engine.connections.listens() {
        return Err(Error::NotListening);
    }
    let op = engine.core.ops.insert(Op::new(OpKind::Accept));
    engine.connections.accepts.push_back(op);
    settle_accepts(engine);
    Ok(op)
}

/// An operation waits no longer for peers that call.
pub(crate) fn stop_accepting(engine: &mut Engine, op: OpKey) -> bool {
    engine.connections.accepts.retain(|other| *other != op);
    core::finish(&mut engine.core, op, Err(Error::Cancelled));
    true
}

/// A peer that has called is connected.
pub(super) fn came(engine: &mut Engine, id: PeerId) {
    engine.connections.came += 1;
    if let Some(peer) = engine.peers.get_mut(id) {
        peer.came = engine.connections.came;
    }
    engine.newcomers.push_back(id);
    settle_accepts(engine);
}

/// Hands newcomers to the operations that wait for them, and tells one if there will be none.
pub(super) fn settle_accepts(engine: &mut Engine) {
    while let Some(op) = engine.connections.accepts.front().copied() {
        let next = match engine.newcomers.pop_front() {
            Some(id) => Ok(Done::Accepted(id)),
            None => match engine.connections.take_lost() {
                Some(lost) => Err(lost),
                None => return,
            },
        };
        engine.connections.accepts.pop_front();
        core::finish(&mut engine.core, op, next);
        // A thread that sleeps for all may wait for this itself.
        engine.kick = true;
    }
}

/// Nobody takes a peer that an operation has brought. One that has called is the next newcomer,
/// before those that came later; one that was called is disconnected.
pub(crate) fn decline(engine: &mut Engine, id: PeerId, has_called: bool) {
    if !has_called {
        return teardown::remove_peer(engine, id, Gone::Disconnected);
    }
    if engine.present(id).is_err() {
        return;
    }
    let number = |id: &PeerId| engine.peers.get(*id).map_or(0, |peer| peer.came);
    let came = number(&id);
    let at = engine.newcomers.partition_point(|other| number(other) < came);
    engine.newcomers.insert(at, id);
    settle_accepts(engine);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::Endpoint;

    /// The newcomer of a request that another thread drops may be the sleeping thread's own.
    #[test]
    fn who_sleeps_hears_of_a_newcomer_that_another_declines() {
        let name = format!("local:declined-{}", std::process::id());
        let (listener, caller) = (Endpoint::listen(&name).unwrap(), Endpoint::new().unwrap());
        let (one, mut two) = (listener.accept_request(), listener.accept_request());
        let mut calls = caller.connect_request(&name);
        let end = Instant::now() + Duration::from_secs(20);
        while calls.try_wait().is_none() || listener.peers().is_empty() {
            listener.progress().unwrap();
            assert!(Instant::now() < end);
        }
        let sleeps = |asleep| {
            let mut engine = listener.shared().enter().unwrap();
            engine.connections.kick.clear().unwrap();
            engine.followers.pretend(asleep);
            (engine.asleep, engine.kick) = (asleep, false);
        };
        sleeps(true);
        drop(one);
        assert!(listener.shared().enter().unwrap().connections.kick.clear().unwrap());
        sleeps(false);
        assert!(two.try_wait().unwrap().is_ok());
    }

    #[test]
    fn what_waiting_changes() {
        let name = || "local:nobody".to_owned();
        let gone = |how| Error::PeerGone { peer: name(), how };
        let (at_once, greeting) = (Tried::AtOnce, Tried::Greeting);
        for (error, expected) in [
            (Error::NameGone { name: name() }, [true, true]),
            (Error::NotAllowed { name: name(), why: String::new() }, [true, false]),
            (gone(Gone::Died), [false, true]),
            (gone(Gone::Closed), [false, true]),
            (gone(Gone::Misbehaved("it lied")), [false, false]),
            (Error::Closed, [false, false]),
        ] {
            assert_eq!([at_once, greeting].map(|tried| passes(&error, tried)), expected, "{error}");
        }
    }

    #[test]
    fn many_calls_rest_for_longer() {
        assert_eq!([0, 1, 100].map(rest_ns), [REST_NS; 3]);
        assert_eq!(rest_ns(CALLS_MAX), 204_800_000);
    }
}
