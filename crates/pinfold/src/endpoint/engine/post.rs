//! Posting: sends, receives and probes as the caller's side sees them.

use super::{
    Engine,
    core::{Core, Unexpected},
    op::{Arrived, Done, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp, SendStage},
    peer::{MESSAGE_COST, Peer},
};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    endpoint::{
        matching::{Source, TagMatch},
        message::Received,
        scatter::Scatter,
    },
    link::shm::ring::Violation,
    wire::descriptor::{Eager, INLINE_MAX, Kind},
};

/// The header of a message that can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Who sent it.
    pub peer: PeerId,
    /// Its tag.
    pub tag: u64,
    /// Its length, bytes.
    pub len: u64,
}

/// What became of a send that should go at once.
pub(crate) enum Now {
    Sent(Receipt),
    /// It has to be posted; with what the cost model chose, if it was asked.
    Later(Option<Receipt>),
}

/// What a look at the heads of the lanes found.
pub(crate) enum Look {
    /// The message, received.
    Took(Result<Received>),
    /// Nothing has come.
    Nothing,
    /// Something that needs the ordinary way.
    Other,
}

impl Engine {
    /// Sends a short contiguous message at once, if that is possible and `inline` is allowed.
    #[inline(always)]
    pub(crate) fn send_now(
        &mut self,
        id: PeerId,
        tag: u64,
        len: usize,
        word: impl Fn(usize) -> u64,
    ) -> Result<Option<Receipt>> {
        self.in_a_row = 0;
        let (peer, core) = self.peer_mut(id)?;
        if !peer.out.is_empty() || !peer.control.is_empty() || !peer.permissions.may(Path::Inline) {
            return Ok(None);
        }
        match core.send_inline(peer, tag, len, word) {
            Ok(true) => {
                core.ring(peer);
                core.counters.count_sent(Path::Inline, len as u64);
                core.counters.copied_user += len as u64;
                let mut receipt = Receipt::new(Path::Inline, len as u64);
                receipt.copied_user = len as u64;
                Ok(Some(receipt))
            }
            Ok(false) => Ok(None),
            Err(violation) => Err(self.violated(id, violation)),
        }
    }

    /// Sends a message of one piece at once, if that is possible and the cost model says so.
    pub(crate) fn send_piece_now(&mut self, id: PeerId, tag: u64, memory: &Scatter) -> Result<Now> {
        let (peer, core) = self.peer_mut(id)?;
        if !peer.out.is_empty() || !peer.control.is_empty() {
            return Ok(Now::Later(None));
        }
        let mut receipt = core.choose(peer, memory.len())?;
        if receipt.path != Path::Eager {
            return Ok(Now::Later(Some(receipt)));
        }
        match core.send_one_piece(peer, tag, memory) {
            Ok(true) => {
                core.ring(peer);
                core.counters.count_sent(Path::Eager, memory.len());
                core.counters.copied_user += memory.len();
                receipt.copied_user = memory.len();
                Ok(Now::Sent(receipt))
            }
            Ok(false) => Ok(Now::Later(Some(receipt))),
            Err(violation) => Err(self.violated(id, violation)),
        }
    }

    #[cold]
    fn violated(&mut self, id: PeerId, violation: Violation) -> Error {
        self.cut_off(id, violation);
        self.peers.why_gone(id)
    }

    /// Posts a send; `chosen` is what the cost model said of it, if it was asked. It ends when the memory is the caller's again.
    pub(crate) fn post_send(
        &mut self,
        id: PeerId,
        tag: u64,
        memory: Scatter,
        required: Option<Path>,
        chosen: Option<Receipt>,
    ) -> Result<OpKey> {
        self.check()?;
        let (peer, core) = self.peer_mut(id)?;
        let receipt = chosen.unwrap_or(Receipt::new(Path::Eager, memory.len()));
        let (stage, routed) = (SendStage::Fresh, chosen.is_some());
        let send = SendOp { peer: id, tag, memory, stage, receipt, routed, started: 0, required };
        let key = core.ops.insert(Op::new(OpKind::Send(send)));
        peer.out.push_back(key);
        if let Err(violation) = core.pump(peer) {
            // Ends the operation too, with the reason.
            self.cut_off(id, violation);
        }
        self.kick_if_needed();
        Ok(key)
    }

    /// Posts a receive into `memory`, or as a message.
    pub(crate) fn post_recv(
        &mut self,
        from: Source,
        tag: TagMatch,
        memory: Option<Scatter>,
    ) -> Result<OpKey> {
        self.check()?;
        let as_message = memory.is_none();
        let recv = RecvOp {
            memory: memory.unwrap_or(Scatter::empty()),
            own: None,
            as_message,
            stage: RecvStage::Moving,
        };
        let taken = self.core.matcher.take(from, tag);
        if taken.is_none() {
            self.can_come(from)?;
        }
        let key = self.core.ops.insert(Op::new(OpKind::Recv(recv)));
        match taken {
            Some((peer, tag, unexpected)) => self.give(peer, tag, unexpected, key),
            None => {
                let posted = self.core.matcher.post(from, tag, key);
                if let Some(op) = self.core.ops.recv_mut(key) {
                    op.stage = RecvStage::Posted(posted);
                }
            }
        }
        self.kick_if_needed();
        Ok(key)
    }

    /// Whether anything can still come from this source.
    pub(crate) fn can_come(&self, from: Source) -> Result<()> {
        match from {
            Source::Peer(id) => self.present(id),
            Source::Any => self.nobody_left().map_or(Ok(()), Err),
        }
    }

    /// Gives a stored message to a receive.
    fn give(&mut self, id: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
        let (peers, core) = (&mut self.peers, &mut self.core);
        let peer = peers.get_mut(id);
        match (unexpected, peer) {
            (Unexpected::Whole { bytes, cost, inline }, peer) => {
                let path = if inline { Path::Inline } else { Path::Eager };
                let mut receipt = Receipt::new(path, 0);
                if let Some(peer) = peer {
                    peer.owed -= cost;
                    peer.rx.release(cost);
                    Engine::publish(core, peer);
                    receipt = peer.receipt(path, 0, bytes.len() as u64);
                }
                let Some(op) = core.ops.recv_mut(key) else { return };
                if op.as_message {
                    let len = bytes.len() as u64;
                    receipt.bytes = len;
                    receipt.copied_user = len;
                    core.arrive(key, Arrived { peer: id, tag, len, receipt, bytes: Some(bytes) });
                } else {
                    // It was copied into our memory when it came, and now once more.
                    receipt.copied_user = bytes.len() as u64;
                    core.deliver(key, id, tag, &bytes, receipt);
                }
            }
            (Unexpected::Arriving { sid, .. }, Some(peer)) => {
                core.redirect(peer, sid, key);
                Engine::publish(core, peer);
            }
            (Unexpected::Waiting { sid, len, place, stream }, Some(peer)) => {
                peer.announced.remove(&sid);
                if let Err(violation) = core.fetch(peer, key, sid, tag, len, place, stream) {
                    self.cut_off(id, violation);
                }
            }
            (_, None) | (Unexpected::Lost, _) => {
                let error = self.present(id).err().unwrap_or(Error::UnknownPeer { peer: id });
                self.core.finish(key, Err(error));
            }
        }
    }

    /// The first message that a receive would take.
    pub(crate) fn probe(&mut self, from: Source, tag: TagMatch) -> Result<Option<Envelope>> {
        self.check()?;
        let Some((peer, tag, unexpected)) = self.core.matcher.find(from, tag) else {
            self.can_come(from)?;
            return Ok(None);
        };
        let len = match unexpected {
            Unexpected::Whole { bytes, .. } => bytes.len() as u64,
            Unexpected::Arriving { len, .. } | Unexpected::Waiting { len, .. } => *len,
            Unexpected::Lost => {
                self.present(peer)?;
                return Err(Error::UnknownPeer { peer });
            }
        };
        Ok(Some(Envelope { peer, tag, len }))
    }

    /// Receives the message at the head of a lane without posting anything, if it matches, is
    /// whole and short, and nothing else is posted or stored.
    #[inline(always)]
    pub(crate) fn recv_now(&mut self, from: Source, tag: TagMatch, memory: &Scatter) -> Look {
        if !self.core.matcher.is_idle() || self.armed && !self.driven {
            return Look::Other;
        }
        match from {
            Source::Peer(id) => match self.peers.get_mut(id) {
                Some(peer) if peer.leaving.is_some() => Look::Other,
                Some(peer) => recv_head(&mut self.core, peer, tag, memory),
                None => Look::Other,
            },
            Source::Any => {
                for &index in &self.hot {
                    let Some(peer) = self.peers.at_mut(index) else { continue };
                    if peer.leaving.is_some() {
                        continue;
                    }
                    match recv_head(&mut self.core, peer, tag, memory) {
                        Look::Nothing => {}
                        found => return found,
                    }
                }
                Look::Nothing
            }
        }
    }

    /// Lets an operation go on without anyone to ask for its result; `keeps` lives until then.
    pub(crate) fn abandon(&mut self, key: OpKey, keeps: Option<Box<dyn std::any::Any + Send>>) {
        if self.is_forked() {
            // It is the parent's operation; the buffer here is a copy that nobody uses.
            self.core.wakes.drops.extend(keeps);
            return;
        }
        self.cancel(key);
        match self.core.ops.get_mut(key) {
            Some(op) if op.done.is_none() => {
                op.abandoned = true;
                op.keeps = keeps;
                let waker = op.waker.take();
                self.core.wakes.drops.extend(waker.map(|waker| Box::new(waker) as Box<_>));
            }
            _ => {
                self.core.ops.remove(key);
                self.core.wakes.drops.extend(keeps);
            }
        }
    }
}

#[inline(always)]
fn recv_head(core: &mut Core, peer: &mut Peer, tag: TagMatch, memory: &Scatter) -> Look {
    let Some(header) = peer.rx.head() else { return Look::Nothing };
    let (got_tag, len, receipt);
    if header.is_inline() {
        got_tag = u64::from(peer.tag_high_rx) << 32 | u64::from(header.aux());
        // A length that no honest peer writes is for the ordinary way to judge.
        let Some(bytes) = header.inline_len(INLINE_MAX).filter(|_| tag.matches(got_tag)) else {
            return Look::Other;
        };
        len = bytes as u64;
        let taken = if bytes <= 8 {
            let word = peer.rx.word(0).to_ne_bytes();
            memory.write(0, &word[..bytes])
        } else {
            memory.write(0, &super::inbound::bytes_of(&peer.rx.body())[..bytes])
        };
        let mut made = Receipt::new(Path::Inline, taken);
        made.copied_user = taken;
        receipt = made;
    } else if header.kind() == Some(Kind::Eager) {
        let eager = Eager::read(&peer.rx.body());
        if !tag.matches(eager.tag)
            || u64::from(eager.piece.len) != eager.len
            || eager.len > peer.granted
        {
            return Look::Other;
        }
        (got_tag, len) = (eager.tag, eager.len);
        let Ok(taken) = memory.drain(&peer.rx, eager.piece, 0) else { return Look::Other };
        let mut made = peer.receipt(Path::Eager, taken, len);
        made.copied_user = taken;
        receipt = made;
    } else {
        return Look::Other;
    }
    if peer.rx.advance(header).is_err() {
        // The ordinary way finds the same and cuts the peer off.
        return Look::Other;
    }
    peer.rx.release(MESSAGE_COST + len);
    if peer.rx.unpublished() >= super::PUBLISH_AFTER || peer.rx.head().is_none() {
        Engine::publish(core, peer);
    }
    core.counters.count_received(receipt.path, receipt.bytes);
    core.counters.copied_user += receipt.copied_user;
    Look::Took(Received { peer: peer.id, tag: got_tag, len, receipt }.checked())
}

/// What a send's result is, of what an operation ended with.
pub(crate) fn sent(done: Result<Done>) -> Result<Receipt> {
    match done? {
        Done::Sent(receipt) => Ok(receipt),
        Done::Arrived(arrived) => Ok(arrived.receipt),
    }
}

/// What a receive's result is, of what an operation ended with.
pub(crate) fn arrived(done: Result<Done>) -> Result<Arrived> {
    match done? {
        Done::Arrived(arrived) => Ok(arrived),
        Done::Sent(_) => Err(Error::Closed),
    }
}
