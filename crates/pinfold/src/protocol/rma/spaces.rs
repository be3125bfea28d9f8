//! `Spaces`: memory of this process that peers may use by address, wherever it lies, and the
//! answers to peers that ask for it.
//!
//! None of this memory belongs to the library. The memory behind an address is looked up at each
//! access, by the kernel or by the agent, so that no peer ever acts on memory that was there
//! before. Only parts of arenas are handed over to be mapped. Those are kept as long as the memory
//! is exposed: an address that a peer has translated keeps its meaning.

use std::{ops::Range, sync::Arc};

use rustc_hash::FxHashMap;

use super::{
    cma::CmaAccess,
    regions::{Lent, Place, is_secret},
};
use crate::{
    Path, PeerId, Result, SharedBuf,
    endpoint::region::{RegionKey, Rights},
    failpoint::{self, Point},
    memory::{
        arena::{self, ArenaRef},
        imported_extents::Loan,
    },
    wire::{
        region::Site,
        rendezvous::Exported,
        space::{Answered, Behind, Claim, Exposure, Refused},
    },
    worker::{Engine, core::Core, peer::Peer},
};

/// Alignment at which mappings of extents can begin: `Mapped` relies on it.
const ALIGN: u64 = 64;

/// One exposure.
pub(crate) struct Exposed {
    secret: [u64; 2],
    addresses: Range<u64>,
    rights: Rights,
    flag: Place,
    /// The value of the word behind `flag` as long as the exposure stands.
    stamp: u64,
    /// Peers that were told of it.
    guests: Vec<Arc<CmaAccess>>,
    /// Arenas of which peers were handed parts.
    keeps: Vec<ArenaRef>,
    /// Cloned for each copy by the agent that is in progress.
    serving: Arc<()>,
}

impl Exposed {
    /// Has guests look at the flag before their next operation. It says already that the exposure
    /// no longer stands.
    pub(crate) fn turn_away(&self) {
        self.guests.iter().for_each(|guest| guest.hazards.withdraw());
    }

    /// Number of peers, and copies by the agent, that still use it, after it was removed and its
    /// guests were [turned away](Exposed::turn_away).
    pub(crate) fn visitors(&mut self, id: u64) -> usize {
        self.guests.retain(|guest| guest.is_protected(id));
        self.guests.len() + Arc::strong_count(&self.serving) - 1
    }

    fn answer(&self, cma: u16, exported: Option<Exported>) -> Exposure {
        let Range { start, end } = self.addresses;
        Exposure {
            start,
            len: end - start,
            writable: self.rights == Rights::ReadWrite,
            flag: self.flag.address,
            exported,
            stamp: self.stamp,
            cma,
        }
    }

    /// Returns an error unless `len` bytes at `address` may be used in this way.
    fn check(&self, address: u64, len: u64, writes: bool) -> Result<(), Refused> {
        if writes && self.rights != Rights::ReadWrite {
            return Err(Refused::ReadOnly);
        }
        let end = address.checked_add(len).ok_or(Refused::Outside)?;
        let is_inside = self.addresses.start <= address && end <= self.addresses.end;
        if is_inside { Ok(()) } else { Err(Refused::Outside) }
    }
}

/// Memory that one endpoint exposes.
#[derive(Default)]
pub(crate) struct Spaces {
    entries: FxHashMap<u64, Exposed>,
}

impl Spaces {
    /// Removes an exposure.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Exposed> {
        self.entries.remove(&id)
    }

    /// In a forked child: forgets the guests, for the memory they share with this process did not
    /// come along.
    pub(crate) fn forsake(&mut self) {
        let guests = self.entries.values_mut().map(|entry| std::mem::take(&mut entry.guests));
        guests.for_each(std::mem::forget);
    }

    /// Forgets guests that will not come again.
    pub(crate) fn forget_gone(&mut self) {
        for (id, entry) in &mut self.entries {
            let may_come = |guest: &Arc<CmaAccess>| !guest.hazards.is_over() && guest.is_alive();
            entry.guests.retain(|guest| may_come(guest) || guest.is_protected(*id));
        }
    }

    /// The exposure with this key. Takes as long for a wrong secret as for the right one.
    fn find(&mut self, claim: &Claim) -> Result<&mut Exposed, Refused> {
        let entry = self.entries.get_mut(&claim.id).ok_or(Refused::Unknown)?;
        if is_secret(entry.secret, claim.secret) { Ok(entry) } else { Err(Refused::Unknown) }
    }

    /// Begins a copy by the agent. No peer is told that the exposure has ended before the returned
    /// value is dropped.
    pub(crate) fn serve(
        &mut self,
        claim: &Claim,
        address: u64,
        len: u64,
        writes: bool,
    ) -> Result<Arc<()>, Refused> {
        let entry = self.find(claim)?;
        entry.check(address, len, writes)?;
        Ok(Arc::clone(&entry.serving))
    }
}

impl Core {
    /// Exposes addresses. Returns the key that peers need for them, and the value that the flag's
    /// word has to hold.
    pub(crate) fn expose(
        &mut self,
        addresses: Range<u64>,
        rights: Rights,
        flag: &SharedBuf,
    ) -> Result<(RegionKey, u64)> {
        let (key, stamp) = self.regions.new_key()?;
        let entry = Exposed {
            secret: key.secret,
            addresses,
            rights,
            flag: Place::of(flag),
            stamp,
            guests: Vec::new(),
            keeps: Vec::new(),
            serving: Arc::default(),
        };
        self.spaces.entries.insert(key.id, entry);
        Ok((key, stamp))
    }
}

impl Engine {
    /// Tells a peer which memory is exposed by a key.
    pub(crate) fn tell_of_space(&mut self, id: PeerId, claim: &Claim) -> Answered {
        let Ok((peer, core)) = self.peer_mut(id) else {
            return Answered::Refused(Refused::Unknown);
        };
        let full = core.regions.deferred_free.is_full_of(&peer.cma_access);
        let flag = match core.spaces.find(claim) {
            Ok(_) if full => return Answered::Refused(Refused::Full),
            Ok(entry) => entry.flag.clone(),
            Err(why) => return Answered::Refused(why),
        };
        let may_map = peer.permissions.may(Path::Mapped);
        let exported = if may_map { core.shelve_place(peer, &flag) } else { None };
        let Ok(entry) = core.spaces.find(claim) else { return Answered::Refused(Refused::Unknown) };
        if !entry.guests.iter().any(|guest| Arc::ptr_eq(guest, &peer.cma_access)) {
            entry.guests.push(Arc::clone(&peer.cma_access));
        }
        let cma = peer.cma_access.here(entry.rights == Rights::ReadWrite);
        Answered::Exposed(entry.answer(cma.err().map_or(0, |why| why.code()), exported))
    }

    /// Tells a peer which memory is behind an address, and hands it over if it can be mapped.
    pub(crate) fn translate_for(
        &mut self,
        id: PeerId,
        claim: &Claim,
        address: u64,
        writes: bool,
    ) -> Answered {
        let Ok((peer, core)) = self.peer_mut(id) else {
            return Answered::Refused(Refused::Unknown);
        };
        match core.translate(peer, claim, address, writes) {
            Ok(answer) => answer,
            Err(why) => Answered::Refused(why),
        }
    }
}

impl Core {
    fn translate(
        &mut self,
        peer: &mut Peer,
        claim: &Claim,
        address: u64,
        writes: bool,
    ) -> Result<Answered, Refused> {
        let entry = self.spaces.find(claim)?;
        entry.check(address, 1, writes)?;
        let Range { start, end } = entry.addresses;
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
        let (flag, writable) =
            (entry.flag.clone(), entry.rights == Rights::ReadWrite && extent.peers_may_write());
        failpoint::hit(Point::BeforeLend);
        let memory = self.export_at(peer, &extent, first);
        let (Some(memory), Some(flag)) = (memory, self.shelve_place(peer, &flag)) else {
            return Ok(page);
        };
        if let Ok(entry) = self.spaces.find(claim)
            && !entry.keeps.iter().any(|kept| kept.id() == extent.id())
        {
            entry.keeps.push(extent);
        }
        failpoint::hit(Point::AfterLend);
        let (start, len) = (base + first, last - first);
        Ok(Answered::Mapped(Behind { start, len, writable, memory, flag }))
    }

    fn shelve_place(&self, peer: &mut Peer, place: &Place) -> Option<Exported> {
        self.export_at(peer, &place.extent, place.offset)
    }
}

impl Engine {
    /// Maps the word that says whether an exposure stands, which its owner has handed over. Returns
    /// `None` if it cannot be mapped.
    pub(crate) fn lend_flag(&mut self, id: PeerId, flag: Exported) -> Option<Loan> {
        let (peer, core) = self.peer_mut(id).ok()?;
        match core.await_extent(peer, flag.extent) {
            Ok(()) if flag.offset.is_multiple_of(8) => core.imported.lend(id, flag, 8, 0),
            Ok(()) => None,
            Err(violation) => {
                self.cut_off(id, violation);
                None
            }
        }
    }

    /// Maps the memory that a peer's agent has handed over for one of our questions. Returns `None`
    /// if it cannot be mapped.
    pub(crate) fn lend_translated(
        &mut self,
        id: PeerId,
        behind: Behind,
        stamp: u64,
    ) -> Option<Lent> {
        let Behind { len, writable, memory, flag, .. } = behind;
        let (peer, core) = self.peer_mut(id).ok()?;
        // Both channel messages were sent before the answer.
        let came = core
            .await_extent(peer, memory.extent)
            .and_then(|()| core.await_extent(peer, flag.extent));
        match came {
            Ok(()) => core.lend_region(peer, Site { memory, len, flag, stamp, writable }),
            Err(violation) => {
                self.cut_off(id, violation);
                None
            }
        }
    }
}
