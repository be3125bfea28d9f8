//! The memory behind an address, where that can be mapped: how the owner tells of it and hands it
//! over, and the asking side maps it.

use super::{
    open,
    registry::{Entry, Memory, Registry},
    way::Lent,
};
use crate::{
    Path, PeerId, Result,
    failpoint::{self, Point},
    memory::{arena, imported_extents::Loan},
    wire::{
        region::Site,
        rendezvous::Exported,
        space::{Answered, Behind, Claim, Refused},
    },
    worker::{engine::Engine, extent_exchange, peer::Peer, teardown},
};

/// Alignment at which mappings of extents can begin: `Mapped` relies on it.
const ALIGN: u64 = 64;

/// Tells a peer which memory is behind an address, and hands it over if it can be mapped.
pub(crate) fn translate_for(
    engine: &mut Engine,
    id: PeerId,
    claim: &Claim,
    address: u64,
    writes: bool,
) -> Answered {
    let Ok((peer, core)) = engine.peer_mut(id) else {
        return Answered::Refused(Refused::Unknown);
    };
    match translate(&mut core.registry, peer, claim, address, writes) {
        Ok(answer) => answer,
        Err(why) => Answered::Refused(why),
    }
}

fn translate(
    registry: &mut Registry,
    peer: &mut Peer,
    claim: &Claim,
    address: u64,
    writes: bool,
) -> Result<Answered, Refused> {
    let entry = registry.find(claim)?;
    entry.check_address(address, 1, writes)?;
    let (start, end, may_write) = (entry.start, entry.start + entry.len, entry.is_writable());
    let flag = entry.flag.clone();
    let at = std::ptr::without_provenance(address as usize);
    let Some((extent, offset)) = arena::find(at, 1) else {
        let gap = arena::gap_at(address as usize);
        let (start, end) = (start.max(gap.start as u64), end.min(gap.end as u64));
        return Ok(Answered::Plain { start, len: end.saturating_sub(start) });
    };
    let page = Answered::Plain { start: address, len: 1 };
    if writes && !extent.peers_may_write() || !peer.permissions.may(Path::Mapped) {
        return Ok(page);
    }
    // The exposed part of the extent, from where it can be used.
    let base = address - offset;
    let first = start.saturating_sub(base).next_multiple_of(ALIGN);
    let last = extent.bytes_max().min(end - base);
    if !(first..last).contains(&offset) {
        return Ok(page);
    }
    let writable = may_write && extent.peers_may_write();
    failpoint::hit(Point::BeforeLend);
    let memory = extent_exchange::export_at(peer, &extent, first);
    let flag = extent_exchange::export_at(peer, &flag.extent, flag.offset);
    let (Some(memory), Some(flag)) = (memory, flag) else { return Ok(page) };
    if let Ok(Entry { memory: Memory::Addresses(kept), .. }) = registry.find(claim)
        && !kept.arenas.iter().any(|kept| kept.id() == extent.id())
    {
        kept.arenas.push(extent);
    }
    failpoint::hit(Point::AfterLend);
    let (start, len) = (base + first, last - first);
    Ok(Answered::Mapped(Behind { start, len, writable, memory, flag }))
}

/// Maps the word that says whether an exposure stands, which its owner has handed over. Returns
/// `None` if it cannot be mapped.
pub(crate) fn lend_flag(engine: &mut Engine, id: PeerId, flag: Exported) -> Option<Loan> {
    let (peer, core) = engine.peer_mut(id).ok()?;
    match extent_exchange::await_extent(&mut core.wakes, &mut core.imported, peer, flag.extent) {
        Ok(()) if flag.offset.is_multiple_of(8) => core.imported.lend(id, flag, 8, 0),
        Ok(()) => None,
        Err(violation) => {
            teardown::cut_off(engine, id, violation);
            None
        }
    }
}

/// Maps the memory that a peer's agent has handed over for one of our questions. Returns `None`
/// if it cannot be mapped.
pub(crate) fn lend_translated(
    engine: &mut Engine,
    id: PeerId,
    behind: Behind,
    stamp: u64,
) -> Option<Lent> {
    let Behind { start, len, writable, memory, flag } = behind;
    let (peer, core) = engine.peer_mut(id).ok()?;
    // Both channel messages were sent before the answer.
    let came =
        extent_exchange::await_extent(&mut core.wakes, &mut core.imported, peer, memory.extent)
            .and_then(|()| {
                extent_exchange::await_extent(
                    &mut core.wakes,
                    &mut core.imported,
                    peer,
                    flag.extent,
                )
            });
    match came {
        Ok(()) => open::lend_region(
            &mut core.imported,
            peer,
            Site { start, memory, len, flag, stamp, writable },
        ),
        Err(violation) => {
            teardown::cut_off(engine, id, violation);
            None
        }
    }
}
