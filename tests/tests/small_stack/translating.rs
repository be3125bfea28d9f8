//! Memory that stays pinned, and translations that are kept.

use std::os::fd::AsFd;

use pinfold::translate::{
    Rights, SpaceId,
    own::{OwnMemory, Watched},
    pincache::{
        AccountId, Area, Budget, Handle, Lru, PinCache, PinCost, Pinner, Refused, SharedPinCache,
    },
    tlb::{Geometry, Lookup, Tlb},
    told::{Translated, hand_translations_to},
};

use super::small;

const HERE: SpaceId = SpaceId(1);

/// Pins nothing, and refuses no area.
struct Nothing;

impl Pinner for Nothing {
    fn page_bytes(&self) -> u64 {
        4096
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        Ok(Handle(area.start + area.len()))
    }

    fn unpin(&mut self, _: Handle, _: Area) {}

    fn cost(&self) -> PinCost {
        PinCost { pin_ns: 1, ..PinCost::default() }
    }
}

#[test]
fn own_memory() {
    let place = tempfile::tempfile().unwrap();
    small(|| {
        let budget = Budget::of_bytes(64 << 20);
        let other = OwnMemory::<Watched>::with_validation(budget).unwrap();
        let own = OwnMemory::new(budget).unwrap();
        assert!(!format!("{:?} {:?}", own.standing(), other.standing()).is_empty());
        let _ = (own.budget(), own.cost());
        let memory = vec![7u8; 1 << 20];
        let start = memory.as_ptr().expose_provenance() as u64;
        for _ in 0..3 {
            // Where nothing pins, or too little may be pinned, that is an error.
            if let Ok(hold) = own.begin(start, 1 << 20) {
                assert_eq!(hold.range(), start..start + (1 << 20));
                let _ = (hold.slot(), hold.kept(), hold.level());
                let wrote = own.write_out(&hold, place.as_fd(), 0);
                assert!(!matches!(wrote, Ok(0)), "{:?}", own.standing());
                own.end(hold);
            }
            if let Ok(hold) = own.begin_exact(start, 5000) {
                own.end(hold);
            }
        }
        assert!(!format!("{:?}", own.counters()).is_empty());
    });
}

#[test]
fn pin_down_caches() {
    small(|| {
        let budget = Budget::of_bytes(1 << 20);
        let mut cache = PinCache::new(Nothing, budget).unwrap();
        for start in (0..4 << 20).step_by(100_000) {
            let hold = cache.begin(HERE, start, 50_000).unwrap();
            assert!(hold.handle().0 > hold.offset());
            cache.end(hold);
        }
        assert!(cache.evict_of([HERE]) && cache.counters().evictions > 0);
        let gone = cache.invalidate(HERE, 0, u64::MAX);
        assert_eq!((gone.in_use, cache.budget().bytes_max), (0, 1 << 20));
        cache.close(HERE);
        assert_eq!(cache.pinner().cost(), cache.pinner_mut().cost());
        let mut cache = PinCache::with_policy(Nothing, budget, Lru::default()).unwrap();
        assert!(cache.begin(HERE, 0, 2 << 20).is_err());
        let mut shared = SharedPinCache::new(Nothing, budget).unwrap();
        let hold = shared.begin(HERE, 0, 5000).unwrap();
        assert!(hold.pinned());
        shared.end(hold);
        shared.end(shared.begin_pinned(HERE, 0, 5000).unwrap());
        let hold = shared.begin_pinned_mut(HERE, 0, 5000).unwrap();
        shared.end_mut(hold);
        assert_eq!((shared.counters().hits, shared.cost().pin_ns), (2, 1));
        assert_eq!(shared.invalidate(HERE, 0, 5000).unpinned, 1);
        shared.close(HERE);
        assert_eq!(shared.budget().bytes_max, 1 << 20);
        let gauges = shared.open_account(AccountId(0), 1 << 14);
        shared.end(shared.begin(HERE, 0, 5000).unwrap());
        assert_eq!((gauges.pinned_bytes(), gauges.evictions()), (8192, 0));
        shared.invalidate_everywhere(0, u64::MAX);
        shared.close_account(AccountId(0));
        drop(SharedPinCache::with_policy(Nothing, budget, Lru::default()).unwrap());
        assert!(Refused::NoSlots.is_shortage() && Rights::ReadWrite.allow(Rights::Read));
    });
}

#[test]
fn translations_are_told() {
    small(|| {
        let level = pinfold::TranslationLevel::Tlb;
        let one = Translated { pid: 1, endpoint: 2, address: 3, bytes: 4, level };
        assert_eq!(Translated::from_bytes(&one.to_bytes()), Some(one));
        let is_first = hand_translations_to(|_| ());
        assert!(is_first && !hand_translations_to(|_| ()));
    });
}

#[test]
fn translations() {
    small(|| {
        Geometry::default().check().unwrap();
        let mut tlb = Tlb::new(Geometry::default()).unwrap();
        for page in 0..5000u64 {
            let _ = tlb.insert(HERE, page << 12, Rights::Read, page);
        }
        let last = 4999 << 12;
        assert!(matches!(tlb.look_up(HERE, last, Rights::Read), Lookup::Hit(4999)));
        assert!(matches!(tlb.look_up(HERE, last, Rights::ReadWrite), Lookup::Denied(Rights::Read)));
        let Lookup::Hit(transfer) = tlb.begin(HERE, last, Rights::Read) else { panic!("a hit") };
        assert_eq!(transfer.value(), 4999);
        assert_eq!(tlb.invalidate(HERE, last).unwrap().transfers, 1);
        assert_eq!(tlb.in_use_aside(), 1);
        assert_eq!(tlb.end(transfer).unwrap().value, 4999);
        let mut gone = 0;
        tlb.invalidate_range(HERE, 0, last, |_| gone += 1);
        tlb.close(HERE, |_| gone += 1);
        assert!(gone > 0 && tlb.entries() == 0 && tlb.victims() == 0);
        assert_eq!(tlb.geometry(), &Geometry::default());
        assert!(tlb.counters().look_ups() >= tlb.counters().misses());
    });
}
