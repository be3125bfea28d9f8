//! Active messages on their way to their handlers (`Job`), and the outcomes of handlers (`Spent`).

use super::{
    handlers::Handler,
    queue::{Item, What},
    receive::{self, NO_HANDLER},
    send,
};
use crate::{
    PeerId, Receipt,
    protocol::rendezvous::{fin, select},
    status::Tally,
    wire::{
        active::{Failure, Label},
        rendezvous::By,
    },
    worker::{
        answers,
        engine::Engine,
        op::{Bytes, RecvStage},
        teardown,
    },
};

/// A message on its way to its handler.
pub(crate) struct Job {
    pub peer: PeerId,
    pub label: Label,
    pub bytes: Bytes,
    pub receipt: Receipt,
    pub handler: Handler,
    pub cost: u64,
    pub room: usize,
}

/// The outcome of a handler.
pub(crate) struct Spent {
    pub peer: PeerId,
    pub token: u32,
    /// Reason why its request gets no answer, if it gets none.
    pub failed: Option<Failure>,
    pub panicked: bool,
    pub cost: u64,
    pub room: usize,
}

/// Begins to fetch messages that are first in their queues. Returns whether there was any.
#[cold]
pub(crate) fn fetch_active(engine: &mut Engine) -> bool {
    let mut any = false;
    while let Some((id, sid, rts, label)) = engine.core.active.next_chore() {
        any = true;
        let Some(peer) = engine.peers.get_mut(id) else { continue };
        let core = &mut engine.core;
        peer.announced.remove(&sid);
        if !core.active.has_handler(label) {
            core.status.unhandled.add(1);
            core.active.skip(id);
            fin::fin(core, peer, sid, NO_HANDLER.unsigned_abs(), 0, By::Kernel);
            continue;
        }
        let key = receive::land(&mut core.ops, id, rts.len as usize, RecvStage::Moving);
        core.active.fetching(id, key);
        if let Err(violation) = select::select(core, peer, key, (sid, rts), None) {
            teardown::cut_off(engine, id, violation);
        }
    }
    any
}

/// Takes the next message for its handler; the handler of the one before has `spent` it.
pub(crate) fn next_job(engine: &mut Engine, spent: Option<Spent>) -> Option<Job> {
    if let Some(spent) = spent {
        end_job(engine, spent);
    }
    while let Some((peer, item)) = engine.core.active.next() {
        let Item { label, what, cost, room } = item;
        let handler = engine.core.active.handler(label);
        let failure = match (what, handler) {
            (What::Whole { bytes, receipt }, Some(handler)) => {
                return Some(Job { peer, label, bytes, receipt, handler, cost, room });
            }
            (_, None) => Failure::NoHandler,
            (_, Some(_)) => Failure::TooLong,
        };
        engine.core.status.unhandled.add(1);
        tracing::debug!(handler = label.id, ?failure, "an active message is dropped");
        let failed = label.verb.is_asking().then_some(failure);
        leave_job(engine, Spent { peer, token: label.token, failed, panicked: false, cost, room });
    }
    None
}

/// Takes the outcome of a handler that has ended.
pub(crate) fn end_job(engine: &mut Engine, spent: Spent) {
    engine.core.status.record_of(spent.peer).handled.add(1);
    engine.core.status.handlers_panicked.add(u64::from(spent.panicked));
    leave_job(engine, spent);
}

fn leave_job(engine: &mut Engine, spent: Spent) {
    let Spent { peer: id, token, failed, cost, room, .. } = spent;
    if let Some(failure) = failed {
        send::fail(engine, id, token, failure);
    }
    if let Some(peer) = engine.peers.get_mut(id) {
        peer.owed -= cost;
        peer.rx.release(cost);
        answers::publish(&mut engine.core, peer);
    }
    engine.core.active.done(id, room);
    if engine.core.active.has_chores() {
        fetch_active(engine);
        engine.kick_if_needed();
    }
}
