//! Posting: sends, receives and probes as the caller's side sees them.

use super::{
    Engine,
    abandoned::{self, no_memory},
    core::{self, Unexpected},
    gauges, inbound,
    matching::{Source, TagMatch},
    op::{Arrived, Done, Keeps, Lending, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
    outbound, progress, teardown,
};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    memory::{imported_extents::Loan, scatter::Scatter},
    protocol::{
        handoff::{after_close, parts::Parts, vectored},
        rendezvous::select,
    },
    wire::rendezvous::By,
};

/// The header of a message that can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The sender.
    pub peer: PeerId,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// Posts a send; `chosen` is the answer of the cost model for it, if it was asked. The send
/// ends when the memory is the caller's again.
pub(crate) fn post_send(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    memory: Scatter,
    required: Option<Path>,
    chosen: Option<Receipt>,
) -> Result<OpKey> {
    let receipt = chosen.unwrap_or(Receipt::new(Path::Eager, memory.len()));
    let send = SendOp::new(id, tag, memory, receipt);
    post(engine, SendOp { routed: chosen.is_some(), required, ..send }, None)
}

/// Posts a send; `keeps` is memory that it needs until it has ended, if its caller may not see
/// to that.
pub(crate) fn post(engine: &mut Engine, send: SendOp, keeps: Option<Keeps>) -> Result<OpKey> {
    engine.check()?;
    let id = send.peer;
    let (peer, core) = engine.peer_mut(id)?;
    let is_answer = send.verb.is_answer();
    let key = core.ops.insert(Op { keeps, ..Op::new(OpKind::Send(send)) });
    match is_answer {
        true => peer.asked.push_back(key),
        false => peer.queue_send(key),
    }
    if let Err(violation) = outbound::pump(core, peer) {
        // Ends the operation too, with the reason.
        teardown::cut_off(engine, id, violation);
    }
    engine.kick_if_needed();
    Ok(key)
}

/// Posts a receive into `memory`, or as a message.
pub(crate) fn post_recv(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
    memory: Option<Scatter>,
) -> Result<OpKey> {
    post_any(engine, from, tag, RecvOp::new(memory))
}

/// Posts a receive of a message that may stay where it is.
pub(crate) fn post_view(engine: &mut Engine, from: Source, tag: TagMatch) -> Result<OpKey> {
    post_any(engine, from, tag, RecvOp { as_view: true, ..RecvOp::new(None) })
}

fn post_any(engine: &mut Engine, from: Source, tag: TagMatch, recv: RecvOp) -> Result<OpKey> {
    engine.check()?;
    let taken = engine.core.matcher.take(from, tag);
    if taken.is_none() {
        can_come(engine, from)?;
    }
    let key = engine.core.ops.insert(Op::new(OpKind::Recv(recv)));
    match taken {
        Some((peer, tag, unexpected)) => {
            abandoned::note_arrival(&mut engine.core, key);
            give(engine, peer, tag, unexpected, key);
            if let Some(peer) = engine.peers.get_mut(peer) {
                gauges::update_peer_gauges(&engine.core, peer);
            }
        }
        None => {
            if let Source::Peer(id) = from
                && let Some(peer) = engine.peers.get_mut(id)
            {
                select::note_open_memory(&mut engine.core, peer, key);
            }
            let posted = engine.core.matcher.post(from, tag, key);
            if let Some(op) = engine.core.ops.recv_mut(key) {
                op.stage = RecvStage::Posted(posted);
                if engine.core.prefault.wants(op.memory.len())
                    && engine.core.prefault.note(key, from, &op.memory)
                {
                    // A sleeping thread is woken for it only if there is something to do.
                    engine.kick |= engine.asleep && op.memory.is_absent();
                }
            }
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
    Ok(key)
}

/// Checks that a message can still come from this source.
pub(crate) fn can_come(engine: &Engine, from: Source) -> Result<()> {
    match from {
        Source::Peer(id) => engine.present(id),
        Source::Any => teardown::nobody_left(engine).map_or(Ok(()), Err),
    }
}

/// Gives a stored message to a receive.
pub(crate) fn give(engine: &mut Engine, id: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
    let (peers, core) = (&mut engine.peers, &mut engine.core);
    let peer = peers.get_mut(id);
    match (unexpected, peer) {
        (Unexpected::Whole { bytes, cost, inline, by }, peer) => {
            let path = if inline { Path::Inline } else { Path::Eager };
            let mut receipt = Receipt::new(path, 0);
            if let Some(peer) = peer {
                peer.owed -= cost;
                peer.rx.release(cost);
                progress::publish(core, peer);
                receipt = peer.receipt(path, 0, bytes.len());
            }
            receipt.note_copies(by);
            inbound::deliver_stored(core, key, id, tag, bytes, receipt);
        }
        (Unexpected::Arriving { sid, .. }, Some(peer)) => {
            inbound::redirect(core, peer, sid, key);
            progress::publish(core, peer);
        }
        (Unexpected::Waiting { sid, rts, list }, Some(peer)) => {
            peer.announced.remove(&sid);
            vectored::taken(peer, list.as_deref());
            if let Err(violation) = select::select(core, peer, key, (sid, rts), list.as_deref()) {
                teardown::cut_off(engine, id, violation);
            }
        }
        (Unexpected::Left { len, memory }, _) => {
            after_close::hand_out(core, key, (id, tag, len), memory)
        }
        (Unexpected::Passing { of, .. }, _) => abandoned::follow(core, key, of),
        (Unexpected::Again { bytes, receipt }, _) => {
            abandoned::deliver_again(core, key, (id, tag), bytes, *receipt);
        }
        (Unexpected::NoMemory { len }, _) => core::finish(core, key, Err(no_memory(len))),
        (_, None) | (Unexpected::Lost, _) => {
            let error = engine.present(id).err().unwrap_or(Error::UnknownPeer { peer: id });
            core::finish(&mut engine.core, key, Err(error));
        }
    }
}

/// The first message that a receive would take.
pub(crate) fn probe(engine: &mut Engine, from: Source, tag: TagMatch) -> Result<Option<Envelope>> {
    engine.check()?;
    let Some((peer, tag, unexpected)) = engine.core.matcher.find(from, tag) else {
        can_come(engine, from)?;
        return Ok(None);
    };
    let Some(len) = unexpected.message_len() else {
        engine.present(peer)?;
        return Err(Error::UnknownPeer { peer });
    };
    Ok(Some(Envelope { peer, tag, len }))
}

/// Lets an operation go on though its result is not wanted any more; `keeps` lives until then.
/// The operation is given up, as far as it can be.
pub(crate) fn abandon(engine: &mut Engine, key: OpKey, keeps: Keeps) {
    abandoned::relinquish(engine, key);
    let_go(engine, key, keeps);
}

/// As [`abandon`], but the operation goes on.
pub(crate) fn let_go(engine: &mut Engine, key: OpKey, keeps: Keeps) {
    match engine.core.ops.get_mut(key) {
        Some(op) if op.done.is_none() => {
            op.abandoned = true;
            op.keeps = Some(keeps);
            let waker = op.waker.take();
            engine.core.wakes.drops.extend(waker.map(|waker| Box::new(waker) as Box<_>));
        }
        _ => {
            let done = engine.core.ops.remove(key).and_then(|op| op.done);
            if let Some(Ok(Done::Arrived(Arrived { peer, len, loan: Some(loan), .. }))) = done {
                match loan {
                    Lending::One(loan) => give_back(engine, peer, &loan),
                    Lending::Parts(parts) => {
                        let Parts { parts, sid, .. } = *parts;
                        drop(parts);
                        vectored::count_contiguous(engine, peer, Path::Handoff, len, 0);
                        vectored::give_parts_back(engine, peer, sid, By::View, 0);
                    }
                }
            }
            if let Keeps::Buffer(buffer) = keeps {
                engine.core.wakes.drops.push(buffer);
            }
        }
    }
}

/// Tells the peer that its memory is no longer read.
#[inline]
pub(crate) fn give_back(engine: &mut Engine, id: PeerId, loan: &Loan) {
    match engine.peers.get_mut(id).filter(|peer| !peer.is_leaving()) {
        Some(peer) => {
            select::end_loan(&mut engine.core, peer, loan);
            engine.kick_if_needed();
        }
        None => engine.core.imported.give_back(loan),
    }
}

/// The result of a send, from the result of its operation.
pub(crate) fn sent(done: Result<Done>) -> Result<Receipt> {
    match done? {
        Done::Sent(receipt) => Ok(receipt),
        Done::Arrived(arrived) => Ok(arrived.receipt),
        _ => Err(Error::Closed),
    }
}

/// The result of a receive, from the result of its operation.
pub(crate) fn arrived(done: Result<Done>) -> Result<Arrived> {
    match done? {
        Done::Arrived(arrived) => Ok(arrived),
        _ => Err(Error::Closed),
    }
}

/// The result of connecting or accepting, from the result of its operation.
pub(crate) fn joined(done: Result<Done>) -> Result<PeerId> {
    match done? {
        Done::Connected(peer) | Done::Accepted(peer) => Ok(peer),
        _ => Err(Error::Closed),
    }
}
