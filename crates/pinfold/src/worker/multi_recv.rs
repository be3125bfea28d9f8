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
    core::Core,
    ends,
    engine::Engine,
    gauges,
    matching::{Source, TagMatch},
    op::{Done, MultiOp, Op, OpKey, OpKind},
    op_table::OpTable,
    post, posted, room,
    table::PeerTable,
    unexpected,
};
use crate::{Error, Result, endpoint::received::MultiReceived, memory::scatter::Scatter};

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
    while takes_more(&mut engine.core.ops, key)
        && let Some((id, got_tag, unexpected)) = engine.core.matcher.take(from, tag)
    {
        let len = unexpected.message_len().unwrap_or(0);
        let arrival = engine.core.matcher.matched();
        let part = posted::taken_by(
            &mut engine.core.matcher,
            &mut engine.core.ops,
            key,
            (id, got_tag, len),
            arrival,
        );
        unexpected::give(engine, id, got_tag, unexpected, part);
        if let Some(peer) = engine.peers.get_mut(id) {
            gauges::update_peer_gauges(&engine.core.ops, peer);
        }
    }
    if takes_more(&mut engine.core.ops, key) {
        match post::can_come(engine, from) {
            Ok(()) => post_rest(&mut engine.peers, &mut engine.core, from, tag, key),
            Err(error) => ends::finish(&mut engine.core, key, Err(error)),
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
    Ok(key)
}

fn takes_more(ops: &mut OpTable, key: OpKey) -> bool {
    ops.multi_mut(key).is_some_and(|multi| multi.end.is_none())
}

/// Posts what is left after the stored messages.
fn post_rest(peers: &mut PeerTable, core: &mut Core, from: Source, tag: TagMatch, key: OpKey) {
    if let Source::Peer(id) = from
        && let Some(peer) = peers.get_mut(id)
    {
        room::note_open_memory(&mut core.ops, peer, key);
    }
    let posted = core.matcher.post_standing(from, tag, key);
    if let Some(multi) = core.ops.multi_mut(key) {
        multi.posted = Some(posted);
    }
}

/// Takes the next message that has ended, or, after the last, the end of the receive. The
/// operation is off the table after a message that is the last, too.
pub(crate) fn take_news(ops: &mut OpTable, key: OpKey) -> Option<News> {
    let Some(Op { kind: OpKind::Multi(multi), done, .. }) = ops.get_mut(key) else {
        return Some(News::End(Err(Error::Closed)));
    };
    if let Some(message) = multi.ended.pop_front() {
        if message.is_last {
            ops.remove(key);
        }
        return Some(News::Message(message));
    }
    let done = done.take()?;
    ops.remove(key);
    Some(News::End(done))
}
