//! Stored messages looked at, and claimed for one receive that is posted later.
//!
//! A message that was claimed keeps its place and its credit; its pieces go on coming in.

use super::{
    abandoned,
    core::Unexpected,
    engine::Engine,
    envelope::Envelope,
    gauges,
    inbound_stream::Sink,
    op::{Keeps, Op, OpKey, OpKind, RecvOp},
    peer::Peer,
    post, posted, unexpected,
};
use crate::{
    Error, PeerId, Result,
    memory::scatter::Scatter,
    worker::matching::{Source, TagMatch, UnexpectedKey},
};

/// Bytes of a message that its envelope shows.
const HEAD_BYTES: usize = 8;

/// The first message that a receive would take.
pub(crate) fn probe(engine: &mut Engine, from: Source, tag: TagMatch) -> Result<Option<Envelope>> {
    engine.check()?;
    let Some((peer, tag, unexpected)) = engine.core.matcher.find(from, tag) else {
        post::can_come(engine, from)?;
        return Ok(None);
    };
    let Some(len) = unexpected.message_len() else {
        engine.present(peer)?;
        return Err(Error::UnknownPeer { peer });
    };
    let head = head(unexpected, engine.peers.get(peer));
    Ok(Some(Envelope { peer, tag, len, head }))
}

/// Claims the first message that a receive would take.
pub(crate) fn claim(
    engine: &mut Engine,
    from: Source,
    tag: TagMatch,
) -> Result<Option<(UnexpectedKey, Envelope)>> {
    let Some(envelope) = probe(engine, from, tag)? else { return Ok(None) };
    Ok(engine.core.matcher.claim(from, tag).map(|key| (key, envelope)))
}

/// The first bytes of a message that was claimed, as far as they are known by now.
pub(crate) fn head_of_claimed(engine: &Engine, key: UnexpectedKey) -> Option<[u8; HEAD_BYTES]> {
    let (peer, _, _, unexpected) = engine.core.matcher.claimed(key)?;
    head(unexpected, engine.peers.get(peer))
}

/// Posts a receive of a message of this peer that was claimed, into `memory`, or as a message.
pub(crate) fn post_claimed(
    engine: &mut Engine,
    from: PeerId,
    claimed: UnexpectedKey,
    memory: Option<Scatter>,
) -> Result<OpKey> {
    engine.check()?;
    let Some((peer, tag, unexpected)) = engine.core.matcher.take_claimed(claimed) else {
        // It has failed meanwhile.
        engine.present(from)?;
        return Err(Error::UnknownPeer { peer: from });
    };
    let key = engine.core.ops.insert(Op::new(OpKind::Recv(RecvOp::new(memory))));
    posted::note_arrival(&mut engine.core.matcher, &mut engine.core.ops, key);
    give_stored(engine, peer, tag, unexpected, key);
    Ok(key)
}

/// Receives a message that was claimed into nothing.
pub(crate) fn discard_claimed(engine: &mut Engine, from: PeerId, claimed: UnexpectedKey) {
    if let Ok(key) = post_claimed(engine, from, claimed, Some(Scatter::empty())) {
        abandoned::let_go(engine, key, Keeps::Buffer(Box::new(())));
    }
}

/// Leaves a message that was claimed to the receive that was posted for it meanwhile, or to the
/// next one.
pub(crate) fn unclaim(engine: &mut Engine, claimed: UnexpectedKey) {
    let Some((peer, tag, arrival, unexpected)) = engine.core.matcher.claimed(claimed) else {
        return;
    };
    let whole = (peer, tag, unexpected.message_len().unwrap_or(0));
    match posted::match_again(&mut engine.core.matcher, &mut engine.core.ops, whole, arrival) {
        Some(key) => {
            if let Some((peer, tag, unexpected)) = engine.core.matcher.take_claimed(claimed) {
                give_stored(engine, peer, tag, unexpected, key);
            }
        }
        None => engine.core.matcher.unclaim(claimed),
    }
    engine.core.wakes.any = true;
}

/// As [`unexpected::give`], with all that goes with it.
fn give_stored(engine: &mut Engine, peer: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
    unexpected::give(engine, peer, tag, unexpected, key);
    if let Some(peer) = engine.peers.get(peer) {
        gauges::update_peer_gauges(&engine.core.ops, peer);
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
}

/// The first bytes of a stored message, zeros beyond its end. `None`: they are not here.
fn head(unexpected: &Unexpected, peer: Option<&Peer>) -> Option<[u8; HEAD_BYTES]> {
    match unexpected {
        Unexpected::Whole { bytes, .. } | Unexpected::Again { bytes, .. } => {
            let first = bytes.first();
            let len = first.len().min(HEAD_BYTES);
            let mut head = [0; HEAD_BYTES];
            head[..len].copy_from_slice(&first[..len]);
            // Pages come in pieces of thousands of bytes.
            (len as u64 == bytes.len().min(HEAD_BYTES as u64)).then_some(head)
        }
        Unexpected::Arriving { sid, len } => {
            let peer = peer?;
            match &peer.inbound.get(peer.inbound_at(*sid)?)?.sink {
                Sink::Keep(_, kept) => kept.head((*len).min(HEAD_BYTES as u64)),
                _ => None,
            }
        }
        Unexpected::Waiting { rts, .. } => rts.head.map(u64::to_ne_bytes),
        Unexpected::Left { .. }
        | Unexpected::Passing { .. }
        | Unexpected::NoMemory { .. }
        | Unexpected::Lost => None,
    }
}
