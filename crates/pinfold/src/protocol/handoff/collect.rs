//! Donated buffers that receivers have given back.

use crate::{
    Path, PeerId, Receipt, Result,
    memory::scatter::Part,
    protocol::handoff::{account, state::Fate},
    transport::shm::ring::Violation,
    wire::rendezvous::Exported,
    worker::{
        core::Core,
        gauges,
        op::{Keeps, Op, OpKey, OpKind, SendOp, SendStage},
        op_table::OpTable,
        peer::Peer,
        table::PeerTable,
    },
};

/// Ends the donated buffers that the peer says it has given back.
#[inline]
pub(crate) fn collect_from(core: &mut Core, peer: &mut Peer) {
    if peer.given.is_empty() {
        return;
    }
    let count = peer.tx.returned();
    while let Some(fate) = peer.given.pop(count) {
        core.donations_out -= 1;
        // A buffer that is a send ends as such, or has ended.
        let Fate::Out { donation, tag, is_frame } = fate else { continue };
        let frame = is_frame.then_some(tag);
        core.ops.given.end(peer.id, account::cost(donation.len() as u64), frame);
        peer.waiting = peer.waiting.saturating_sub(1);
        peer.exported_extents.worked();
        peer.record.count_sent(Path::Handoff, donation.len() as u64);
    }
    peer.update_waiting_gauges();
    gauges::update_given_gauges(&core.ops, peer);
}

/// The operation that counted donated buffer `sid` is from now on. `None` if the count has
/// ended the buffer: the peer's word about it is older than the count.
#[cold]
pub(crate) fn donation_op(
    ops: &mut OpTable,
    peer: &mut Peer,
    sid: u32,
) -> Result<Option<OpKey>, Violation> {
    let Some(fate) = peer.given.at_mut(sid) else {
        return match peer.given.has_ended(sid) {
            true => Ok(None),
            false => Err(Violation("it answered a donated buffer that it was not given")),
        };
    };
    let (donation, tag, is_frame) = match fate {
        Fate::Out { donation, tag, is_frame } => (donation.clone(), *tag, *is_frame),
        Fate::Op(key) => {
            let open = ops.send_mut(*key).is_some();
            return open.then_some(Some(*key)).ok_or(Violation("it ended a donation twice"));
        }
    };
    let send = donation_send(peer.id, tag, donation.part(), donation.exported());
    let charge = account::cost(donation.len() as u64);
    let send = OpKind::Send(SendOp { stream: Some(sid), charge, is_frame, ..send });
    let key = ops.insert(Op::kept(Some(Keeps::DonatedBuf { donation }), send));
    *fate = Fate::Op(key);
    Ok(Some(key))
}

/// A send of memory that was given away and is announced.
#[inline(always)]
pub(super) fn donation_send(peer: PeerId, tag: u64, memory: Part, exported: Exported) -> SendOp {
    let receipt = Receipt::new(Path::Handoff, memory.len());
    SendOp {
        stage: SendStage::Waiting { cancelled: false },
        routed: true,
        offered: Some(exported.extent),
        given: true,
        ..SendOp::new(peer, tag, memory.into(), receipt)
    }
}

/// Ends the donated buffers that receivers have given back.
pub(crate) fn collect_all(peers: &mut PeerTable, core: &mut Core) {
    if core.donations_out == 0 {
        return;
    }
    for id in peers.ids() {
        if let Some(peer) = peers.get_mut(id) {
            collect_from(core, peer);
        }
    }
}
