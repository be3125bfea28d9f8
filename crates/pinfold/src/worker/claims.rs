//! Stored messages looked at, and claimed for one receive that is posted later.
//!
//! A message that was claimed keeps its place and its credit; its pieces go on coming in.

use super::{
    Engine,
    core::Unexpected,
    inbound_stream::Sink,
    op::{Keeps, Op, OpKey, OpKind, RecvOp},
    peer::Peer,
    post::Envelope,
};
use crate::{
    Error, PeerId, Result,
    memory::scatter::Scatter,
    worker::matching::{Source, TagMatch, UnexpectedKey},
};

/// Bytes of a message that its envelope shows.
const HEAD_BYTES: usize = 8;

impl Engine {
    /// The first message that a receive would take.
    pub(crate) fn probe(&mut self, from: Source, tag: TagMatch) -> Result<Option<Envelope>> {
        self.check()?;
        let Some((peer, tag, unexpected)) = self.core.matcher.find(from, tag) else {
            self.can_come(from)?;
            return Ok(None);
        };
        let Some(len) = unexpected.message_len() else {
            self.present(peer)?;
            return Err(Error::UnknownPeer { peer });
        };
        let head = head(unexpected, self.peers.get(peer));
        Ok(Some(Envelope { peer, tag, len, head }))
    }

    /// Claims the first message that a receive would take.
    pub(crate) fn claim(
        &mut self,
        from: Source,
        tag: TagMatch,
    ) -> Result<Option<(UnexpectedKey, Envelope)>> {
        let Some(envelope) = self.probe(from, tag)? else { return Ok(None) };
        Ok(self.core.matcher.claim(from, tag).map(|key| (key, envelope)))
    }

    /// The first bytes of a message that was claimed, as far as they are known by now.
    pub(crate) fn head_of_claimed(&self, key: UnexpectedKey) -> Option<[u8; HEAD_BYTES]> {
        let (peer, _, _, unexpected) = self.core.matcher.claimed(key)?;
        head(unexpected, self.peers.get(peer))
    }

    /// Posts a receive of a message of this peer that was claimed, into `memory`, or as a message.
    pub(crate) fn post_claimed(
        &mut self,
        from: PeerId,
        claimed: UnexpectedKey,
        memory: Option<Scatter>,
    ) -> Result<OpKey> {
        self.check()?;
        let Some((peer, tag, unexpected)) = self.core.matcher.take_claimed(claimed) else {
            // It has failed meanwhile.
            self.present(from)?;
            return Err(Error::UnknownPeer { peer: from });
        };
        let key = self.core.ops.insert(Op::new(OpKind::Recv(RecvOp::new(memory))));
        self.core.note_arrival(key);
        self.give_stored(peer, tag, unexpected, key);
        Ok(key)
    }

    /// Receives a message that was claimed into nothing.
    pub(crate) fn discard_claimed(&mut self, from: PeerId, claimed: UnexpectedKey) {
        if let Ok(key) = self.post_claimed(from, claimed, Some(Scatter::empty())) {
            self.let_go(key, Keeps::Buffer(Box::new(())));
        }
    }

    /// Leaves a message that was claimed to the receive that was posted for it meanwhile, or to the
    /// next one.
    pub(crate) fn unclaim(&mut self, claimed: UnexpectedKey) {
        let Some((peer, tag, arrival, unexpected)) = self.core.matcher.claimed(claimed) else {
            return;
        };
        let whole = (peer, tag, unexpected.message_len().unwrap_or(0));
        match self.core.match_again(whole, arrival) {
            Some(key) => {
                if let Some((peer, tag, unexpected)) = self.core.matcher.take_claimed(claimed) {
                    self.give_stored(peer, tag, unexpected, key);
                }
            }
            None => self.core.matcher.unclaim(claimed),
        }
        self.core.wakes.any = true;
    }

    /// As [`Engine::give`], with all that goes with it.
    fn give_stored(&mut self, peer: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
        self.give(peer, tag, unexpected, key);
        if let Some(peer) = self.peers.get_mut(peer) {
            self.core.update_peer_gauges(peer);
        }
        self.update_gauges();
        self.kick_if_needed();
    }
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
