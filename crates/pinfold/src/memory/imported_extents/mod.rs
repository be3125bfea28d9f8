#![allow(unsafe_code)]
//! Arenas of peers, as far as they are mapped here.
//!
//! **Invariant.** A mapping that was lent out ([`ImportedExtents::lend`]) stays, in place, until
//! the loan has been given back ([`ImportedExtents::give_back`]) or the endpoint is gone.
//!
//! Peers send the files they want to be read from, unasked. Mappings are bounded: by a budget of
//! address space over all peers, and in number. A pin-down cache ([`PinCache`]), whose pins are
//! mappings ([`backend`]), decides which stay: where the room is not enough, the least recently
//! used goes. As long as its descriptor is kept ([`kept`]) it is mapped again when a message lies
//! there; otherwise that message comes by another path, and its sender sends the file again.
//!
//! The cache is told of no message: the mapping looked up last, each one lent out and each one
//! copied are one transfer to it, which lasts until none of that is so. Accounting: of each mapping
//! there is a hold in `holds` if, and only if, it is the recent one, or has loans, or is listed in
//! `copied`.

mod backend;
mod files;
mod held;
mod kept;
#[cfg(test)]
mod tests;

use std::{
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
};

use pinfold_sys::fork::ForkMark;

pub(crate) use self::held::{Held, Loan};
use self::{
    backend::Backend,
    files::Files,
    kept::{Account, OF_PROCESS},
};
use crate::{
    PeerId,
    memory::{
        arena::Mapping,
        translate::{
            SpaceId,
            pincache::{Budget, Hold, PinCache},
        },
    },
    transport::{descriptor_channel::Extent, shm::lane::Tie},
    wire::rendezvous::Exported,
};

/// Mappings of one endpoint. A process may have 65,530 (`vm.max_map_count`).
const MAPS_MAX: u32 = 4096;
/// Mappings of one peer.
const MAPS_A_PEER: u32 = 1024;

/// The mapping looked up last: most messages come out of the same extent as the one before.
struct Recent {
    peer: PeerId,
    id: u64,
    held: Arc<Held>,
}

/// The uses that keep a mapping from being unmapped.
struct InUse {
    hold: Hold,
    /// True if it is listed in `copied`.
    listed: bool,
}

/// The extents mapped here, by peer and the peer's number for them.
pub(crate) struct ImportedExtents {
    /// One of the mappings.
    recent: Option<Recent>,
    /// Made when first wanted: it takes 350 KiB.
    cache: Option<Box<PinCache<Backend>>>,
    /// By the back end's places.
    holds: Vec<Option<InUse>>,
    /// Places of mappings that were copied out of at the last look.
    copied: Vec<u32>,
    bytes_max: usize,
    maps_max: u32,
    maps_a_peer: u32,
    account: &'static Account,
}

impl ImportedExtents {
    /// At most `bytes_max` bytes of address space.
    pub(crate) fn new(bytes_max: usize) -> ImportedExtents {
        ImportedExtents::bounded(bytes_max, MAPS_MAX, MAPS_A_PEER, &OF_PROCESS)
    }

    /// The same, with so many mappings, in all and of one peer, and descriptors that are counted
    /// there.
    fn bounded(
        bytes_max: usize,
        maps_max: u32,
        maps_a_peer: u32,
        account: &'static Account,
    ) -> ImportedExtents {
        ImportedExtents {
            recent: None,
            cache: None,
            holds: Vec::new(),
            copied: Vec::new(),
            bytes_max,
            maps_max,
            maps_a_peer,
            account,
        }
    }

    /// Address space in use.
    pub(crate) fn bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.pinner().bytes() as usize)
    }

    /// Maps an extent that a peer sent. Returns whether it is mapped; if not, messages out of it
    /// come by other paths.
    pub(crate) fn add(&mut self, peer: PeerId, extent: Extent, tie: Tie) -> bool {
        self.remove(peer, extent.id);
        self.settle();
        // Nothing has to go for an extent that cannot be mapped anyway.
        let Ok(len) = usize::try_from(extent.bytes) else { return false };
        if len > self.bytes_max
            || Mapping::check(extent.fd.as_fd(), extent.bytes, extent.writable).is_err()
            || !self.has_cache()
        {
            return false;
        }
        let Some(cache) = &mut self.cache else { return false };
        let space = cache.pinner_mut().files.add(peer, extent, tie);
        let slot = self.hold(space);
        let Some(cache) = &mut self.cache else { return false };
        let files = &mut cache.pinner_mut().files;
        match slot {
            Some(slot) => {
                files.keep(space);
                self.let_go(slot);
            }
            None => files.remove(space),
        }
        slot.is_some()
    }

    /// Makes the cache, if there is none yet.
    fn has_cache(&mut self) -> bool {
        if self.cache.is_none()
            && let Ok(mark) = ForkMark::new()
        {
            let backend = Backend::new(Files::new(self.account), Arc::new(mark));
            let budget = Budget {
                bytes_max: self.bytes_max as u64,
                entries_max: self.maps_max,
                slots_max: self.maps_max,
                merge_growth_max: 0,
            };
            self.cache = PinCache::new(backend, budget).ok().map(Box::new);
        }
        self.cache.is_some()
    }

    /// Closes the descriptors that are kept, since the process has none left.
    #[cold]
    pub(crate) fn close_descriptors(&mut self) {
        if let Some(cache) = &mut self.cache {
            cache.pinner_mut().files.close_all();
        }
    }

    /// The mapping of a peer's extent.
    #[inline]
    pub(crate) fn get(&mut self, peer: PeerId, id: u64) -> Option<&Arc<Mapping>> {
        self.find(peer, id).map(|held| &held.mapping)
    }

    /// The file of a peer's extent, if its descriptor is kept. Its holder can map it, also when it
    /// has been let go of here.
    pub(crate) fn file(&self, peer: PeerId, id: u64) -> Option<Arc<dyn AsFd + Send + Sync>> {
        let files = &self.cache.as_ref()?.pinner().files;
        files.get(files.space(peer, id)?)?.kept()
    }

    /// The file that a loan is of, and its size in bytes, if its descriptor is kept. A look at each
    /// file that is known.
    pub(crate) fn file_of(&self, loan: &Loan) -> Option<(Arc<dyn AsFd + Send + Sync>, u64)> {
        // SAFETY: the caller has the loan, and this is its endpoint's engine.
        let slot = unsafe { loan.held() }.slot;
        let file = self.cache.as_ref()?.pinner().files.at(slot)?;
        Some((file.kept()?, file.bytes))
    }

    #[inline(always)]
    fn find(&mut self, peer: PeerId, id: u64) -> Option<&Arc<Held>> {
        let is_it = |recent: &Recent| (recent.peer, recent.id) == (peer, id);
        if !self.recent.as_ref().is_some_and(is_it) {
            self.find_other(peer, id)?;
        }
        self.recent.as_ref().map(|recent| &recent.held)
    }

    /// Makes another the most recent one; maps it if it is not mapped.
    #[cold]
    #[inline(never)]
    fn find_other(&mut self, peer: PeerId, id: u64) -> Option<()> {
        let space = self.cache.as_ref()?.pinner().files.space(peer, id)?;
        self.forget_recent();
        let slot = self.hold(space)?;
        let held = Arc::clone(self.cache.as_ref()?.pinner().held(slot)?);
        self.recent = Some(Recent { peer, id, held });
        Some(())
    }

    /// Has a file mapped and held, if it is not already. Returns its slot; `None` if it cannot be
    /// mapped.
    fn hold(&mut self, space: SpaceId) -> Option<u32> {
        let file = self.cache.as_ref()?.pinner().files.get(space)?;
        let (peer, bytes) = (file.peer, file.bytes);
        match file.slot {
            Some(slot) if self.holds.get(slot as usize).is_some_and(Option::is_some) => {
                return Some(slot);
            }
            Some(_) => {}
            None => {
                self.settle();
                if !self.has_place(peer) {
                    return None;
                }
            }
        }
        let hold = self.cache.as_mut()?.begin(space, 0, bytes).ok()?;
        let slot = hold.handle().0 as usize;
        if self.holds.len() <= slot {
            self.holds.resize_with(slot + 1, || None);
        }
        self.holds[slot] = Some(InUse { hold, listed: false });
        Some(slot as u32)
    }

    /// Sees to it that one more of a peer's may be mapped: the least recently used of them goes.
    fn has_place(&mut self, peer: PeerId) -> bool {
        let Some(cache) = &mut self.cache else { return false };
        let backend = cache.pinner();
        if backend.count(peer) < self.maps_a_peer {
            return true;
        }
        let mapped = backend.files.of(peer).filter(|(_, file)| file.slot.is_some());
        let spaces: Vec<_> = mapped.map(|(space, _)| space).collect();
        cache.evict_of(spaces)
    }

    /// Forgets the most recent mapping: there is none then.
    fn forget_recent(&mut self) {
        if let Some(recent) = self.recent.take() {
            let slot = recent.held.slot;
            drop(recent);
            self.let_go(slot);
        }
    }

    /// Lets the cache decide on a mapping, which is not the recent one, if it is not in use
    /// otherwise.
    fn let_go(&mut self, slot: u32) {
        let (Some(cache), Some(place)) = (&mut self.cache, self.holds.get_mut(slot as usize))
        else {
            return;
        };
        let (Some(held), Some(in_use)) = (cache.pinner().held(slot), place.as_mut()) else {
            return;
        };
        if held.loans() > 0 {
            return;
        }
        if held.is_copied() {
            if !std::mem::replace(&mut in_use.listed, true) {
                self.copied.push(slot);
            }
        } else if let Some(in_use) = place.take() {
            cache.end(in_use.hold);
        }
    }

    /// Takes note of the mappings that are copied no more.
    pub(crate) fn settle(&mut self) {
        if self.copied.is_empty() {
            return;
        }
        let recent = self.recent.as_ref().map(|recent| recent.held.slot);
        for slot in std::mem::take(&mut self.copied) {
            let in_use = self.holds.get_mut(slot as usize).and_then(Option::as_mut);
            // The mapping may have been let go of, and its place be another's.
            let was_listed = in_use.is_some_and(|in_use| std::mem::take(&mut in_use.listed));
            if was_listed && recent != Some(slot) {
                self.let_go(slot);
            }
        }
    }

    /// Lends the `len` bytes at `offset` of a peer's extent out, for message `sid`. `None`: it is
    /// not mapped, or they do not lie inside.
    #[inline(always)]
    pub(crate) fn lend(
        &mut self,
        peer: PeerId,
        exported: Exported,
        len: u64,
        sid: u32,
    ) -> Option<Loan> {
        let Exported { extent, offset } = exported;
        let held = self.find(peer, extent)?;
        held.mapping.get(offset, len)?;
        Some(Loan::of(held, offset, sid))
    }

    /// Takes back a loan.
    #[inline]
    pub(crate) fn give_back(&mut self, loan: &Loan) {
        if !self.give_recent_back(loan) {
            self.give_other_back(loan);
        }
    }

    /// As [`ImportedExtents::give_back`], if the loan is of the mapping looked up last. Returns
    /// whether it is.
    #[inline(always)]
    pub(crate) fn give_recent_back(&mut self, loan: &Loan) -> bool {
        match self.recent.as_ref().filter(|recent| loan.is_of(&recent.held)) {
            Some(recent) => {
                recent.held.end_loan();
                true
            }
            None => false,
        }
    }

    #[cold]
    fn give_other_back(&mut self, loan: &Loan) {
        // SAFETY: the loan has not been given back, and this is its endpoint's engine.
        let held = unsafe { loan.held() };
        let slot = held.slot;
        if held.end_loan() == 0 {
            self.let_go(slot);
        }
    }

    /// Lets go of an extent; a mapping in use stays until that use has ended.
    pub(crate) fn remove(&mut self, peer: PeerId, id: u64) {
        self.forget_recent();
        let Some(cache) = &mut self.cache else { return };
        if let Some(space) = cache.pinner().files.space(peer, id) {
            cache.close(space);
            cache.pinner_mut().files.remove(space);
        }
    }

    /// Lets go of all extents of a peer.
    pub(crate) fn drop_peer(&mut self, peer: PeerId) {
        self.forget_recent();
        let Some(cache) = &mut self.cache else { return };
        let theirs: Vec<_> =
            cache.pinner().files.of(peer).map(|(space, file)| (space, file.slot)).collect();
        for (space, slot) in theirs {
            if let Some(held) = slot.and_then(|slot| cache.pinner().held(slot)) {
                held.orphaned.store(true, Ordering::Relaxed);
            }
            cache.close(space);
            cache.pinner_mut().files.remove(space);
        }
        self.settle();
    }
}
