//! Active messages that this endpoint sends: calls, requests, answers.

use std::any::Any;

use super::{
    act::Act,
    calls::{self, Short},
    queue::Queues,
    settle,
};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    memory::scatter::Scatter,
    status::Tally,
    wire::active::{Failure, Label, Verb},
    worker::{
        answers,
        core::Core,
        engine::Engine,
        op::{Keeps, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
        op_table::OpTable,
        peer::MESSAGE_COST,
        post,
    },
};

/// Writes a short message at once, if nothing stands before it.
#[inline]
pub(crate) fn call_at_once(engine: &mut Engine, id: PeerId, label: Label, short: Short) -> bool {
    let Short { len, words } = short;
    let (core, Some(peer)) = (&mut engine.core, engine.peers.get_mut(id)) else { return false };
    let clear = peer.is_clear() || label.verb.is_answer() && !peer.is_leaving();
    let goes = !core.closed
        && clear
        && peer.permissions.may(Path::Inline)
        && calls::send_active(&mut core.lane_budget, peer, label, len, &words) == Ok(true);
    if goes {
        peer.record.count_sent(Path::Inline, len as u64);
        peer.record.called.add(u64::from(!label.verb.is_answer()));
        answers::ring(core, peer);
    }
    goes
}

/// Posts an active message. Its operation ends when the memory is the caller's again.
pub(crate) fn post_active(
    engine: &mut Engine,
    id: PeerId,
    label: Label,
    memory: Scatter,
) -> Result<OpKey> {
    let receipt = Receipt::new(Path::Eager, memory.len());
    let send = SendOp::new(id, label.tag(), memory, receipt);
    let key = post::post(engine, SendOp { verb: label.verb, ..send }, None)?;
    engine.core.status.record_of(id).called.add(u64::from(!label.verb.is_answer()));
    Ok(key)
}

/// Lets an operation continue; its end has the effect `act`.
pub(crate) fn act_on(core: &mut Core, key: OpKey, act: Act) {
    if let Act::Gone { origin, bytes, .. } | Act::Asked { origin: Some(origin), bytes, .. } = &act {
        core.active.charge(*origin, *bytes);
    }
    match core.ops.get_mut(key) {
        Some(op) if op.done.is_none() => {
            op.abandoned = true;
            op.keeps = Some(Keeps::Act(act));
        }
        _ => {
            let done = core.ops.take_done(key).unwrap_or(Err(Error::Closed));
            core.ops.settled.push((key, act, done));
            settle::settle(core);
        }
    }
}

/// Sets a place aside for the answer of a peer's handler `id`. If a handler asks, the answer
/// counts against `origin`, the peer whose message it handles, until it comes.
pub(crate) fn expect_answer(
    engine: &mut Engine,
    peer: PeerId,
    id: u32,
    origin: Option<PeerId>,
) -> Result<OpKey> {
    engine.check()?;
    engine.present(peer)?;
    if let Some(origin) = origin {
        engine.core.active.open(origin);
    }
    let stage = RecvStage::Asked { peer, id };
    let op = Op::new(OpKind::Recv(RecvOp { stage, ..RecvOp::new(None) }));
    Ok(engine.core.ops.insert(Op { origin, ..op }))
}

/// Sends a request whose [answer](expect_answer) has its place, and whose payload is
/// kept until it has gone.
pub(crate) fn post_request(
    engine: &mut Engine,
    peer: PeerId,
    label: Label,
    answer: OpKey,
    origin: Option<PeerId>,
    (memory, buffer): (Scatter, Box<dyn Any + Send>),
) -> Result<OpKey> {
    let bytes = MESSAGE_COST + memory.len();
    match post_active(engine, peer, label, memory) {
        Ok(key) => act_on(&mut engine.core, key, Act::Asked { answer, origin, bytes, buffer }),
        Err(error) => {
            expect_none(&mut engine.core.ops, &mut engine.core.active, answer);
            return Err(error);
        }
    }
    Ok(answer)
}

/// Undoes [`expect_answer`].
pub(crate) fn expect_none(ops: &mut OpTable, active: &mut Queues, answer: OpKey) {
    if let Some(origin) = ops.remove(answer).and_then(|op| op.origin) {
        active.shut(origin);
    }
}

/// Tells a peer that its request gets no answer.
pub(crate) fn fail(engine: &mut Engine, id: PeerId, token: u32, failure: Failure) {
    let label = Label { verb: Verb::Failed, id: failure as u32, token };
    // A peer that is gone waits for nothing.
    if let Ok(key) = post_active(engine, id, label, Scatter::empty()) {
        act_on(
            &mut engine.core,
            key,
            Act::Gone { origin: id, bytes: MESSAGE_COST, buffer: Box::new(()) },
        );
    }
}
