//! Mappings of peers' files: a model of the cache, its back end, mappings that come back.

mod again;
mod backend;
mod model;

use pinfold_sys::mem::{mapping::SharedMapping, memfd};

use super::*;
use crate::{
    sync::LightFence,
    transport::shm::{lane::LaneRx, segment::Segment},
    wire::layout::{Direction, SEGMENT_BYTES},
};

const PAGE: u64 = 4096;

fn peer(index: u32) -> PeerId {
    PeerId::new(index, 0)
}

fn tie() -> Tie {
    let file = memfd::create_sealed("pinfold-test", SEGMENT_BYTES).unwrap();
    let mapping = SharedMapping::map(file.as_fd(), SEGMENT_BYTES).unwrap();
    LaneRx::new(&Segment::new(mapping), Direction::ToAccepting, LightFence::Full, &Arc::default())
        .tie()
}

/// An account of so many descriptors, which no other test uses.
fn account(max: usize) -> &'static Account {
    Box::leak(Box::new(Account::new(Some(max))))
}

/// With as many descriptors as may be wanted.
fn maps(pages: u64) -> ImportedExtents {
    ImportedExtents::bounded((pages * PAGE) as usize, MAPS_MAX, MAPS_A_PEER, account(1 << 20))
}

impl ImportedExtents {
    fn backend(&self) -> Option<&Backend> {
        self.cache.as_ref().map(|cache| cache.pinner())
    }

    fn is_known(&self, peer: PeerId, id: u64) -> bool {
        self.backend().is_some_and(|backend| backend.files.space(peer, id).is_some())
    }

    /// Returns whether it is mapped, without having it mapped.
    fn has(&self, peer: PeerId, id: u64) -> bool {
        let file = self.backend().and_then(|backend| {
            backend.files.space(peer, id).and_then(|space| backend.files.get(space))
        });
        file.is_some_and(|file| file.slot.is_some())
    }

    /// The number of mappings, those that were closed while in use among them.
    fn count(&self) -> usize {
        self.backend().map_or(0, Backend::len)
    }
}

fn extent(id: u64, bytes: u64) -> Extent {
    let fd = memfd::create_fixed("pinfold-test", bytes as usize).unwrap();
    memfd::seal(fd.as_fd(), true).unwrap();
    Extent { id, bytes, writable: false, fd }
}

#[test]
fn the_budget_holds_and_the_oldest_goes() {
    let mut maps = maps(3);
    for id in 1..=3 {
        assert!(maps.add(peer(1), extent(id, PAGE), tie()));
    }
    assert_eq!(maps.bytes() as u64, 3 * PAGE);
    assert!(maps.get(peer(1), 1).is_some());
    let held = Arc::clone(maps.get(peer(1), 2).unwrap());
    assert!(maps.add(peer(2), extent(1, PAGE), tie()));
    assert!(!maps.has(peer(1), 3), "the oldest");
    assert!(maps.get(peer(1), 1).is_some() && maps.get(peer(2), 1).is_some());
    assert!(maps.has(peer(1), 2), "in use");
    assert!(!maps.add(peer(2), extent(2, 3 * PAGE), tie()), "one is in use");
    assert!(maps.get(peer(1), 2).is_some(), "in use");
    drop(held);
    maps.settle();
    maps.drop_peer(peer(1));
    assert!(maps.get(peer(1), 2).is_none());
    maps.remove(peer(2), 1);
    maps.remove(peer(2), 1);
    assert_eq!(maps.bytes(), 0);
}

#[test]
fn what_cannot_be_mapped_costs_the_others_nothing() {
    let mut maps = maps(3);
    assert!(maps.add(peer(1), extent(1, PAGE), tie()) && maps.add(peer(1), extent(2, PAGE), tie()));
    assert!(!maps.add(peer(2), extent(1, 4 * PAGE), tie()), "more than there may be");
    assert!(!maps.add(peer(2), Extent { bytes: 3 * PAGE, ..extent(1, PAGE) }, tie()), "a lie");
    assert!(maps.has(peer(1), 1) && maps.has(peer(1), 2));
}

#[test]
fn what_is_in_use_counts_although_it_was_let_go_of() {
    let mut maps = maps(2);
    assert!(maps.add(peer(1), extent(1, PAGE), tie()));
    let held = Arc::clone(maps.get(peer(1), 1).unwrap());
    // Under the same number, and another, and by way of the peer's end.
    assert!(maps.add(peer(1), extent(1, PAGE), tie()));
    let also = Arc::clone(maps.get(peer(1), 1).unwrap());
    maps.drop_peer(peer(1));
    assert!(!maps.add(peer(2), extent(1, PAGE), tie()));
    drop(held);
    assert!(maps.add(peer(2), extent(1, PAGE), tie()));
    assert!(!maps.add(peer(2), extent(2, 2 * PAGE), tie()));
    maps.remove(peer(2), 1);
    drop(also);
    assert!(maps.add(peer(2), extent(2, 2 * PAGE), tie()));
}

#[test]
fn what_cannot_be_mapped_is_left_out() {
    let mut maps = maps(1 << 18);
    let shrinkable = Extent { bytes: 2 * PAGE, ..extent(1, PAGE) };
    assert!(!maps.add(peer(1), shrinkable, tie()));
    assert!(!maps.add(peer(1), Extent { bytes: u64::MAX, ..extent(1, PAGE) }, tie()));
    assert!(!maps.add(peer(1), Extent { bytes: 0, ..extent(1, PAGE) }, tie()));
    // Writers are not refused, but neither was it said that this one may write.
    let fd = memfd::create_sealed("pinfold-test", PAGE as usize).unwrap();
    assert!(!maps.add(peer(1), Extent { id: 1, bytes: PAGE, writable: false, fd }, tie()));
    assert_eq!(maps.bytes(), 0);
    assert!(!maps.is_known(peer(1), 1));
}

#[test]
fn a_number_used_again_replaces() {
    let mut maps = maps(1 << 18);
    assert!(
        maps.add(peer(1), extent(5, PAGE), tie()) && maps.add(peer(1), extent(5, 2 * PAGE), tie())
    );
    assert_eq!(maps.get(peer(1), 5).unwrap().len(), 2 * PAGE);
    assert_eq!(maps.bytes() as u64, 2 * PAGE);
}

#[test]
fn what_is_lent_stays() {
    let mut maps = maps(2);
    let exported = |extent, offset| Exported { extent, offset };
    assert!(maps.add(peer(1), extent(1, PAGE), tie()));
    assert!(maps.lend(peer(1), exported(1, 1), PAGE, 1).is_none(), "beyond the end");
    assert!(maps.lend(peer(1), exported(2, 0), 1, 1).is_none());
    let one = maps.lend(peer(1), exported(1, 0), PAGE, 1).unwrap();
    let two = maps.lend(peer(1), exported(1, 8), 8, 2).unwrap();
    // Neither the same number again, nor want of room, nor its end takes it away.
    assert!(maps.add(peer(1), extent(1, PAGE), tie()));
    let three = maps.lend(peer(1), exported(1, 0), 8, 3).unwrap();
    assert!(!maps.add(peer(1), extent(2, PAGE), tie()));
    maps.drop_peer(peer(1));
    assert_eq!((maps.count(), maps.bytes() as u64), (2, 2 * PAGE));
    // SAFETY: not given back yet.
    assert_eq!(unsafe { one.held() }.mapping.len(), PAGE);
    maps.give_back(&one);
    maps.give_back(&three);
    assert_eq!((maps.count(), maps.bytes() as u64), (1, PAGE));
    maps.give_back(&two);
    assert_eq!((maps.count(), maps.bytes()), (0, 0));
}
