//! Parts that a sender offers: exported, and routed.

use crate::{
    Path, Receipt, Refusal, Result,
    memory::scatter::{Part, Scatter},
    wire::list::{self, Listed, PART_BYTES, PARTS_MAX},
    worker::{extent_exchange, op::SendOp, peer::Peer},
};

/// Chooses the path of memory in several parts that is given away; an error says why it cannot
/// be given.
pub(crate) fn route_parts(peer: &mut Peer, op: &SendOp) -> Result<Receipt, Refusal> {
    let len = op.memory.len();
    if op.memory.parts() > PARTS_MAX {
        return Err(Refusal::TooLong);
    }
    // A shorter message is copied before its list is read.
    if len < peer.times.learner.from(Path::Mapped) && peer.permissions.may(Path::Eager) {
        return Err(Refusal::Slower);
    }
    let goes = peer.exported_extents.may_offer() && shelve_parts(peer, &op.memory).is_some();
    if goes { Ok(Receipt::new(Path::Handoff, len)) } else { Err(Refusal::NotMapped) }
}

/// Makes sure that the peer has all extents that memory lies in. Returns the locations in them,
/// as bytes of a list.
pub(crate) fn shelve_parts(peer: &mut Peer, memory: &Scatter) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(memory.parts() * PART_BYTES);
    for part in memory.each_part() {
        let exported = extent_exchange::export_part(peer, part)?;
        list::add(Listed { exported, len: part.len() }, &mut bytes);
    }
    Some(bytes)
}

/// Notes that the receiver has no mapping of the memory that a message of ours lies in.
pub(crate) fn offer_failed(peer: &mut Peer, extent: u64, memory: &Scatter) {
    match memory.part() {
        Some(_) => peer.exported_extents.failed(extent),
        // The receiver did not say which part.
        None => {
            let located = memory.each_part().filter_map(Part::locate);
            peer.exported_extents.all_failed(located.map(|(extent, _)| extent.id()));
        }
    }
}
