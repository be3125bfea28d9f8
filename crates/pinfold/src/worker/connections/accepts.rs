//! Newcomers, and the operations that accept them.

use crate::{
    Error, Gone, PeerId, Result,
    worker::{
        connections::Connections,
        core::Core,
        ends,
        engine::Engine,
        op::{Done, Op, OpKey, OpKind},
        teardown,
    },
};

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
pub(crate) fn stop_accepting(core: &mut Core, connections: &mut Connections, op: OpKey) -> bool {
    connections.accepts.retain(|other| *other != op);
    ends::finish(core, op, Err(Error::Cancelled));
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
        ends::finish(&mut engine.core, op, next);
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
    use std::time::{Duration, Instant};

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
}
