//! Posting: sends, receives and probes as the caller's side sees them.

use super::{
    Engine,
    abandoned::no_memory,
    core::Unexpected,
    op::{Arrived, Done, Keeps, Lending, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp},
};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    memory::{imported_extents::Loan, scatter::Scatter},
    protocol::handoff::{parts::Parts, vectored},
    wire::rendezvous::By,
    worker::matching::{Source, TagMatch},
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
    /// Its first 8 bytes, zeros beyond its end, if they are known here: of every message that has
    /// come, and of one that still lies with its sender in several parts, or has no more than
    /// these. `None` while the first piece of a message is coming.
    pub head: Option<[u8; 8]>,
}

impl Engine {
    /// Posts a send; `chosen` is the answer of the cost model for it, if it was asked. The send
    /// ends when the memory is the caller's again.
    pub(crate) fn post_send(
        &mut self,
        id: PeerId,
        tag: u64,
        memory: Scatter,
        required: Option<Path>,
        chosen: Option<Receipt>,
    ) -> Result<OpKey> {
        let receipt = chosen.unwrap_or(Receipt::new(Path::Eager, memory.len()));
        let send = SendOp::new(id, tag, memory, receipt);
        self.post(SendOp { routed: chosen.is_some(), required, ..send }, None)
    }

    /// Posts a send; `keeps` is memory that it needs until it has ended, if its caller may not see
    /// to that.
    pub(crate) fn post(&mut self, send: SendOp, keeps: Option<Keeps>) -> Result<OpKey> {
        self.check()?;
        let id = send.peer;
        let (peer, core) = self.peer_mut(id)?;
        let is_answer = send.verb.is_answer();
        let key = core.ops.insert(Op { keeps, ..Op::new(OpKind::Send(send)) });
        match is_answer {
            true => peer.asked.push_back(key),
            false => peer.queue_send(key),
        }
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
        self.post_any(from, tag, RecvOp::new(memory))
    }

    /// Posts a receive of a message that may stay where it is.
    pub(crate) fn post_view(&mut self, from: Source, tag: TagMatch) -> Result<OpKey> {
        self.post_any(from, tag, RecvOp { as_view: true, ..RecvOp::new(None) })
    }

    fn post_any(&mut self, from: Source, tag: TagMatch, recv: RecvOp) -> Result<OpKey> {
        self.check()?;
        let taken = self.core.matcher.take(from, tag);
        if taken.is_none() {
            self.can_come(from)?;
        }
        let key = self.core.ops.insert(Op::new(OpKind::Recv(recv)));
        match taken {
            Some((peer, tag, unexpected)) => {
                self.core.note_arrival(key);
                self.give(peer, tag, unexpected, key);
                if let Some(peer) = self.peers.get_mut(peer) {
                    self.core.update_peer_gauges(peer);
                }
            }
            None => {
                if let Source::Peer(id) = from
                    && let Some(peer) = self.peers.get_mut(id)
                {
                    self.core.note_open_memory(peer, key);
                }
                let posted = self.core.matcher.post(from, tag, key);
                if let Some(op) = self.core.ops.recv_mut(key) {
                    op.stage = RecvStage::Posted(posted);
                    if self.core.prefault.wants(op.memory.len())
                        && self.core.prefault.note(key, from, &op.memory)
                    {
                        // A sleeping thread is woken for it only if there is something to do.
                        self.kick |= self.asleep && op.memory.is_absent();
                    }
                }
            }
        }
        self.update_gauges();
        self.kick_if_needed();
        Ok(key)
    }

    /// Checks that a message can still come from this source.
    pub(crate) fn can_come(&self, from: Source) -> Result<()> {
        match from {
            Source::Peer(id) => self.present(id),
            Source::Any => self.nobody_left().map_or(Ok(()), Err),
        }
    }

    /// Gives a stored message to a receive.
    pub(crate) fn give(&mut self, id: PeerId, tag: u64, unexpected: Unexpected, key: OpKey) {
        let (peers, core) = (&mut self.peers, &mut self.core);
        let peer = peers.get_mut(id);
        match (unexpected, peer) {
            (Unexpected::Whole { bytes, cost, inline, by }, peer) => {
                let path = if inline { Path::Inline } else { Path::Eager };
                let mut receipt = Receipt::new(path, 0);
                if let Some(peer) = peer {
                    peer.owed -= cost;
                    peer.rx.release(cost);
                    Engine::publish(core, peer);
                    receipt = peer.receipt(path, 0, bytes.len());
                }
                receipt.note_copies(by);
                core.deliver_stored(key, id, tag, bytes, receipt);
            }
            (Unexpected::Arriving { sid, .. }, Some(peer)) => {
                core.redirect(peer, sid, key);
                Engine::publish(core, peer);
            }
            (Unexpected::Waiting { sid, rts, list }, Some(peer)) => {
                peer.announced.remove(&sid);
                vectored::taken(peer, list.as_deref());
                if let Err(violation) = core.select(peer, key, (sid, rts), list.as_deref()) {
                    self.cut_off(id, violation);
                }
            }
            (Unexpected::Left { len, memory }, _) => core.hand_out(key, (id, tag, len), memory),
            (Unexpected::Passing { of, .. }, _) => core.follow(key, of),
            (Unexpected::Again { bytes, receipt }, _) => {
                core.deliver_again(key, (id, tag), bytes, *receipt);
            }
            (Unexpected::NoMemory { len }, _) => core.finish(key, Err(no_memory(len))),
            (_, None) | (Unexpected::Lost, _) => {
                let error = self.present(id).err().unwrap_or(Error::UnknownPeer { peer: id });
                self.core.finish(key, Err(error));
            }
        }
    }

    /// Lets an operation go on though its result is not wanted any more; `keeps` lives until then.
    /// The operation is given up, as far as it can be.
    pub(crate) fn abandon(&mut self, key: OpKey, keeps: Keeps) {
        self.relinquish(key);
        self.let_go(key, keeps);
    }

    /// As [`Engine::abandon`], but the operation goes on.
    pub(crate) fn let_go(&mut self, key: OpKey, keeps: Keeps) {
        match self.core.ops.get_mut(key) {
            Some(op) if op.done.is_none() => {
                op.abandoned = true;
                op.keeps = Some(keeps);
                let waker = op.waker.take();
                self.core.wakes.drops.extend(waker.map(|waker| Box::new(waker) as Box<_>));
            }
            _ => {
                let done = self.core.ops.remove(key).and_then(|op| op.done);
                if let Some(Ok(Done::Arrived(Arrived { peer, len, loan: Some(loan), .. }))) = done {
                    match loan {
                        Lending::One(loan) => self.give_back(peer, &loan),
                        Lending::Parts(parts) => {
                            let Parts { parts, sid, .. } = *parts;
                            drop(parts);
                            self.count_contiguous(peer, Path::Handoff, len, 0);
                            self.give_parts_back(peer, sid, By::View, 0);
                        }
                    }
                }
                if let Keeps::Buffer(buffer) = keeps {
                    self.core.wakes.drops.push(buffer);
                }
            }
        }
    }

    /// Tells the peer that its memory is no longer read.
    #[inline]
    pub(crate) fn give_back(&mut self, id: PeerId, loan: &Loan) {
        match self.peers.get_mut(id).filter(|peer| !peer.is_leaving()) {
            Some(peer) => {
                self.core.end_loan(peer, loan);
                self.kick_if_needed();
            }
            None => self.core.imported.give_back(loan),
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
