#![allow(unsafe_code)]
//! Long messages past their lanes: handed to the connection, and ended once it is done with them.
//!
//! They are sent straight from the sender's memory.
//!
//! **Invariant.** The parts of a message's memory that a bridge has belong to an operation that has
//! not ended: it ends when the bridge names it as sent, or together with the peer, when its
//! connection has settled.

use crate::{
    Path,
    policy::route::DIRECT_FROM,
    protocol::rma::{served::results, way::Served},
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::{Header, Kind},
        tcp::frame,
    },
    worker::{
        core::Core,
        ends,
        op::{Done, OpKey, SendOp, SendStage},
        peer::{MESSAGE_COST, Peer},
        table::PeerTable,
    },
};

/// Messages that may be in flight past the lane.
const DIRECT_MAX: usize = 64;

/// Ends the operations whose memory the kernel used and no longer uses, as far as it has told
/// that. Returns whether any ended.
pub(crate) fn land(peers: &mut PeerTable, core: &mut Core) -> bool {
    if !core.driver.has_news() {
        return false;
    }
    for id in peers.ids() {
        if let Some(peer) = peers.get_mut(id).filter(|peer| peer.transport.has_in_flight()) {
            end_sent(core, peer);
        }
    }
    true
}

/// Ends the operations whose messages are sent. Returns whether there were any.
pub(crate) fn end_sent(core: &mut Core, peer: &mut Peer) -> bool {
    let mut any = false;
    core.has_sent |= peer.transport.take_has_sent();
    while let Some(transmitted) = peer.transport.take_sent() {
        any = true;
        let key = OpKey::of_word(transmitted.name);
        let Some(op) = core.ops.send_mut(key) else { continue };
        let SendStage::Handed { bytes } = op.stage else { continue };
        let mut receipt = op.receipt;
        if peer.info.encryption.is_some() {
            // The kernel copies ciphertext, not the message.
            receipt.copied_user = bytes;
            receipt.note_encrypted();
        } else {
            receipt.copied_kernel = bytes.saturating_sub(transmitted.spared);
            receipt.note_sent(transmitted.mode, transmitted.driver, transmitted.translated);
        }
        core.status.copied_user.add(receipt.copied_user);
        core.status.copied_kernel.add(receipt.copied_kernel);
        core.wakes.leader = true;
        if op.served.as_deref().is_some_and(Served::is_write) {
            op.receipt = receipt;
            results::written(core, peer, key);
            continue;
        }
        let (len, is_message) = (op.memory.len(), op.served.is_none());
        if is_message {
            peer.record.count_sent(Path::Eager, len);
        }
        ends::finish(core, key, Ok(Done::Sent(receipt)));
    }
    any
}

/// Hands a message to the connection, if it is long enough for that. `bytes` of it are wanted;
/// `announced`: the receiver has asked for them.
pub(crate) fn hand_to_connection(
    peer: &mut Peer,
    key: OpKey,
    op: &mut SendOp,
    bytes: u64,
    announced: bool,
) -> Result<bool, Violation> {
    let sid = op.sid(key);
    let Some(direct) = peer.transport.past_lane() else { return Ok(false) };
    if bytes < DIRECT_FROM || direct.direct_ones() >= DIRECT_MAX {
        return Ok(false);
    }
    let mut parts = op.memory.first(bytes);
    let name = key.word();
    if announced {
        let header = Header::new(Kind::Data, 0, sid);
        // SAFETY: the memory is there until the operation has ended, see the invariant.
        unsafe { direct.send_directly(name, header, &frame::long_data(bytes), &mut parts) }?;
    } else {
        let header = Header::new(Kind::Eager, op.verb as u8, sid);
        // SAFETY: as above.
        unsafe {
            direct.send_directly(name, header, &frame::long_eager(op.tag, bytes), &mut parts)
        }?;
        peer.sent_cost += MESSAGE_COST + bytes;
    }
    op.stage = SendStage::Handed { bytes };
    Ok(true)
}
