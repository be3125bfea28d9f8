//! Posting: sends, receives and probes as the caller's side sees them.

use super::{
    engine::Engine,
    gauges,
    matching::{Source, TagMatch},
    op::{Arrived, Done, Keeps, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
    outbound, posted, room, teardown, unexpected,
};
use crate::{Error, Path, PeerId, Receipt, Result, memory::scatter::Scatter};

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
            posted::note_arrival(&mut engine.core.matcher, &mut engine.core.ops, key);
            unexpected::give(engine, peer, tag, unexpected, key);
            if let Some(peer) = engine.peers.get_mut(peer) {
                gauges::update_peer_gauges(&engine.core.ops, peer);
            }
        }
        None => {
            if let Source::Peer(id) = from
                && let Some(peer) = engine.peers.get_mut(id)
            {
                room::note_open_memory(&mut engine.core.ops, peer, key);
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
        Source::Any => {
            teardown::nobody_left(&engine.peers, &engine.connections).map_or(Ok(()), Err)
        }
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
