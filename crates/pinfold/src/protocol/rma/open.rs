//! Opening memory of a peer's by its key: one question, whatever the key is of.
//!
//! A peer that can map a region is handed its file. A peer that cannot, but may read and write this
//! process's memory, asks again, is told the address, and is noted as a guest of the region. A peer
//! on another host is told how long the region is, and asks for each operation
//! ([`served`](super::served)). A peer that asks for memory by address is told which, and is noted
//! as a guest.

use std::sync::Arc;

use super::{
    registry::{Entry, Memory, Registry},
    way::{Asked, Exposed, Lent, Opening, Reached, Way},
};
use crate::{
    Error, Path, PeerId, Refusal, Result,
    endpoint::rma::RegionKey,
    failpoint::{self, Point},
    memory::imported_extents::ImportedExtents,
    transport::shm::ring::Violation,
    wire::{
        descriptor::Kind,
        region::{By, Extent, Open, Opened, Site, Spot},
        space::Exposure,
    },
    worker::{
        answers::{self, ANSWERS_MAX},
        core::Core,
        ends,
        engine::Engine,
        extent_exchange,
        op::{Done, Op, OpKey, OpKind},
        peer::Peer,
    },
};

/// Asks a peer for the memory with this key.
pub(crate) fn ask(engine: &mut Engine, id: PeerId, key: &RegionKey) -> Result<OpKey> {
    engine.check()?;
    let (peer, core) = engine.peer_mut(id)?;
    let why_not_mapped = peer.permissions.refusal(Path::Mapped);
    let by = match why_not_mapped {
        None => By::Mapping,
        Some(_) if peer.serves_regions => match peer.permissions.refusal(Path::Eager) {
            Some(why) => return Err(Error::PathRefused { path: Path::Eager, why }),
            None => By::Owner,
        },
        Some(_) => By::Kernel,
    };
    let open = Open { claim: key.claim(), by };
    let asked = Asked { peer: id, open, why_not_mapped };
    let op = core.ops.insert(Op::new(OpKind::Open(asked)));
    failpoint::hit(Point::BeforeOpen);
    answers::answer(core, peer, Kind::Open, op.index, &open.body());
    failpoint::hit(Point::AfterOpen);
    engine.kick_if_needed();
    Ok(op)
}

/// Returns whether one side has switched a path off.
fn is_by_choice(why: Refusal) -> bool {
    [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer].contains(&why)
}

/// Returns whether a process can have `len` bytes there.
fn fits(at: u64, len: u64) -> bool {
    at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64)
}

/// Returns an error unless a region of a peer's that cannot be mapped can be used through the
/// kernel.
fn check_reach(strict: bool, peer: &Peer, why_not_mapped: Refusal, writable: bool) -> Result<()> {
    if strict && !is_by_choice(why_not_mapped) {
        return Err(Error::PathRefused { path: Path::Mapped, why: why_not_mapped });
    }
    let refused = |why| Error::OutOfReach { mapped: why_not_mapped, cma: why };
    peer.cma_access.there(writable).map_err(refused)
}

/// Answers a peer that has asked for memory.
pub(crate) fn asked(
    core: &mut Core,
    peer: &mut Peer,
    number: u32,
    open: Option<Open>,
) -> Result<(), Violation> {
    let open = open.ok_or(Violation("it asked for a region in no known way"))?;
    if peer.controls() > ANSWERS_MAX {
        return Err(Violation("it asks on without taking the answers"));
    }
    if open.by == By::Owner && peer.shares_memory() {
        return Err(Violation("it asked for what goes between hosts"));
    }
    let opened = answer_for(&mut core.registry, peer, &open);
    failpoint::hit(Point::BeforeOpened);
    answers::answer(core, peer, Kind::Opened, number, &opened.body());
    failpoint::hit(Point::AfterOpened);
    Ok(())
}

fn answer_for(registry: &mut Registry, peer: &mut Peer, open: &Open) -> Opened {
    let full = registry.deferred_free.is_full_of(&peer.cma_access);
    let Ok(entry) = registry.find(&open.claim) else { return Opened::Unknown };
    let Entry { start, len, stamp, .. } = *entry;
    let (writable, flag) = (entry.is_writable(), entry.flag.clone());
    let extent = Extent { start, len, writable };
    let refused = match peer.cma_access.here(writable) {
        Ok(()) if full => Some(Refusal::NotLeft),
        said => said.err(),
    };
    match (&entry.memory, open.by) {
        (Memory::Region { .. }, By::Owner) => Opened::Served(extent),
        (Memory::Region { .. }, By::Kernel) => match refused {
            Some(why) => Opened::Refused(why.code()),
            None => {
                entry.let_in(&peer.cma_access);
                let flag = flag.address;
                Opened::There(Spot { memory: start, len, flag, stamp, writable })
            }
        },
        (Memory::Region { place, .. }, By::Mapping) => {
            if !peer.permissions.may(Path::Mapped) {
                return Opened::Unshared;
            }
            let places = [place.clone(), flag];
            match places.map(|it| extent_exchange::export_at(peer, &it.extent, it.offset)) {
                [Some(memory), Some(flag)] => {
                    Opened::Here(Site { start, memory, len, flag, stamp, writable })
                }
                _ => Opened::Unshared,
            }
        }
        (Memory::Addresses(_), By::Owner) => Opened::Agent(extent),
        (Memory::Addresses(_), By::Mapping) if full => Opened::Unshared,
        (Memory::Addresses(_), By::Kernel) if full => Opened::Refused(Refusal::NotLeft.code()),
        (Memory::Addresses(_), _) => {
            entry.let_in(&peer.cma_access);
            let cma = refused.map_or(0, |why| why.code());
            let exported = match peer.permissions.may(Path::Mapped) {
                true => extent_exchange::export_at(peer, &flag.extent, flag.offset),
                false => None,
            };
            let flag = flag.address;
            Opened::Exposed(Exposure { start, len, writable, flag, exported, stamp, cma })
        }
    }
}

/// Takes the answer to a question of ours.
pub(crate) fn opened(
    core: &mut Core,
    peer: &mut Peer,
    number: u32,
    opened: Option<Opened>,
) -> Result<(), Violation> {
    let opened = opened.ok_or(Violation("it answered in no known way"))?;
    let key = core.ops.at(number).ok_or(Violation("it answered a question not asked"))?;
    let (open, why_not_mapped) = match core.ops.get(key) {
        Some(Op { kind: OpKind::Open(asked), done: None, .. }) if asked.peer == peer.id => {
            (asked.open, asked.why_not_mapped)
        }
        _ => return Err(Violation("it answered a question that is not its own")),
    };
    let result = match (opened, why_not_mapped) {
        (Opened::Unknown, _) => Err(Error::BadKey),
        (Opened::Unshared, None) => return ask_again(core, peer, key, open),
        // Both channel messages were sent before the answer.
        (Opened::Here(site), None) => {
            extent_exchange::await_extent(
                &mut core.wakes,
                &mut core.imported,
                peer,
                site.memory.extent,
            )?;
            extent_exchange::await_extent(
                &mut core.wakes,
                &mut core.imported,
                peer,
                site.flag.extent,
            )?;
            let Site { start, len, stamp, writable, .. } = site;
            match lend_region(&mut core.imported, peer, site) {
                Some(lent) => {
                    let way = Way::Mapped { lent, stamp };
                    Ok(Opening { extent: Extent { start, len, writable }, way })
                }
                None => return ask_again(core, peer, key, open),
            }
        }
        (Opened::Served(extent), Some(why))
            if open.by == By::Owner && extent.len <= i64::MAX as u64 =>
        {
            Ok(Opening { extent, way: Way::Owner(why) })
        }
        (Opened::There(spot), Some(why)) if open.by == By::Kernel => {
            reach_region(core.strict, peer, spot, why)?
        }
        (Opened::Refused(code), Some(mapped)) => {
            let cma = Refusal::from_code(code);
            let cma = cma.ok_or(Violation("it refused for no known reason"))?.mirrored();
            check_reach(core.strict, peer, mapped, false)
                .and(Err(Error::OutOfReach { mapped, cma }))
        }
        (Opened::Exposed(exposure), _) if open.by != By::Owner => {
            reach_addresses(core.strict, peer, exposure)?
        }
        (Opened::Agent(extent), Some(_))
            if open.by == By::Owner && fits(extent.start, extent.len) =>
        {
            let Extent { start, len, writable } = extent;
            let (flag, exported, stamp, cma) = (0, None, 0, 0);
            let exposure = Exposure { start, len, writable, flag, exported, stamp, cma };
            Ok(opening(peer, exposure))
        }
        _ => return Err(Violation("it answered another question than it was asked")),
    };
    if let (true, Ok(Opening { way: Way::Mapped { lent, .. }, .. })) =
        (core.ops.is_abandoned(key), &result)
    {
        give_region_back(&mut core.imported, lent);
    }
    ends::finish(core, key, result.map(|opening| Done::Opened(Box::new(opening))));
    Ok(())
}

/// Asks again for a region that cannot be mapped, to use it through the kernel, if that is
/// possible.
fn ask_again(core: &mut Core, peer: &mut Peer, key: OpKey, open: Open) -> Result<(), Violation> {
    let why = Refusal::NotMapped;
    if let Err(error) = check_reach(core.strict, peer, why, false) {
        ends::finish(core, key, Err(error));
        return Ok(());
    }
    let open = Open { by: By::Kernel, ..open };
    if let Some(op) = core.ops.get_mut(key) {
        op.kind = OpKind::Open(Asked { peer: peer.id, open, why_not_mapped: Some(why) });
    }
    answers::answer(core, peer, Kind::Open, key.index, &open.body());
    Ok(())
}

pub(super) fn lend_region(imported: &mut ImportedExtents, peer: &Peer, site: Site) -> Option<Lent> {
    let Site { memory, len, flag, writable, .. } = site;
    if !flag.offset.is_multiple_of(8) || !memory.offset.is_multiple_of(64) {
        return None;
    }
    let memory = imported.lend(peer.id, memory, len, 0)?;
    let Some(flag) = imported.lend(peer.id, flag, 8, 0) else {
        imported.give_back(&memory);
        return None;
    };
    Some(Lent { memory, flag, len, writable, fence: peer.fence })
}

/// Takes an answer that names addresses. It need not be checked that they are the peer's own,
/// for the kernel reads and writes them in the peer's process; but this side computes with
/// them.
fn reach_region(
    strict: bool,
    peer: &Peer,
    spot: Spot,
    why_not_mapped: Refusal,
) -> Result<Result<Opening>, Violation> {
    check_places(spot)?;
    let Spot { memory: start, len, writable, .. } = spot;
    let cma_access = Arc::clone(&peer.cma_access);
    let way = Way::Kernel(Reached { spot, cma_access, why_not_mapped });
    let opening = Opening { extent: Extent { start, len, writable }, way };
    Ok(check_reach(strict, peer, why_not_mapped, writable).map(|()| opening))
}

/// Takes an answer that names exposed addresses, likewise.
fn reach_addresses(
    strict: bool,
    peer: &Peer,
    exposure: Exposure,
) -> Result<Result<Opening>, Violation> {
    let Exposure { start: memory, len, writable, flag, stamp, .. } = exposure;
    check_places(Spot { memory, len, flag, stamp, writable })?;
    let opening = opening(peer, exposure);
    let Way::Addresses(exposed) = &opening.way else { return Ok(Ok(opening)) };
    Ok(match exposed.denied() {
        Some(why) if strict && !is_by_choice(why) => {
            Err(Error::PathRefused { path: Path::Cma, why })
        }
        _ => Ok(opening),
    })
}

/// Gives a region's memory back.
pub(crate) fn give_region_back(imported: &mut ImportedExtents, lent: &Lent) {
    imported.give_back(&lent.memory);
    imported.give_back(&lent.flag);
}

/// Addresses that a peer exposes.
fn opening(peer: &Peer, exposure: Exposure) -> Opening {
    let Exposure { start, len, writable, .. } = exposure;
    let (cma_access, why_not_mapped) =
        (Arc::clone(&peer.cma_access), peer.permissions.refusal(Path::Mapped));
    let exposed = Exposed { exposure, cma_access, why_not_mapped };
    Opening { extent: Extent { start, len, writable }, way: Way::Addresses(exposed) }
}

fn check_places(Spot { memory, len, flag, stamp, .. }: Spot) -> Result<(), Violation> {
    if !fits(memory, len) || !fits(flag, 8) || stamp == 0 {
        return Err(Violation("it named memory that no process can have"));
    }
    Ok(())
}
