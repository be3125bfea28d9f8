//! Frames: donated buffers of which only the latest counts, queued one at a time.

use crate::{
    Path, PeerId, Receipt,
    endpoint::DonatedBuf,
    protocol::handoff::{account, collect},
    worker::{
        core::Core,
        op::{Keeps, Op, OpKind, SendOp, SendStage},
        op_table::OpTable,
        peer::Peer,
    },
};

/// A send of memory that is to be given away.
pub(crate) fn fresh(peer: PeerId, tag: u64, donation: &DonatedBuf) -> SendOp {
    let memory = donation.part();
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp { given: true, ..SendOp::new(peer, tag, memory.into(), receipt) }
}

/// Queues a frame, which counts as being out.
pub(super) fn queue_frame(ops: &mut OpTable, peer: &mut Peer, tag: u64, donation: DonatedBuf) {
    let cost = account::cost(donation.len() as u64);
    ops.given.charge(peer.id, cost);
    let send = fresh(peer.id, tag, &donation);
    let send = SendOp { charge: cost, is_frame: true, ..send };
    debug_assert!(matches!(send.stage, SendStage::Fresh));
    let op = Op::kept(Some(Keeps::DonatedBuf { donation }), OpKind::Send(send));
    let key = ops.insert(op);
    peer.queue_send(key);
}

/// Queues the next frame that may go to a peer for which nothing else is queued. Returns
/// whether there was one.
pub(crate) fn next_frame(core: &mut Core, peer: &mut Peer) -> bool {
    if !core.ops.given.has_waiting(peer.id) {
        return false;
    }
    collect::collect_from(core, peer);
    let cost = |donation: &DonatedBuf| account::cost(donation.len() as u64);
    match core.ops.given.next(peer.id, cost, false) {
        Some((tag, donation)) => {
            queue_frame(&mut core.ops, peer, tag, donation);
            true
        }
        None => {
            core.block(peer);
            false
        }
    }
}
