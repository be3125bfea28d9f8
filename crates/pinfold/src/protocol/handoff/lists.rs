//! Lists of donated parts: read, found and lent to views.

use std::sync::Arc;

use crate::{
    Path, Receipt, Result,
    error::Error,
    memory::imported_extents::ImportedExtents,
    protocol::{
        handoff::parts::{ExportedParts, List, Parts, Shelved},
        rendezvous::fin,
    },
    transport::shm::ring::Violation,
    wire::{
        list::{self, Listed, PART_BYTES, PARTS_MAX},
        rendezvous::{By, Rts},
    },
    worker::{
        core::Core,
        ends, extent_exchange,
        op::{Arrived, Done, Lending, OpKey, Wakes},
        peer::Peer,
        posted,
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
    wakes: &mut Wakes,
    imported: &mut ImportedExtents,
    peer: &mut Peer,
    list: &[Listed],
    want: u64,
) -> Result<Option<ExportedParts>, Violation> {
    let (mut exported_parts, mut begin) = (Vec::<Shelved>::with_capacity(list.len()), 0);
    for part in list {
        let Listed { exported, len } = *part;
        extent_exchange::await_extent(wakes, imported, peer, exported.extent)?;
        let Some(mapping) = imported.get(peer.id, exported.extent) else {
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
            _ => imported.file(peer.id, exported.extent),
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
    let Some(exported_parts) =
        find_parts(&mut core.wakes, &mut core.imported, peer, list, rts.len)?
    else {
        return Ok(false);
    };
    let (tag, len) = (rts.tag, rts.len);
    if core.ops.is_abandoned(key) {
        core.status.record_of(peer.id).count_received(Path::Handoff, len);
        drop(exported_parts);
        fin::fin(core, peer, sid, 0, 0, By::View);
        ends::finish(core, key, Err(Error::Cancelled));
        return Ok(true);
    }
    posted::note_lent(&mut core.ops, key, sid, rts, Some(list));
    let parts = Box::new(Parts { parts: exported_parts.lent(), sid, tie: peer.rx.tie() });
    let (receipt, loan) = (Receipt::new(Path::Handoff, len), Some(Lending::Parts(parts)));
    // The message is counted once it is known how it came.
    let arrived = Arrived { peer: peer.id, tag, len, receipt, bytes: None, loan };
    ends::finish(core, key, Ok(Done::Arrived(arrived)));
    Ok(true)
}
