//! Receives of many messages into one buffer.
//!
//! The posted entry stays with the matcher until it is used up, so that no receive posted later
//! overtakes it. At each match, where the length of the message is known, the next part of the
//! buffer is cut off ([`taken_by`]) and an ordinary receive is made for it: what comes below
//! is as for any other. The part's end leads back by [`Keeps::Part`]; `OpTable::end_part` queues
//! the message, and ends the whole when the last part of a used-up buffer has ended.
//!
//! Each message takes at least [`ALIGN`] bytes, an empty one too: peers cannot have more of them
//! queued than the buffer has room for.

use std::collections::VecDeque;

use super::{
    Engine, abandoned,
    core::{self, Core},
    gauges,
    matching::{Source, TagMatch},
    op::{Arrived, Done, Keeps, MultiOp, Op, OpKey, OpKind, PartOf, RecvOp},
    post,
};
use crate::{
    Error, PeerId, Result,
    endpoint::received::{MultiReceived, Received},
    memory::scatter::Scatter,
    protocol::rendezvous::select,
    worker,
};

/// Messages begin at multiples of so many bytes of the buffer.
pub(crate) const ALIGN: u64 = 8;

/// The next news of a receive of many messages.
pub(crate) enum News {
    Message(MultiReceived),
    /// It has ended, and is off the table.
    End(Result<Done>),
}

/// Posts a receive of many messages, which is used up when less than `min_free` bytes of its
/// memory are left.
pub(crate) fn post_multi(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
    memory: Scatter,
    min_free: u64,
) -> Result<OpKey> {
    engine.check()?;
    let min_free = min_free.max(1);
    if min_free > memory.len() {
        return Err(Error::LimitReached {
            what: "the free room of a receive of many messages, in bytes,",
            limit: memory.len(),
            remedy: "ask for less, or bring a longer buffer",
        });
    }
    let multi = MultiOp {
        memory,
        at: 0,
        min_free,
        posted: None,
        running: 0,
        ended: VecDeque::new(),
        end: None,
    };
    let key = engine.core.ops.insert(Op::new(OpKind::Multi(Box::new(multi))));
    while takes_more(engine, key)
        && let Some((id, got_tag, unexpected)) = engine.core.matcher.take(from, tag)
    {
        let len = unexpected.message_len().unwrap_or(0);
        let arrival = engine.core.matcher.matched();
        let part = taken_by(&mut engine.core, key, (id, got_tag, len), arrival);
        post::give(engine, id, got_tag, unexpected, part);
        if let Some(peer) = engine.peers.get_mut(id) {
            gauges::update_peer_gauges(&engine.core, peer);
        }
    }
    if takes_more(engine, key) {
        match post::can_come(engine, from) {
            Ok(()) => post_rest(engine, from, tag, key),
            Err(error) => core::finish(&mut engine.core, key, Err(error)),
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
    Ok(key)
}

fn takes_more(engine: &mut Engine, key: OpKey) -> bool {
    engine.core.ops.multi_mut(key).is_some_and(|multi| multi.end.is_none())
}

/// Posts what is left after the stored messages.
fn post_rest(engine: &mut Engine, from: Source, tag: TagMatch, key: OpKey) {
    if let Source::Peer(id) = from
        && let Some(peer) = engine.peers.get_mut(id)
    {
        select::note_open_memory(&mut engine.core, peer, key);
    }
    let posted = engine.core.matcher.post_standing(from, tag, key);
    if let Some(multi) = engine.core.ops.multi_mut(key) {
        multi.posted = Some(posted);
    }
}

/// Takes the next message that has ended, or, after the last, the end of the receive. The
/// operation is off the table after a message that is the last, too.
pub(crate) fn take_news(engine: &mut Engine, key: OpKey) -> Option<News> {
    let Some(Op { kind: OpKind::Multi(multi), done, .. }) = engine.core.ops.get_mut(key) else {
        return Some(News::End(Err(Error::Closed)));
    };
    if let Some(message) = multi.ended.pop_front() {
        if message.is_last {
            engine.core.ops.remove(key);
        }
        return Some(News::Message(message));
    }
    let done = done.take()?;
    engine.core.ops.remove(key);
    Some(News::End(done))
}

/// Gives a receive of many messages up: it takes no more of them, and those that were not taken
/// are left to the next receives, in the order in which they came.
pub(super) fn relinquish_multi(engine: &mut Engine, key: OpKey) {
    worker::cancel(engine, key);
    let Some(op) = engine.core.ops.get_mut(key) else { return };
    let OpKind::Multi(multi) = &mut op.kind else { return };
    op.abandoned |= op.done.is_none();
    let is_part = |op: &Op| matches!(&op.keeps, Some(Keeps::Part(part)) if part.multi == key);
    let mut left: Vec<(u64, Left)> = std::mem::take(&mut multi.ended)
        .into_iter()
        .filter_map(|message| Left::of(message, &multi.memory))
        .collect();
    if multi.running > 0 {
        let parts = engine.core.ops.open().filter(|(_, op)| is_part(op));
        left.extend(parts.filter_map(|(part, op)| match &op.kind {
            OpKind::Recv(recv) => Some((recv.arrival, Left::Running(part))),
            _ => None,
        }));
    }
    left.sort_by_key(|(arrival, _)| *arrival);
    for (_, message) in left {
        match message {
            Left::Running(part) => abandoned::relinquish(engine, part),
            Left::Ended(recv, arrived) if engine.check().is_ok() => {
                abandoned::store_arrived(engine, *recv, *arrived);
            }
            Left::Ended(..) => {}
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
}

/// A message of a receive that is given up.
enum Left {
    Running(OpKey),
    Ended(Box<RecvOp>, Box<Arrived>),
}

impl Left {
    /// A message that is whole, with its number.
    fn of(message: MultiReceived, memory: &Scatter) -> Option<(u64, Left)> {
        let MultiReceived { peer, tag, len, range, result, arrival, .. } = message;
        let receipt = result.ok()?;
        let memory = memory.slice(range.start as u64, range.len() as u64);
        let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
        let arrived = Arrived::of(Received { peer, tag, len, receipt });
        Some((arrival, Left::Ended(Box::new(recv), Box::new(arrived))))
    }
}

/// The receive for message number `arrival`, which posted receive `key` has matched: that one,
/// or, if it takes many, one of its own into the next part of the memory.
#[inline]
pub(super) fn taken_by(
    core: &mut Core,
    key: OpKey,
    message: (PeerId, u64, u64),
    arrival: u64,
) -> OpKey {
    match core.ops.recv_mut(key) {
        Some(recv) => {
            recv.arrival = arrival;
            key
        }
        None => cut(core, key, message, arrival),
    }
}

fn cut(core: &mut Core, key: OpKey, (peer, tag, len): (PeerId, u64, u64), arrival: u64) -> OpKey {
    let Some(multi) = core.ops.multi_mut(key).filter(|multi| multi.end.is_none()) else {
        return key;
    };
    let (at, size) = (multi.at, multi.memory.len());
    let memory = multi.memory.slice(at, len);
    multi.at = (at + memory.len().max(1)).next_multiple_of(ALIGN).min(size);
    multi.running += 1;
    if size - multi.at < multi.min_free {
        multi.end = Some(Ok(Done::UsedUp(None)));
        if let Some(posted) = multi.posted.take() {
            core.matcher.cancel(posted);
        }
    }
    let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
    let part = PartOf { multi: key, at, peer, tag, len, arrival };
    core.ops.insert(Op::kept(Some(Keeps::Part(part)), OpKind::Recv(recv)))
}
