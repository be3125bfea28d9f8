//! Operations on regions over a connection: how a peer asks for them, and how the region's owner
//! does them.
//!
//! The requester sends the region's key with each operation: the owner keeps no record of
//! permissions. Bytes to write follow as a stream of the operation's number, bytes to read come as
//! one that the answer names. Long ones go past the lanes, from and to the caller's memory and the
//! region's ([`transport_progress`](crate::worker::transport_progress)).
//!
//! A request costs no credit, for nothing of it is stored: bytes that do not go into a region are
//! dropped as they come. The number of operations in flight is bounded on both sides.
//!
//! - here: the requester. `owner`: the owner; `landing`: writes that are coming in there.

pub(crate) mod landing;
pub(crate) mod owner;

use super::way::{Begun, Served, ServedRequest};
use crate::{
    Path, Receipt, Result,
    memory::scatter::Scatter,
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Header,
        served_rma::{Use, Used, What},
        space::Refused,
    },
    worker::{
        Engine,
        core::{self, Core},
        inbound::bytes_of,
        inbound_stream::{Came, Inbound, Sink},
        op::{Done, Op, OpKey, OpKind, RecvOp, RecvStage, SendOp, SendStage},
        outbound,
        peer::Peer,
        teardown,
    },
};

/// Begins an operation. `memory` holds the bytes to write, or receives those that are read.
pub(crate) fn post_served(
    engine: &mut Engine,
    using: ServedRequest,
    memory: Scatter,
) -> Result<OpKey> {
    engine.check()?;
    let id = using.peer;
    let (peer, core) = engine.peer_mut(id)?;
    let kind = match using.asked.what {
        What::Write { .. } | What::Brief { .. } => {
            let receipt = receipt(peer, using.len());
            let served = Some(Box::new(Served::Write { using, answer: None }));
            OpKind::Send(SendOp { served, ..SendOp::new(id, 0, memory, receipt) })
        }
        What::Read { .. } | What::Change(_) => {
            let stage = RecvStage::ServedRequest(Box::new(using));
            OpKind::Recv(RecvOp { stage, ..RecvOp::new(Some(memory)) })
        }
    };
    let key = core.ops.insert(Op::new(kind));
    peer.served_rma.waiting.push_back(key);
    if let Err(violation) = outbound::pump(core, peer) {
        teardown::cut_off(engine, id, violation);
    }
    engine.kick_if_needed();
    Ok(key)
}

/// Starts waiting operations, as many as may be in flight.
pub(crate) fn drop_served(core: &mut Core, peer: &mut Peer) {
    while let Some(key) = peer.served_rma.next() {
        match core.ops.get(key).map(|op| (&op.kind, op.done.is_some())) {
            Some((OpKind::Send(_), false)) => peer.asked.push_back(key),
            Some((OpKind::Recv(RecvOp { stage: RecvStage::ServedRequest(using), .. }), false)) => {
                let asked = using.asked;
                let header = asked.header(key.index);
                let words = Use::words(header).unwrap_or(0);
                core::answer_by(core, peer, header, &asked.body()[..words]);
            }
            _ => peer.served_rma.end(),
        }
    }
}

/// Writes a send that is no message to the lane. Returns whether there was room.
pub(crate) fn begin_served(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
    served: &Served,
) -> Begun {
    let len = op.memory.len();
    let streaming =
        SendStage::Streaming { at: 0, end: len, announced: true, cut: None, request: None };
    match served {
        Served::Write { using, .. } => {
            let header = using.asked.header(key.index);
            let words = Use::words(header).unwrap_or(0);
            peer.tx.push(header, &using.asked.body()[..words]);
            if let What::Brief { .. } = using.asked.what {
                op.receipt.copied_user = len;
                op.stage = SendStage::Asked;
                return Begun::AllOut;
            }
            op.stage = streaming;
            Begun::Streams
        }
        Served::Answer { number, region, .. } => {
            let stands = core.registry.region(*region).is_some();
            let used = match stands {
                true => Used::Comes { stream: key.index },
                false => Used::Refused(Refused::Unknown),
            };
            let words = Used::words(used.header(0)).unwrap_or(0);
            peer.tx.push(used.header(*number), &used.body()[..words]);
            op.stage = streaming;
            if stands { Begun::Streams } else { Begun::Ended }
        }
    }
}

/// Notes that all bytes of a write are out, and that its memory is the caller's again: the
/// write ends when the owner has answered.
pub(crate) fn written(core: &mut Core, peer: &mut Peer, key: OpKey) {
    let Some(SendOp { served: Some(served), stage, .. }) = core.ops.send_mut(key) else {
        return;
    };
    *stage = SendStage::Asked;
    if let Served::Write { using, answer } = &mut **served
        && let Some(answer) = answer.take()
    {
        let error = answer.map_err(|why| using.error(why));
        end_write(core, peer, key, error);
    }
}

fn end_write(core: &mut Core, peer: &mut Peer, key: OpKey, result: Result<()>) {
    let Some(op) = core.ops.send_mut(key) else { return };
    let receipt = op.receipt;
    end_use(core, peer, key, result.map(|()| Done::Sent(receipt)));
}

fn end_use(core: &mut Core, peer: &mut Peer, key: OpKey, result: Result<Done>) {
    peer.served_rma.end();
    core::finish(core, key, result);
    if !peer.served_rma.waiting.is_empty() {
        core.block(peer);
    }
}

/// Takes the answer of a region's owner.
pub(crate) fn used(
    core: &mut Core,
    peer: &mut Peer,
    header: Header,
    body: &[u64; 7],
) -> Result<(), Violation> {
    let used = Used::read(header, body).ok_or(Violation("it answered in no known way"))?;
    let key = core.ops.at(header.aux());
    let key = key.ok_or(Violation("it answered an operation that is not open"))?;
    let not_own = Violation("it answered an operation that is not its own");
    let op = core.ops.get_mut(key).filter(|op| op.done.is_none()).ok_or(not_own)?;
    match &mut op.kind {
        OpKind::Send(SendOp { peer: whose, served: Some(served), stage, .. })
            if *whose == peer.id =>
        {
            let Served::Write { using, answer } = &mut **served else { return Err(not_own) };
            let said = match used {
                Used::Written => Ok(()),
                Used::Refused(why) => Err(why),
                _ => return Err(Violation("it answered another question than it was asked")),
            };
            match stage {
                SendStage::Asked => {
                    let result = said.map_err(|why| using.error(why));
                    end_write(core, peer, key, result);
                }
                // The owner has all of it, and the kernel has not said that it has finished
                // with the memory.
                SendStage::Handed { .. } if answer.is_none() => *answer = Some(said),
                _ => return Err(Violation("it answered before it was told what")),
            }
            Ok(())
        }
        OpKind::Recv(RecvOp { stage: RecvStage::ServedRequest(using), .. })
            if using.peer == peer.id =>
        {
            let using = **using;
            read_or_changed(core, peer, key, using, used)
        }
        _ => Err(not_own),
    }
}

fn read_or_changed(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    using: ServedRequest,
    used: Used,
) -> Result<(), Violation> {
    let len = using.len();
    let result = match (using.asked.what, used) {
        (_, Used::Refused(why)) => Err(using.error(why)),
        (What::Change(_), Used::Was(word)) => Ok(Done::Was(word)),
        (What::Read { .. }, Used::Bytes { len: came, words }) if came as u64 == len => {
            let Some(op) = core.ops.recv_mut(key) else { return Ok(()) };
            op.memory.write(&mut core.store, 0, &bytes_of(&words)[..came]);
            let mut receipt = receipt(peer, len);
            receipt.copied_user = len;
            Ok(Done::Sent(receipt))
        }
        (What::Read { .. }, Used::Comes { stream: sid }) if len > 0 => {
            if peer.inbound_at(sid).is_some() {
                return Err(Violation("it began a stream twice"));
            }
            if let Some(op) = core.ops.recv_mut(key) {
                op.stage = RecvStage::Streaming { peer: peer.id };
            }
            peer.inbound.push(Inbound::new(sid, 0, len, Sink::Read(key)));
            return Ok(());
        }
        _ => return Err(Violation("it answered another question than it was asked")),
    };
    end_use(core, peer, key, result);
    Ok(())
}

/// Ends a read, all of whose bytes have come.
pub(crate) fn read_whole(core: &mut Core, peer: &mut Peer, key: OpKey, came: Came) {
    let mut receipt = receipt(peer, came.copied);
    receipt.copied_user = came.copied - came.cma;
    receipt.copied_kernel = came.cma;
    core.status.copied_user.add(receipt.copied_user);
    core.status.copied_kernel.add(receipt.copied_kernel);
    end_use(core, peer, key, Ok(Done::Sent(receipt)));
}

/// The receipt of an operation that the region's owner does.
fn receipt(peer: &Peer, len: u64) -> Receipt {
    let mut receipt = Receipt::new(Path::Eager, len);
    for path in [Path::Cma, Path::Mapped] {
        if let Some(why) = peer.permissions.refusal(path) {
            receipt.refuse(path, why);
        }
    }
    receipt
}
