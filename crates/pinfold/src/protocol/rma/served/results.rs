//! Results of served operations, at the process that asked.

use crate::{
    Path, Receipt, Result,
    protocol::rma::way::{Served, ServedRequest},
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Header,
        served_rma::{Used, What},
    },
    worker::{
        core::Core,
        deliver, ends,
        inbound_stream::{Came, Inbound, Sink},
        op::{Done, OpKey, OpKind, RecvOp, RecvStage, SendOp, SendStage},
        peer::Peer,
    },
};

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
    ends::finish(core, key, result);
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
            op.memory.write(&mut core.store, 0, &deliver::bytes_of(&words)[..came]);
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
pub(super) fn receipt(peer: &Peer, len: u64) -> Receipt {
    let mut receipt = Receipt::new(Path::Eager, len);
    for path in [Path::Cma, Path::Mapped] {
        if let Some(why) = peer.permissions.refusal(path) {
            receipt.refuse(path, why);
        }
    }
    receipt
}
