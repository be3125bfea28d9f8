#![allow(unsafe_code)]
//! Receives that are given up: their messages are the next receives'.
//!
//! A receive that nothing has matched is withdrawn. If it has ended and its result was not taken,
//! its message is stored again, before all that came later (`Matcher::keep_again`), and so goes to
//! the next receive that asks for it; the bytes leave the buffer, which goes away. A receive that
//! still takes its message in goes on to its end, since the sender may be writing to its memory;
//! the message is stored as *passing*, and a receive that matches it there *follows*: it ends with
//! the other's end. A message that has failed, or was longer than its buffer, is not kept.
//!
//! **Invariant.** A loan is read only before it is given back.
//!
//! None of this costs the sender credit, which it has back already. The bytes stored here are
//! bounded by those received into buffers of this program, all of which wanted them.

use super::{
    Engine,
    core::{Core, Unexpected},
    inbound_stream::Sink,
    op::{
        Announced, Arrived, Bytes, Done, Keeps, Lending, Next, Op, OpKey, OpKind, RecvOp, RecvStage,
    },
    op_table::PassedOn,
};
use crate::protocol::handoff::{state::Left, vectored};
use crate::{
    Error, Path, PeerId, Receipt,
    memory::{
        scatter::{Part, Scatter},
        store::Kept,
    },
    status::Tally,
    wire::{list::Listed, rendezvous::Rts},
};

/// The error of a receive for whose message there is no memory.
pub(crate) fn no_memory(len: u64) -> Error {
    Error::LimitReached {
        what: "the memory for one message, in bytes,",
        limit: len,
        remedy: "receive it in parts, or into memory of your own",
    }
}

impl Engine {
    /// Ends an operation whose result is no longer wanted, as far as possible: a send is taken
    /// back, a receive withdrawn, or its message left to the next one.
    pub(crate) fn relinquish(&mut self, key: OpKey) {
        if let Some(Op { kind: OpKind::Multi(_), .. }) = self.core.ops.get_mut(key) {
            return self.relinquish_multi(key);
        }
        if self.cancel(key) {
            return;
        }
        let Some(Op { kind, done, .. }) = self.core.ops.get_mut(key) else { return };
        let OpKind::Recv(recv) = kind else {
            if let Some(Ok(Done::Connected(id) | Done::Accepted(id))) = *done {
                let accepted = matches!(kind, OpKind::Accept);
                *done = Some(Err(Error::Cancelled));
                self.decline(id, accepted);
            }
            return;
        };
        // Answers of handlers and of owners of regions are of no use to another receive.
        let (arrival, is_own) = (recv.arrival, recv.next == Next::Own);
        if arrival == 0 || !is_own {
            return;
        }
        match done {
            Some(Ok(Done::Arrived(_))) => {
                let arrived = done.replace(Err(Error::Cancelled));
                let recv = std::mem::replace(recv, RecvOp::new(None));
                if let Some(Ok(Done::Arrived(arrived))) = arrived {
                    self.store_arrived(recv, arrived);
                }
            }
            Some(_) => {}
            None => {
                if let RecvStage::Following(of) = recv.stage {
                    self.core.finish(key, Err(Error::Cancelled));
                    self.store_passing(of, arrival);
                } else {
                    self.store_passing(key, arrival);
                }
            }
        }
        self.update_gauges();
        self.kick_if_needed();
    }

    /// Gives up every operation whose result goes to the queue with this number.
    pub(crate) fn abandon_all(&mut self, queue: u64) {
        let is_of = |op: &Op| op.taker.as_ref().is_some_and(|taker| taker.is_of(queue));
        let keys: Vec<OpKey> =
            self.core.ops.open().filter(|(_, op)| is_of(op)).map(|(key, _)| key).collect();
        for key in keys {
            if let Some(taker) = self.core.ops.get_mut(key).and_then(|op| op.taker.take()) {
                self.abandon(key, Keeps::Buffer(taker.into_buffer()));
            }
        }
    }

    /// Asks for the end of an operation whose result goes to this queue with this context. Returns
    /// whether one will end.
    pub(crate) fn cancel_named(&mut self, queue: u64, context: u64) -> bool {
        let is_it = |op: &Op| op.taker.as_ref().is_some_and(|taker| taker.is_named(queue, context));
        let keys: Vec<OpKey> =
            self.core.ops.open().filter(|(_, op)| is_it(op)).map(|(key, _)| key).collect();
        keys.into_iter().any(|key| self.cancel(key))
    }

    /// The message of a receive that ended when it was posted, into `memory`, is left to the next
    /// one.
    pub(crate) fn give_up_early(&mut self, arrival: u64, memory: Scatter, arrived: Arrived) {
        let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
        if self.check().is_ok() && arrived.receipt.bytes == arrived.len {
            self.store_arrived(recv, arrived);
            self.update_gauges();
        }
    }

    /// Stores a message that a receive has.
    pub(super) fn store_arrived(&mut self, recv: RecvOp, arrived: Arrived) {
        let (peer, tag) = (arrived.peer, arrived.tag);
        let unexpected = match arrived.loan {
            None => self.core.again(&recv, arrived),
            Some(lending) => self.store_lent(peer, arrived.len, recv.lent, lending),
        };
        let whole = (peer, tag, unexpected.message_len().unwrap_or(0));
        if let Some(key) = self.core.match_again(whole, recv.arrival) {
            return self.give(peer, tag, unexpected, key);
        }
        let sid = match &unexpected {
            Unexpected::Waiting { sid, .. } => Some(*sid),
            _ => None,
        };
        let stored = self.core.matcher.keep_again((peer, tag), recv.arrival, unexpected);
        if let (Some(sid), Some(peer)) = (sid, self.peers.get_mut(peer)) {
            peer.announced.insert(sid, Some(stored));
        }
        self.core.wakes.any = true;
    }

    /// The stored form of a message that a receive was lent: it waits at its sender, which has
    /// heard nothing yet, as it was announced, or, if its sender is gone, where that has left it.
    fn store_lent(
        &mut self,
        id: PeerId,
        len: u64,
        announced: Option<Box<Announced>>,
        lending: Lending,
    ) -> Unexpected {
        let sender = self.peers.get_mut(id).filter(|peer| !peer.is_leaving());
        if let Lending::One(loan) = lending {
            self.core.status.record_of(id).uncount_received(Path::Handoff, len);
            // SAFETY: the loan has not been given back.
            let is_cut = unsafe { loan.held() }.tie.is_cut();
            if sender.is_none() && !is_cut {
                return Unexpected::Left { len, memory: Left::One(loan) };
            }
            self.core.imported.give_back(&loan);
        } else {
            drop(lending);
            self.core.imported.settle();
        }
        match (announced, sender) {
            (Some(announced), Some(sender)) => {
                let Announced { sid, rts, list } = *announced;
                let list = vectored::kept(sender, list);
                Unexpected::Waiting { sid, rts, list }
            }
            _ => Unexpected::Lost,
        }
    }

    /// Stores message number `arrival`, which receive `of` still takes in.
    fn store_passing(&mut self, of: OpKey, arrival: u64) {
        let Some((peer, tag, len)) = self.taken_in(of) else { return };
        let Some(recv) = self.core.ops.recv_mut(of) else { return };
        if !recv.as_message && recv.memory.len() < len {
            return;
        }
        let next = match self.core.match_again((peer, tag, len), arrival) {
            Some(key) => {
                self.core.follow(key, of);
                return;
            }
            None => {
                let passing = Unexpected::Passing { of, len };
                Next::Stored(self.core.matcher.keep_again((peer, tag), arrival, passing))
            }
        };
        if let Some(recv) = self.core.ops.recv_mut(of) {
            recv.next = next;
        }
        self.core.wakes.any = true;
    }

    /// The sender, tag and length of the message that a receive takes in.
    fn taken_in(&mut self, key: OpKey) -> Option<(PeerId, u64, u64)> {
        let (id, pulled) = match &self.core.ops.recv_mut(key)?.stage {
            RecvStage::Getting(get) => (get.peer, Some((get.tag, get.len))),
            RecvStage::Streaming { peer } => (*peer, None),
            RecvStage::Requested(requested) => (requested.peer, None),
            _ => return None,
        };
        let peer = self.peers.get(id).filter(|peer| !peer.is_leaving())?;
        let (tag, len) = pulled.or_else(|| {
            let goes_there = |sink: &Sink| matches!(sink, Sink::Op(other) if *other == key);
            let stream = peer.inbound.iter().find(|stream| goes_there(&stream.sink))?;
            Some((stream.tag, stream.len))
        })?;
        Some((id, tag, len))
    }
}

impl Core {
    /// A receive has matched the message that was matched last.
    #[inline]
    pub(crate) fn note_arrival(&mut self, key: OpKey) {
        self.set_arrival(key, self.matcher.matched());
    }

    #[inline]
    fn set_arrival(&mut self, key: OpKey, arrival: u64) {
        if let Some(recv) = self.ops.recv_mut(key) {
            recv.arrival = arrival;
        }
    }

    /// The receive that takes message number `arrival`, which lost its own, if one is posted.
    pub(super) fn match_again(
        &mut self,
        (peer, tag, len): (PeerId, u64, u64),
        arrival: u64,
    ) -> Option<OpKey> {
        let key = self.matcher.arrive_again(peer, tag)?;
        Some(self.taken_by(key, (peer, tag, len), arrival))
    }

    /// A receive is handed a message that stays where it is.
    pub(crate) fn note_lent(&mut self, key: OpKey, sid: u32, rts: &Rts, list: Option<&[Listed]>) {
        if let Some(recv) = self.ops.recv_mut(key) {
            recv.lent = Some(Box::new(Announced { sid, rts: *rts, list: list.map(Box::from) }));
        }
    }

    /// Receive `key` has matched the message that receive `of` still takes in.
    pub(crate) fn follow(&mut self, key: OpKey, of: OpKey) {
        let Some(recv) = self.ops.recv_mut(of) else {
            return self.finish(key, Err(Error::Closed));
        };
        recv.next = Next::Receive(key);
        if let Some(recv) = self.ops.recv_mut(key) {
            recv.stage = RecvStage::Following(of);
        }
    }

    /// Hands on the messages of receives that were given up.
    #[cold]
    pub(crate) fn pass_on(&mut self) {
        while let Some(PassedOn { recv, result }) = self.ops.passed_on.pop() {
            match (recv.next, result) {
                (Next::Stored(stored), Ok(Done::Arrived(arrived))) => {
                    let again = self.again(&recv, arrived);
                    if let Some(entry) = self.matcher.unexpected_mut(stored) {
                        *entry = again;
                    }
                }
                (Next::Stored(stored), _) => {
                    // A failed message goes; but if its sender is gone, a receive has to hear of
                    // that.
                    let entry = self.matcher.unexpected_mut(stored);
                    if entry.is_some_and(|entry| !matches!(entry, Unexpected::Lost)) {
                        self.matcher.remove_unexpected(stored);
                    }
                }
                (Next::Receive(key), Ok(Done::Arrived(arrived))) => {
                    let of = (arrived.peer, arrived.tag);
                    match self.again(&recv, arrived) {
                        Unexpected::Again { bytes, receipt } => {
                            self.deliver_again(key, of, bytes, *receipt);
                        }
                        _ => self.finish(key, Err(no_memory(recv.memory.len()))),
                    }
                }
                (Next::Receive(key), result) => self.finish(key, result),
                (Next::Own, _) => {}
            }
        }
    }

    /// The stored form of a message that a receive has, in memory of the library's.
    fn again(&mut self, recv: &RecvOp, arrived: Arrived) -> Unexpected {
        let Arrived { len, mut receipt, bytes, .. } = arrived;
        let bytes = match bytes {
            Some(bytes) => *bytes,
            None => {
                let Some(mut kept) = Kept::new(len, self.moves) else {
                    return Unexpected::NoMemory { len };
                };
                let copied = kept.append_from(&recv.memory, len, &mut self.store);
                receipt.note_copies(self.copied_by(copied));
                receipt.copied_user += copied;
                self.status.copied_user.add(copied);
                kept.into_bytes()
            }
        };
        Unexpected::Again { bytes, receipt: Box::new(receipt) }
    }

    /// Ends a receive with a message that another one had.
    pub(crate) fn deliver_again(
        &mut self,
        key: OpKey,
        (peer, tag): (PeerId, u64),
        bytes: Bytes,
        mut receipt: Receipt,
    ) {
        let Some(op) = self.ops.recv_mut(key) else { return };
        let len = bytes.len();
        let bytes = if op.as_message {
            receipt.bytes = len;
            Some(Box::new(bytes))
        } else {
            receipt.bytes = bytes.write_to(&op.memory, &mut self.store);
            receipt.note_copies(self.copied_by(receipt.bytes));
            receipt.copied_user += receipt.bytes;
            self.status.copied_user.add(receipt.bytes);
            None
        };
        self.conclude(key, Arrived { peer, tag, len, receipt, bytes, loan: None });
    }
}

/// A receive that ended when it was posted: the number of its message, and where that is.
pub(crate) struct Early {
    arrival: u64,
    memory: Scatter,
}

impl Early {
    /// A receive into `memory` that has just ended without ever being in the table.
    pub(crate) fn new(engine: &mut Engine, memory: Part) -> Early {
        Early { arrival: engine.core.matcher.pass(), memory: memory.into() }
    }

    /// The number of its message.
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival
    }

    /// Leaves the message to the next receive.
    pub(crate) fn give_up(self, engine: &mut Engine, arrived: Arrived) {
        engine.give_up_early(self.arrival, self.memory, arrived);
    }
}
