//! Memory that is given away in several parts, as one message: its list, and the mappings of its
//! parts.
//!
//! The sender says in bulk bytes of the lane where each part lies in its arenas ([`list`]). The
//! receiver copies the list out once and checks it then. A receive that takes a view is handed all
//! parts at once, mapped, to bring them into a row outside of the lock
//! ([`Contiguous`](crate::endpoint::contiguous::Contiguous)); other receives copy out of the
//! mappings, part by part.

use std::sync::Arc;

use super::{
    latest,
    parts::{ExportedParts, List, Parts, Shelved},
};
use crate::{
    Path, PeerId, Receipt, Refusal, Result,
    endpoint::DonatedBuf,
    memory::scatter::{Part, Scatter},
    protocol::rendezvous::select,
    status::Tally,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Piece,
        list::{self, Listed, PART_BYTES, PARTS_MAX},
        rendezvous::{By, Rts},
    },
    worker::{
        Engine, abandoned,
        core::{self, Core},
        extent_exchange,
        op::{Arrived, Done, Keeps, Lending, OpKey, SendOp},
        outbound,
        peer::Peer,
        post,
    },
};

/// Largest number of parts whose locations are kept for one peer's unexpected messages: 384 KiB.
const LISTED_MAX: usize = 16 * PARTS_MAX;

/// The locations of an unexpected message's parts, to be kept, unless they are too many. Then the
/// message comes by another path.
pub(crate) fn kept(peer: &mut Peer, list: Option<List>) -> Option<List> {
    let list = list.filter(|list| peer.listed + list.len() <= LISTED_MAX)?;
    peer.listed += list.len();
    Some(list)
}

/// Uncounts the parts of a message that a receive has matched, or that was taken back.
pub(crate) fn taken(peer: &mut Peer, list: Option<&[Listed]>) {
    peer.listed -= list.map_or(0, <[Listed]>::len);
}

/// Posts a send of memory in several parts that the caller gives away.
pub(crate) fn hand_off_parts(
    engine: &mut Engine,
    id: PeerId,
    tag: u64,
    donations: &[DonatedBuf],
) -> Result<OpKey> {
    let memory = DonatedBuf::gather(donations);
    let receipt = Receipt::new(Path::Handoff, memory.len());
    let send = SendOp { given: true, ..SendOp::new(id, tag, memory, receipt) };
    let send = latest::charge_early(engine, send);
    post::post(engine, send, Some(Keeps::DonatedBufs { donations: donations.to_vec() }))
}

/// Counts a peer's message in parts that was brought into a row here, `copied` bytes of it by
/// copying.
pub(crate) fn count_contiguous(engine: &mut Engine, id: PeerId, path: Path, len: u64, copied: u64) {
    engine.core.status.record_of(id).count_received(path, len);
    engine.core.status.copied_user.add(copied);
}

/// Tells the peer that parts of its memory are no longer in use, and how their message was
/// taken, or the `errno` that prevented it. Nothing is mapped for them any more.
pub(crate) fn give_parts_back(engine: &mut Engine, id: PeerId, sid: u32, by: By, errno: u32) {
    engine.core.imported.settle();
    if let Some(peer) = engine.peers.get_mut(id).filter(|peer| !peer.is_leaving()) {
        select::fin(&mut engine.core, peer, sid, errno, 0, by);
        engine.kick_if_needed();
    }
}

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
fn shelve_parts(peer: &mut Peer, memory: &Scatter) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(memory.parts() * PART_BYTES);
    for part in memory.each_part() {
        let exported = extent_exchange::export_part(peer, part)?;
        list::add(Listed { exported, len: part.len() }, &mut bytes);
    }
    Some(bytes)
}

/// Writes the list of a message in several parts. Returns `Ok(None)` if the message cannot be
/// given in parts after all, `Err(None)` if there is no room just now.
pub(crate) fn write_list(
    core: &mut Core,
    peer: &mut Peer,
    memory: &Scatter,
) -> Result<Option<Piece>, Option<Violation>> {
    let Some(bytes) = shelve_parts(peer, memory) else { return Ok(None) };
    let piece = outbound::lend(core, peer, bytes.len() as u32).map_err(Some)?.ok_or(None)?;
    // A lane whose budget is spent has no more. The piece that was lent goes back when the next
    // one is.
    if (piece.len as usize) < bytes.len() {
        return Ok(None);
    }
    peer.tx.write(piece, &bytes).map_err(Some)?;
    Ok(Some(piece))
}

/// The list of a message that a peer announces, if it has one.
pub(crate) fn read_list(peer: &mut Peer, rts: &Rts) -> Result<Option<List>, Violation> {
    let Some(piece) = rts.list else { return Ok(None) };
    let wrong = Violation("it announced parts that do not make up its message");
    // The return of parts is not counted.
    if !rts.given || rts.number != 0 {
        return Err(wrong);
    }
    let bytes = peer.rx.read(piece, PARTS_MAX * PART_BYTES)?;
    bytes.and_then(|bytes| list::read(&bytes, rts.len)).ok_or(wrong).map(Some)
}

/// The mappings of all parts of a message, of which `want` bytes are needed; `None` if one of
/// them is not mapped here, or is not present.
pub(crate) fn find_parts(
    core: &mut Core,
    peer: &mut Peer,
    list: &[Listed],
    want: u64,
) -> Result<Option<ExportedParts>, Violation> {
    let (mut exported_parts, mut begin) = (Vec::<Shelved>::with_capacity(list.len()), 0);
    for part in list {
        let Listed { exported, len } = *part;
        extent_exchange::await_extent(core, peer, exported.extent)?;
        let Some(mapping) = core.imported.get(peer.id, exported.extent) else {
            return Ok(None);
        };
        if mapping.get(exported.offset, len).is_none() {
            return Err(Violation("it announced a part outside its arena"));
        }
        if begin < want && !mapping.has_memory(exported.offset, len.min(want - begin)) {
            return Ok(None);
        }
        let mapping = Arc::clone(mapping);
        // The file is taken before anything else from the peer, which might put another file in
        // its place.
        let file = match exported_parts.last() {
            Some(last) if Arc::ptr_eq(&last.mapping, &mapping) => last.file.clone(),
            _ => core.imported.file(peer.id, exported.extent),
        };
        exported_parts.push(Shelved { begin, mapping, file, part: *part });
        begin += len;
    }
    Ok(Some(ExportedParts(exported_parts)))
}

/// Ends a receive with a message in parts that stay where they are. Returns whether the receive
/// takes views, and all parts are mapped here.
pub(crate) fn lend_parts(
    core: &mut Core,
    peer: &mut Peer,
    key: OpKey,
    (sid, rts): (u32, &Rts),
    list: &[Listed],
) -> Result<bool, Violation> {
    if !core.ops.recv_mut(key).is_some_and(|op| op.as_view) {
        return Ok(false);
    }
    let Some(exported_parts) = find_parts(core, peer, list, rts.len)? else {
        return Ok(false);
    };
    let (tag, len) = (rts.tag, rts.len);
    if core.ops.is_abandoned(key) {
        core.status.record_of(peer.id).count_received(Path::Handoff, len);
        drop(exported_parts);
        select::fin(core, peer, sid, 0, 0, By::View);
        core::finish(core, key, Err(crate::Error::Cancelled));
        return Ok(true);
    }
    abandoned::note_lent(core, key, sid, rts, Some(list));
    let parts = Box::new(Parts { parts: exported_parts.lent(), sid, tie: peer.rx.tie() });
    let (receipt, loan) = (Receipt::new(Path::Handoff, len), Some(Lending::Parts(parts)));
    // The message is counted once it is known how it came.
    let arrived = Arrived { peer: peer.id, tag, len, receipt, bytes: None, loan };
    core::finish(core, key, Ok(Done::Arrived(arrived)));
    Ok(true)
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
