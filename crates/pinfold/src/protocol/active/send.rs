//! Active messages that this endpoint sends: calls, requests, answers.

use std::any::Any;

use super::{act::Act, receive};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    failpoint::{self, Point},
    memory::scatter::{Part, Scatter},
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        active::{ACTIVE_MAX, Failure, Label, Verb},
        descriptor::{Header, INLINE_MAX, Kind},
    },
    worker::{
        Engine,
        core::{self, Core},
        op::{Keeps, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
        outbound,
        peer::{MESSAGE_COST, Peer},
        post,
    },
};

/// A message that fits a descriptor, copied out of its buffer.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    len: usize,
    words: [u64; ACTIVE_MAX / 8],
}

impl Short {
    /// Returns `None` if the bytes do not fit.
    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> Option<Short> {
        if bytes.len() > ACTIVE_MAX {
            return None;
        }
        let mut words = [0; ACTIVE_MAX / 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(eight);
        }
        Some(Short { len: bytes.len(), words })
    }

    /// The same from memory that peers may write.
    pub(crate) fn of_part(part: Part) -> Option<Short> {
        let len = part.len() as usize;
        (len <= ACTIVE_MAX).then(|| Short { len, words: Scatter::from(part).read_words() })
    }
}

/// Writes an active message of up to 48 bytes, if there is room and credit. Returns whether
/// there was.
#[inline]
pub(crate) fn send_active(
    core: &mut Core,
    peer: &mut Peer,
    label: Label,
    len: usize,
    words: &[u64],
) -> Result<bool, Violation> {
    let costs = !label.verb.is_answer();
    if !peer.tx.has_room(&mut core.lane_budget)? || costs && !peer.has_credit(len as u64) {
        return Ok(false);
    }
    let count = len.div_ceil(8);
    let mut body = [0; 7];
    body[0] = label.word();
    body[1..][..count].copy_from_slice(&words[..count]);
    failpoint::hit(if costs { Point::BeforeCall } else { Point::BeforeReply });
    peer.tx.push(Header::new(Kind::Active, len as u8, label.id), &body[..1 + count]);
    failpoint::hit(if costs { Point::AfterCall } else { Point::AfterReply });
    if costs {
        peer.sent_cost += MESSAGE_COST + len as u64;
    }
    Ok(true)
}

/// Chooses the path of a message that could not go at once.
pub(crate) fn route_active(core: &mut Core, peer: &mut Peer, op: &SendOp) -> Result<Receipt> {
    let len = op.memory.len();
    // There is less room in the descriptor, beside the label.
    let too_long = len > ACTIVE_MAX as u64;
    let as_if = if too_long { len.max(INLINE_MAX as u64 + 1) } else { len };
    // A requester must not wait in vain for its answer.
    let strict = core.strict;
    core.strict &= !op.verb.is_answer();
    let chosen = outbound::choose(core, peer, as_if, op.memory.part());
    core.strict = strict;
    let mut receipt = chosen?;
    receipt.bytes = len;
    Ok(receipt)
}

/// Writes a short message at once, if nothing stands before it.
#[inline]
pub(crate) fn call_at_once(engine: &mut Engine, id: PeerId, label: Label, short: Short) -> bool {
    let Short { len, words } = short;
    let (core, Some(peer)) = (&mut engine.core, engine.peers.get_mut(id)) else { return false };
    let clear = peer.is_clear() || label.verb.is_answer() && !peer.is_leaving();
    let goes = !engine.closed
        && clear
        && peer.permissions.may(Path::Inline)
        && send_active(core, peer, label, len, &words) == Ok(true);
    if goes {
        peer.record.count_sent(Path::Inline, len as u64);
        peer.record.called.add(u64::from(!label.verb.is_answer()));
        core::ring(core, peer);
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
pub(crate) fn act_on(engine: &mut Engine, key: OpKey, act: Act) {
    if let Act::Gone { origin, bytes, .. } | Act::Asked { origin: Some(origin), bytes, .. } = &act {
        engine.core.active.charge(*origin, *bytes);
    }
    match engine.core.ops.get_mut(key) {
        Some(op) if op.done.is_none() => {
            op.abandoned = true;
            op.keeps = Some(Keeps::Act(act));
        }
        _ => {
            let done = engine.core.ops.take_done(key).unwrap_or(Err(Error::Closed));
            engine.core.ops.settled.push((key, act, done));
            receive::settle(&mut engine.core);
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
        Ok(key) => act_on(engine, key, Act::Asked { answer, origin, bytes, buffer }),
        Err(error) => {
            expect_none(engine, answer);
            return Err(error);
        }
    }
    Ok(answer)
}

/// Undoes [`expect_answer`].
pub(crate) fn expect_none(engine: &mut Engine, answer: OpKey) {
    if let Some(origin) = engine.core.ops.remove(answer).and_then(|op| op.origin) {
        engine.core.active.shut(origin);
    }
}

/// Tells a peer that its request gets no answer.
pub(crate) fn fail(engine: &mut Engine, id: PeerId, token: u32, failure: Failure) {
    let label = Label { verb: Verb::Failed, id: failure as u32, token };
    // A peer that is gone waits for nothing.
    if let Ok(key) = post_active(engine, id, label, Scatter::empty()) {
        act_on(engine, key, Act::Gone { origin: id, bytes: MESSAGE_COST, buffer: Box::new(()) });
    }
}
