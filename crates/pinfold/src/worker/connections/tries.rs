//! Calls that did not connect: tried again, or given up.

use pinfold_sys::cpu::clock;

use crate::{
    Error, Gone,
    worker::{ends, engine::Engine, handshakes::Call},
};

/// Time between two calls to a name that is not there yet, ns; and for each call that rests.
pub(super) const REST_NS: u64 = 20_000_000;
const REST_EACH_NS: u64 = 200_000;

/// How far a call got that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// No greeting began.
    AtOnce,
    Greeting,
}

/// Returns whether a call to a name may go better later.
pub(super) fn passes(error: &Error, tried: Tried) -> bool {
    match error {
        Error::NameGone { .. } => true,
        // This user cannot see whether an endpoint is there; one that is there has refused it.
        Error::NotAllowed { .. } => tried == Tried::AtOnce,
        Error::PeerGone { how: Gone::Died | Gone::Closed, .. } => tried == Tried::Greeting,
        _ => false,
    }
}

/// How long a call rests beside so many others: all of them together leave time for the peers.
pub(super) fn rest_ns(resting: usize) -> u64 {
    REST_NS.max(REST_EACH_NS * resting as u64)
}

/// A call has come to nothing: it rests if it is made again, or else its operation ends.
pub(super) fn not_connected(engine: &mut Engine, call: Call, error: Error, tried: Tried) {
    let now = clock::now_ns();
    let is_patient = call.again.as_ref().is_some_and(|again| now < again.until_ns);
    if !is_patient || !passes(&error, tried) {
        return ends::finish(&mut engine.core, call.op, Err(error));
    }
    let due_ns = now.saturating_add(rest_ns(engine.connections.resting.len()));
    engine.connections.resting.push((due_ns, call));
    // A thread that sleeps has to do so for less long now.
    engine.kick = true;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{super::requests::CALLS_MAX, *};

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
