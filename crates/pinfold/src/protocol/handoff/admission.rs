//! Admission of donated buffers: what is out is counted against the bounds.

use crate::{
    Error,
    protocol::handoff::{account, collect},
    status::Tally,
    worker::{
        core::Core,
        engine::Engine,
        op::{Op, OpKey, OpKind, SendOp},
        op_table::OpTable,
        peer::Peer,
    },
};

/// State of a donated buffer that its giver waits for.
pub(crate) enum Admission {
    /// The buffer waits until its receiver gives something back.
    Held,
    /// The buffer is in flight.
    Goes,
    /// The buffer has ended, as its operation says.
    Ended,
}

/// The state of a send of memory that is given.
pub(crate) fn admission(ops: &OpTable, key: OpKey) -> Admission {
    match ops.get(key) {
        Some(Op { kind: OpKind::Send(SendOp { charge: 0, .. }), done: None, .. }) => {
            Admission::Held
        }
        Some(Op { done: None, .. }) => Admission::Goes,
        _ => Admission::Ended,
    }
}

/// Charges a send of memory that is to be posted, if that may be given now: it then waits for
/// nothing but room and credit.
pub(crate) fn charge_early(engine: &mut Engine, mut send: SendOp) -> SendOp {
    let Ok((peer, core)) = engine.peer_mut(send.peer) else { return send };
    // A send that is charged later goes later: else it might wait for credit that those behind
    // it hold.
    let waits = peer.sends().iter().rev().find_map(|key| {
        let before = core.ops.send_mut(*key).filter(|before| before.given);
        before.map(|before| before.charge == 0)
    });
    if waits == Some(true) || !is_charged(core, peer, &mut send) {
        peer.record.given_stalls.add(1);
    }
    send
}

/// The error of a donated buffer that its receiver has no room for.
pub(crate) fn held(ops: &OpTable) -> Error {
    Error::LimitReached {
        what: "the memory that is given to a peer and not back, in bytes,",
        limit: ops.given.bytes_max(),
        remedy: "wait until it has dropped views, or raise Builder::given_bytes_max",
    }
}

/// Returns whether a send of memory that is given has been charged, or can be now.
pub(crate) fn is_charged(core: &mut Core, peer: &mut Peer, op: &mut SendOp) -> bool {
    if op.charge > 0 {
        return true;
    }
    let cost = account::cost(op.memory.len());
    if !core.ops.given.admits(peer.id, cost) {
        collect::collect_from(core, peer);
    }
    if !core.ops.given.admits(peer.id, cost) {
        return false;
    }
    core.ops.given.charge(peer.id, cost);
    op.charge = cost;
    true
}
