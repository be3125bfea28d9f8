//! Arenas of peers, as far as they are mapped here.
//!
//! Peers send what they want to be read from, unasked. What is mapped is bounded: by a budget of
//! address space over all peers, and in number. Where that is not enough, what was not used for
//! longest goes; a message out of it then comes by another path, and its sender sends it again.

use std::{os::fd::AsFd, sync::Arc};

use rustc_hash::FxHashMap;

use crate::{
    PeerId,
    arena::Mapping,
    link::{parcel::Extent, shm::budget::Budget},
};

/// Mappings of one endpoint. A process may have 65,530 (`vm.max_map_count`).
const MAPS_MAX: usize = 4096;
/// Mappings of one peer.
const MAPS_A_PEER: usize = 1024;

struct Entry {
    mapping: Arc<Mapping>,
    /// When it was last looked up, counted in look-ups.
    used: u64,
}

/// What is mapped here, by peer and the peer's number for it.
pub(crate) struct Maps {
    budget: Budget,
    entries: FxHashMap<(PeerId, u64), Entry>,
    turn: u64,
}

impl Maps {
    /// At most `bytes_max` bytes of address space.
    pub(crate) fn new(bytes_max: usize) -> Maps {
        Maps { budget: Budget::new(bytes_max), entries: FxHashMap::default(), turn: 0 }
    }

    /// Maps what a peer sent. Whether that could be done; where not, messages out of it come by
    /// other paths.
    pub(crate) fn add(&mut self, peer: PeerId, extent: Extent) -> bool {
        let Extent { id, bytes, writable, fd } = extent;
        self.remove(peer, id);
        let theirs = self.entries.keys().filter(|(owner, _)| *owner == peer).count();
        if theirs >= MAPS_A_PEER && !self.evict(Some(peer)) {
            return false;
        }
        let Ok(len) = usize::try_from(bytes) else { return false };
        while self.entries.len() >= MAPS_MAX || !self.budget.take(len) {
            if !self.evict(None) {
                return false;
            }
        }
        let mapping = match writable {
            true => Mapping::map_writable(fd.as_fd(), bytes),
            false => Mapping::map_readonly(fd.as_fd(), bytes),
        };
        match mapping {
            Ok(mapping) => {
                self.turn += 1;
                let entry = Entry { mapping: Arc::new(mapping), used: self.turn };
                self.entries.insert((peer, id), entry);
                true
            }
            Err(error) => {
                self.budget.give(len);
                tracing::debug!(%error, "a peer's arena cannot be mapped");
                false
            }
        }
    }

    /// The mapping of a peer's extent.
    #[inline]
    pub(crate) fn get(&mut self, peer: PeerId, id: u64) -> Option<&Arc<Mapping>> {
        self.turn += 1;
        let entry = self.entries.get_mut(&(peer, id))?;
        entry.used = self.turn;
        Some(&entry.mapping)
    }

    /// Lets go of one; what is in use of it stays until that has ended.
    pub(crate) fn remove(&mut self, peer: PeerId, id: u64) {
        if let Some(entry) = self.entries.remove(&(peer, id)) {
            self.budget.give(entry.mapping.len() as usize);
        }
    }

    /// Lets go of all that are a peer's.
    pub(crate) fn drop_peer(&mut self, peer: PeerId) {
        let budget = &mut self.budget;
        self.entries.retain(|(owner, _), entry| {
            let stays = *owner != peer;
            if !stays {
                budget.give(entry.mapping.len() as usize);
            }
            stays
        });
    }

    /// Lets go of the one, of `peer` or of any, that was not used for longest and is not in use.
    fn evict(&mut self, peer: Option<PeerId>) -> bool {
        let oldest = self
            .entries
            .iter()
            .filter(|((owner, _), _)| peer.is_none_or(|peer| *owner == peer))
            .filter(|(_, entry)| Arc::strong_count(&entry.mapping) == 1)
            .min_by_key(|(_, entry)| entry.used)
            .map(|(key, _)| *key);
        match oldest {
            Some((owner, id)) => {
                self.remove(owner, id);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use pinfold_sys::memfd;

    use super::*;

    const PAGE: u64 = 4096;

    fn peer(index: u32) -> PeerId {
        PeerId { index, generation: 0 }
    }

    fn extent(id: u64, bytes: u64) -> Extent {
        let fd = memfd::create_fixed("pinfold-test", bytes as usize).unwrap();
        memfd::seal(fd.as_fd(), true).unwrap();
        Extent { id, bytes, writable: false, fd }
    }

    #[test]
    fn the_budget_holds_and_the_oldest_goes() {
        let mut maps = Maps::new(3 * PAGE as usize);
        for id in 1..=3 {
            assert!(maps.add(peer(1), extent(id, PAGE)));
        }
        assert_eq!(maps.budget.left(), 0);
        assert!(maps.get(peer(1), 1).is_some());
        let held = Arc::clone(maps.get(peer(1), 2).unwrap());
        assert!(maps.add(peer(2), extent(1, PAGE)));
        assert!(maps.get(peer(1), 3).is_none(), "the oldest");
        assert!(maps.get(peer(1), 1).is_some() && maps.get(peer(2), 1).is_some());
        assert!(!maps.add(peer(2), extent(2, 4 * PAGE)), "more than there is");
        assert!(maps.get(peer(1), 2).is_some(), "in use");
        drop(held);
        maps.drop_peer(peer(1));
        assert!(maps.get(peer(1), 2).is_none());
        maps.remove(peer(2), 1);
        maps.remove(peer(2), 1);
        assert_eq!(maps.budget.used(), 0);
    }

    #[test]
    fn what_cannot_be_mapped_is_left_out() {
        let mut maps = Maps::new(1 << 30);
        let shrinkable = Extent { bytes: 2 * PAGE, ..extent(1, PAGE) };
        assert!(!maps.add(peer(1), shrinkable));
        assert!(!maps.add(peer(1), Extent { bytes: u64::MAX, ..extent(1, PAGE) }));
        assert!(!maps.add(peer(1), Extent { bytes: 0, ..extent(1, PAGE) }));
        // Writers are not refused, but neither was it said that this one may write.
        let fd = memfd::create_sealed("pinfold-test", PAGE as usize).unwrap();
        assert!(!maps.add(peer(1), Extent { id: 1, bytes: PAGE, writable: false, fd }));
        assert_eq!(maps.budget.used(), 0);
        assert!(maps.entries.is_empty());
    }

    #[test]
    fn a_number_used_again_replaces() {
        let mut maps = Maps::new(1 << 30);
        assert!(maps.add(peer(1), extent(5, PAGE)) && maps.add(peer(1), extent(5, 2 * PAGE)));
        assert_eq!(maps.get(peer(1), 5).unwrap().len(), 2 * PAGE);
        assert_eq!(maps.budget.used() as u64, 2 * PAGE);
    }
}
