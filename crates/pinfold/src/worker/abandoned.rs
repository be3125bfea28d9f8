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
    cancel,
    connections::accepts,
    core::{Core, Unexpected},
    ends,
    engine::Engine,
    gauges,
    inbound_stream::Sink,
    op::{Announced, Arrived, Done, Keeps, Lending, Next, Op, OpKey, OpKind, RecvOp, RecvStage},
    posted,
    table::PeerTable,
    unexpected,
};
use crate::{
    Error, Path, PeerId,
    endpoint::received::{MultiReceived, Received},
    memory::{
        imported_extents::Loan,
        scatter::{Part, Scatter},
    },
    protocol::{
        handoff::{lists, parts::Parts, state::Left, vectored},
        rendezvous::fin,
        rma::{open, way::Way},
    },
    wire::rendezvous::By,
};

/// Ends an operation whose result is no longer wanted, as far as possible: a send is taken
/// back, a receive withdrawn, or its message left to the next one.
pub(crate) fn relinquish(engine: &mut Engine, key: OpKey) {
    if let Some(Op { kind: OpKind::Multi(_), .. }) = engine.core.ops.get_mut(key) {
        return relinquish_multi(engine, key);
    }
    if cancel::cancel(engine, key) {
        return;
    }
    let Some(Op { kind, done, .. }) = engine.core.ops.get_mut(key) else { return };
    let OpKind::Recv(recv) = kind else {
        if let Some(Ok(Done::Connected(id) | Done::Accepted(id))) = *done {
            let accepted = matches!(kind, OpKind::Accept);
            *done = Some(Err(Error::Cancelled));
            accepts::decline(engine, id, accepted);
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
                store_arrived(engine, recv, arrived);
            }
        }
        Some(_) => {}
        None => {
            if let RecvStage::Following(of) = recv.stage {
                ends::finish(&mut engine.core, key, Err(Error::Cancelled));
                store_passing(&mut engine.peers, &mut engine.core, of, arrival);
            } else {
                store_passing(&mut engine.peers, &mut engine.core, key, arrival);
            }
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
}

/// Gives up every operation whose result goes to the queue with this number.
pub(crate) fn abandon_all(engine: &mut Engine, queue: u64) {
    let is_of = |op: &Op| op.taker.as_ref().is_some_and(|taker| taker.is_of(queue));
    let keys: Vec<OpKey> =
        engine.core.ops.open().filter(|(_, op)| is_of(op)).map(|(key, _)| key).collect();
    for key in keys {
        if let Some(taker) = engine.core.ops.get_mut(key).and_then(|op| op.taker.take()) {
            abandon(engine, key, Keeps::Buffer(taker.into_buffer()));
        }
    }
}

/// Asks for the end of an operation whose result goes to this queue with this context. Returns
/// whether one will end.
pub(crate) fn cancel_named(engine: &mut Engine, queue: u64, context: u64) -> bool {
    let is_it = |op: &Op| op.taker.as_ref().is_some_and(|taker| taker.is_named(queue, context));
    let keys: Vec<OpKey> =
        engine.core.ops.open().filter(|(_, op)| is_it(op)).map(|(key, _)| key).collect();
    keys.into_iter().any(|key| cancel::cancel(engine, key))
}

/// The message of a receive that ended when it was posted, into `memory`, is left to the next
/// one.
pub(crate) fn give_up_early(engine: &mut Engine, arrival: u64, memory: Scatter, arrived: Arrived) {
    let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
    if engine.check().is_ok() && arrived.receipt.bytes == arrived.len {
        store_arrived(engine, recv, arrived);
        gauges::update_gauges(engine);
    }
}

/// Stores a message that a receive has.
pub(super) fn store_arrived(engine: &mut Engine, recv: RecvOp, arrived: Arrived) {
    let (peer, tag) = (arrived.peer, arrived.tag);
    let unexpected = match arrived.loan {
        None => ends::again(&mut engine.core, &recv, arrived),
        Some(lending) => {
            store_lent(&mut engine.peers, &mut engine.core, peer, arrived.len, recv.lent, lending)
        }
    };
    let whole = (peer, tag, unexpected.message_len().unwrap_or(0));
    if let Some(key) =
        posted::match_again(&mut engine.core.matcher, &mut engine.core.ops, whole, recv.arrival)
    {
        return unexpected::give(engine, peer, tag, unexpected, key);
    }
    let sid = match &unexpected {
        Unexpected::Waiting { sid, .. } => Some(*sid),
        _ => None,
    };
    let stored = engine.core.matcher.keep_again((peer, tag), recv.arrival, unexpected);
    if let (Some(sid), Some(peer)) = (sid, engine.peers.get_mut(peer)) {
        peer.announced.insert(sid, Some(stored));
    }
    engine.core.wakes.any = true;
}

/// The stored form of a message that a receive was lent: it waits at its sender, which has
/// heard nothing yet, as it was announced, or, if its sender is gone, where that has left it.
fn store_lent(
    peers: &mut PeerTable,
    core: &mut Core,
    id: PeerId,
    len: u64,
    announced: Option<Box<Announced>>,
    lending: Lending,
) -> Unexpected {
    let sender = peers.get_mut(id).filter(|peer| !peer.is_leaving());
    if let Lending::One(loan) = lending {
        core.status.record_of(id).uncount_received(Path::Handoff, len);
        // SAFETY: the loan has not been given back.
        let is_cut = unsafe { loan.held() }.tie.is_cut();
        if sender.is_none() && !is_cut {
            return Unexpected::Left { len, memory: Left::One(loan) };
        }
        core.imported.give_back(&loan);
    } else {
        drop(lending);
        core.imported.settle();
    }
    match (announced, sender) {
        (Some(announced), Some(sender)) => {
            let Announced { sid, rts, list } = *announced;
            let list = lists::kept(sender, list);
            Unexpected::Waiting { sid, rts, list }
        }
        _ => Unexpected::Lost,
    }
}

/// Stores message number `arrival`, which receive `of` still takes in.
fn store_passing(peers: &mut PeerTable, core: &mut Core, of: OpKey, arrival: u64) {
    let Some((peer, tag, len)) = taken_in(peers, core, of) else { return };
    let Some(recv) = core.ops.recv_mut(of) else { return };
    if !recv.as_message && recv.memory.len() < len {
        return;
    }
    let next =
        match posted::match_again(&mut core.matcher, &mut core.ops, (peer, tag, len), arrival) {
            Some(key) => {
                unexpected::follow(core, key, of);
                return;
            }
            None => {
                let passing = Unexpected::Passing { of, len };
                Next::Stored(core.matcher.keep_again((peer, tag), arrival, passing))
            }
        };
    if let Some(recv) = core.ops.recv_mut(of) {
        recv.next = next;
    }
    core.wakes.any = true;
}

/// The sender, tag and length of the message that a receive takes in.
fn taken_in(peers: &mut PeerTable, core: &mut Core, key: OpKey) -> Option<(PeerId, u64, u64)> {
    let (id, pulled) = match &core.ops.recv_mut(key)?.stage {
        RecvStage::Getting(get) => (get.peer, Some((get.tag, get.len))),
        RecvStage::Streaming { peer } => (*peer, None),
        RecvStage::Requested(requested) => (requested.peer, None),
        _ => return None,
    };
    let peer = peers.get(id).filter(|peer| !peer.is_leaving())?;
    let (tag, len) = pulled.or_else(|| {
        let goes_there = |sink: &Sink| matches!(sink, Sink::Op(other) if *other == key);
        let stream = peer.inbound.iter().find(|stream| goes_there(&stream.sink))?;
        Some((stream.tag, stream.len))
    })?;
    Some((id, tag, len))
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
        give_up_early(engine, self.arrival, self.memory, arrived);
    }
}

/// The scope of an operation ends: a receive is given up, a send only if the scope unwinds.
pub(crate) fn end_of_scope(engine: &mut Engine, key: OpKey, unwinding: bool) {
    let is_recv = matches!(engine.core.ops.get(key).map(|op| &op.kind), Some(OpKind::Recv(_)));
    if is_recv || unwinding {
        relinquish(engine, key);
    }
}

/// Gives a receive of many messages up: it takes no more of them, and those that were not taken
/// are left to the next receives, in the order in which they came.
pub(super) fn relinquish_multi(engine: &mut Engine, key: OpKey) {
    cancel::cancel(engine, key);
    let Some(op) = engine.core.ops.get_mut(key) else { return };
    let OpKind::Multi(multi) = &mut op.kind else { return };
    op.abandoned |= op.done.is_none();
    let is_part = |op: &Op| matches!(&op.keeps, Some(Keeps::Part(part)) if part.multi == key);
    let mut left: Vec<(u64, LeftOver)> = std::mem::take(&mut multi.ended)
        .into_iter()
        .filter_map(|message| LeftOver::of(message, &multi.memory))
        .collect();
    if multi.running > 0 {
        let parts = engine.core.ops.open().filter(|(_, op)| is_part(op));
        left.extend(parts.filter_map(|(part, op)| match &op.kind {
            OpKind::Recv(recv) => Some((recv.arrival, LeftOver::Running(part))),
            _ => None,
        }));
    }
    left.sort_by_key(|(arrival, _)| *arrival);
    for (_, message) in left {
        match message {
            LeftOver::Running(part) => relinquish(engine, part),
            LeftOver::Ended(recv, arrived) if engine.check().is_ok() => {
                store_arrived(engine, *recv, *arrived);
            }
            LeftOver::Ended(..) => {}
        }
    }
    gauges::update_gauges(engine);
    engine.kick_if_needed();
}

/// A message of a receive that is given up.
enum LeftOver {
    Running(OpKey),
    Ended(Box<RecvOp>, Box<Arrived>),
}

impl LeftOver {
    /// A message that is whole, with its number.
    fn of(message: MultiReceived, memory: &Scatter) -> Option<(u64, LeftOver)> {
        let MultiReceived { peer, tag, len, range, result, arrival, .. } = message;
        let receipt = result.ok()?;
        let memory = memory.slice(range.start as u64, range.len() as u64);
        let recv = RecvOp { arrival, ..RecvOp::new(Some(memory)) };
        let arrived = Arrived::of(Received { peer, tag, len, receipt });
        Some((arrival, LeftOver::Ended(Box::new(recv), Box::new(arrived))))
    }
}

/// Lets an operation go on though its result is not wanted any more; `keeps` lives until then.
/// The operation is given up, as far as it can be.
pub(crate) fn abandon(engine: &mut Engine, key: OpKey, keeps: Keeps) {
    relinquish(engine, key);
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
            if let Some(Ok(Done::Opened(opening))) = &done
                && let Way::Mapped { lent, .. } = &opening.way
            {
                open::give_region_back(&mut engine.core.imported, lent);
            }
            if let Some(Ok(Done::Arrived(Arrived { peer, len, loan: Some(loan), .. }))) = done {
                match loan {
                    Lending::One(loan) => give_back(engine, peer, &loan),
                    Lending::Parts(parts) => {
                        let Parts { parts, sid, .. } = *parts;
                        drop(parts);
                        vectored::count_contiguous(
                            &engine.core.status,
                            peer,
                            Path::Handoff,
                            len,
                            0,
                        );
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
            fin::end_loan(&mut engine.core, peer, loan);
            engine.kick_if_needed();
        }
        None => engine.core.imported.give_back(loan),
    }
}
