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
    Error, Result,
    transport::{
        local,
        tcp::{self, dial::Patience},
    },
    worker::{
        credit, ends,
        engine::Engine,
        handshakes::{Again, Call},
        op::{Op, OpKey, OpKind},
    },
};

/// Calls of one endpoint under way at a time. Each has a descriptor while it does not rest.
pub(super) const CALLS_MAX: usize = 1024;

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
        credit::ungrant(&mut engine.core.grants, greeting.granted);
    }
    ends::finish(&mut engine.core, op, Err(Error::Cancelled));
    true
}
