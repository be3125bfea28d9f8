//! The pin-down cache: budgets, merging, eviction.

mod fake;
mod golden;
mod model;
mod policies;
mod stress;

use self::fake::Fake;
use super::*;

const PAGE: u64 = 4096;
const HERE: SpaceId = SpaceId(1);
const THERE: SpaceId = SpaceId(2);

fn budget(pages: u64) -> Budget {
    Budget { bytes_max: pages * PAGE, entries_max: 64, slots_max: 64, merge_growth_max: 4 }
}

fn cache_of(budget: Budget) -> PinCache<Fake> {
    PinCache::new(Fake::new(budget), budget).unwrap()
}

fn cache(pages: u64) -> PinCache<Fake> {
    cache_of(budget(pages))
}

/// Begins and ends a transfer of some pages.
fn touch<E: Evict>(cache: &mut PinCache<Fake, E>, page: u64, pages: u64) -> Result<(), NoPin> {
    let hold = cache.begin(HERE, page * PAGE, pages * PAGE)?;
    cache.end(hold);
    Ok(())
}

/// The pinned areas, in pages.
fn pinned<E: Evict>(cache: &PinCache<Fake, E>) -> Vec<(u64, u64)> {
    let mut areas: Vec<_> = cache.pinner().pinned.values().collect();
    areas.sort_unstable();
    areas.iter().map(|area| (area.start / PAGE, area.end / PAGE)).collect()
}

#[test]
fn impossible_budgets_are_refused() {
    for entries_max in [0, Budget::ENTRIES_MAX + 1] {
        let budget = Budget { entries_max, ..budget(1) };
        let refused = PinCache::new(Fake::new(budget), budget).err();
        assert_eq!(refused, Some(BudgetError::Entries(entries_max)));
    }
}

#[test]
fn what_is_within_is_a_hit_with_its_offset() {
    let mut cache = cache(100);
    let whole = cache.begin(HERE, 10 * PAGE + 100, 4 * PAGE).unwrap();
    assert_eq!((whole.offset(), pinned(&cache)), (100, vec![(10, 15)]));
    for (start, len, offset) in [(10 * PAGE, 1, 0), (12 * PAGE + 7, 9, 2 * PAGE + 7)] {
        let hold = cache.begin(HERE, start, len).unwrap();
        assert_eq!((hold.handle(), hold.offset()), (whole.handle(), offset));
        cache.end(hold);
    }
    // Up to its last byte.
    let hold = cache.begin(HERE, 15 * PAGE - 1, 1).unwrap();
    cache.end(hold);
    assert_eq!((cache.counters().hits, cache.counters().misses), (3, 1));
    // Of another space it is not.
    let other = cache.begin(THERE, 10 * PAGE, 1).unwrap();
    assert_ne!(other.handle(), whole.handle());
    assert_eq!(cache.counters().misses, 2);
    cache.end(other);
    cache.end(whole);
    assert_eq!((cache.counters().deferred, cache.counters().unpins), (5, 0));
}

#[test]
fn requests_that_make_no_sense_are_invalid() {
    let mut cache = cache(10);
    for (start, len) in [(0, 0), (PAGE, 0), (u64::MAX, 2), (u64::MAX, 1), (PAGE, u64::MAX)] {
        assert_eq!(cache.begin(HERE, start, len), Err(NoPin::Invalid), "{start} {len}");
    }
    let last = u64::MAX - PAGE;
    let hold = cache.begin(HERE, last, 1).unwrap();
    cache.end(hold);
    assert_eq!(cache.counters().misses, 1);
}

#[test]
fn neighbours_become_one() {
    let mut cache = cache(100);
    touch(&mut cache, 10, 2).unwrap();
    touch(&mut cache, 14, 2).unwrap();
    // Overlaps the one and touches the other.
    touch(&mut cache, 11, 3).unwrap();
    assert_eq!(pinned(&cache), [(10, 16)]);
    let counters = cache.counters();
    assert_eq!((counters.merges, counters.absorbed, counters.evictions), (1, 2, 0));
    // The new one was there before the old ones went.
    assert_eq!(counters.most.bytes, 10 * PAGE);
    touch(&mut cache, 10, 6).unwrap();
    assert_eq!(cache.counters().hits, 1);
    // One page between is a gap.
    touch(&mut cache, 17, 2).unwrap();
    assert_eq!(pinned(&cache), [(10, 16), (17, 19)]);
}

#[test]
fn a_long_neighbour_is_left_alone() {
    let mut cache = cache(1000);
    touch(&mut cache, 0, 100).unwrap();
    touch(&mut cache, 99, 20).unwrap();
    assert_eq!(pinned(&cache), [(0, 100), (99, 119)]);
    touch(&mut cache, 119, 5).unwrap();
    assert_eq!(pinned(&cache), [(0, 100), (99, 124)]);
    // A request that has all of an area takes its place, however long it is.
    touch(&mut cache, 0, 101).unwrap();
    assert_eq!(cache.counters().absorbed, 3);
}

#[test]
fn a_buffer_sent_piece_by_piece_is_not_pinned_over_and_over() {
    for (growth, most) in [(4, 3.1), (0, 1.1)] {
        let budget = Budget {
            merge_growth_max: growth,
            entries_max: 4096,
            slots_max: 4096,
            ..budget(1 << 20)
        };
        let mut cache = cache_of(budget);
        for piece in 0..1000 {
            touch(&mut cache, piece * 8, 8).unwrap();
        }
        assert_eq!(cache.counters().now.bytes, 8000 * PAGE);
        let repinned = cache.pinner().pinned_pages_ever() as f64 / 8000.0;
        assert!(repinned < most, "each page was pinned {repinned} times");
    }
}

#[test]
fn the_least_recently_used_is_evicted() {
    let mut cache = cache(10);
    for page in [0, 20, 40, 60, 80] {
        touch(&mut cache, page, 2).unwrap();
    }
    touch(&mut cache, 0, 1).unwrap();
    touch(&mut cache, 100, 3).unwrap();
    assert_eq!(pinned(&cache), [(0, 2), (60, 62), (80, 82), (100, 103)]);
    assert_eq!(cache.counters().evictions, 2);
}

#[test]
fn entries_and_slots_are_budgets_too() {
    let mut cache = cache_of(Budget { entries_max: 2, ..budget(100) });
    for page in [0, 20, 40] {
        touch(&mut cache, page, 1).unwrap();
    }
    assert_eq!(pinned(&cache), [(20, 21), (40, 41)]);
    // Of the fake one, an area of 9 pages takes two slots.
    let mut cache = cache_of(Budget { slots_max: 3, ..budget(100) });
    for (page, pages) in [(0, 1), (20, 1), (40, 9)] {
        touch(&mut cache, page, pages).unwrap();
    }
    assert_eq!(pinned(&cache), [(20, 21), (40, 49)]);
    assert_eq!(touch(&mut cache, 60, 25), Err(NoPin::TooLarge));
}

#[test]
fn what_is_in_flight_is_never_evicted() {
    let mut cache = cache(10);
    let one = cache.begin(HERE, 0, 4 * PAGE).unwrap();
    let two = cache.begin(HERE, 20 * PAGE, 4 * PAGE).unwrap();
    touch(&mut cache, 40, 2).unwrap();
    // Too much for the idle areas: nothing goes.
    assert_eq!(touch(&mut cache, 60, 3), Err(NoPin::Busy));
    assert_eq!(pinned(&cache), [(0, 4), (20, 24), (40, 42)]);
    assert_eq!((cache.counters().busy, cache.counters().evictions), (1, 0));
    assert_eq!(touch(&mut cache, 60, 11), Err(NoPin::TooLarge));
    assert_eq!(cache.counters().too_large, 1);
    touch(&mut cache, 60, 2).unwrap();
    assert_eq!(pinned(&cache), [(0, 4), (20, 24), (60, 62)]);
    cache.end(one);
    touch(&mut cache, 80, 6).unwrap();
    assert_eq!(pinned(&cache), [(20, 24), (80, 86)]);
    cache.end(two);
}

#[test]
fn what_is_merged_in_flight_stays_until_its_transfers_end() {
    let mut cache = cache(100);
    let old = cache.begin(HERE, 0, 2 * PAGE).unwrap();
    let new = cache.begin(HERE, PAGE, 3 * PAGE).unwrap();
    assert_eq!(pinned(&cache), [(0, 2), (0, 4)]);
    // The area asked for now is in the new one.
    let next = cache.begin(HERE, 0, PAGE).unwrap();
    assert_eq!(next.handle(), new.handle());
    cache.end(old);
    assert_eq!(pinned(&cache), [(0, 4)]);
    cache.end(new);
    cache.end(next);
    assert_eq!((cache.counters().deferred, cache.counters().unpins), (2, 1));
}

#[test]
fn a_merge_without_room_for_both_lets_the_old_ones_go_first() {
    let mut cache = cache(10);
    touch(&mut cache, 0, 4).unwrap();
    touch(&mut cache, 4, 4).unwrap();
    assert_eq!(pinned(&cache), [(0, 8)]);
    touch(&mut cache, 8, 2).unwrap();
    assert_eq!(pinned(&cache), [(0, 10)]);
    assert!(cache.counters().most.bytes <= 10 * PAGE);
}

#[test]
fn a_merge_for_which_there_is_no_room_is_left_out() {
    let mut cache = cache(10);
    let old = cache.begin(HERE, 0, 4 * PAGE).unwrap();
    // Both would need 4 + 6.
    touch(&mut cache, 4, 2).unwrap();
    assert_eq!(pinned(&cache), [(0, 4), (0, 6)]);
    // 6 + 3 in flight, and 7 would be too many; 1 is not.
    let new = cache.begin(HERE, 5 * PAGE, PAGE).unwrap();
    assert_eq!(touch(&mut cache, 6, 1), Err(NoPin::Busy));
    cache.end(old);
    touch(&mut cache, 6, 1).unwrap();
    assert_eq!(pinned(&cache), [(0, 6), (6, 7)]);
    cache.end(new);
}

#[test]
fn a_neighbour_whose_memory_is_gone_does_not_hinder() {
    let mut cache = cache(100);
    touch(&mut cache, 0, 2).unwrap();
    cache.pinner().hole.set((0, PAGE));
    touch(&mut cache, 2, 2).unwrap();
    assert_eq!(pinned(&cache), [(0, 2), (2, 4)]);
    // The area asked for itself does.
    let before = cache.counters();
    assert_eq!(
        cache.begin(HERE, PAGE - 1, 2 * PAGE).map(|_| ()),
        Err(NoPin::Refused(Refused::NotMapped))
    );
    assert_eq!(pinned(&cache), [(0, 2), (2, 4)]);
    let after = cache.counters();
    assert_eq!((after.now, after.evictions, after.refused), (before.now, 0, 1));
}

#[test]
fn a_back_end_short_of_memory_has_others_evicted() {
    let mut cache = cache(100);
    for page in [0, 20, 40] {
        touch(&mut cache, page, 2).unwrap();
    }
    cache.pinner().memory.set(6 * PAGE);
    touch(&mut cache, 60, 3).unwrap();
    assert_eq!(pinned(&cache), [(40, 42), (60, 63)]);
    assert_eq!((cache.counters().evictions, cache.pinner().refusals.get()), (2, 2));
    // With transfers in flight it is only busy.
    let hold = cache.begin(HERE, 60 * PAGE, PAGE).unwrap();
    assert_eq!(touch(&mut cache, 80, 4), Err(NoPin::Busy));
    cache.end(hold);
    // With nothing left it says why.
    cache.pinner().memory.set(0);
    assert_eq!(touch(&mut cache, 80, 1), Err(NoPin::Refused(Refused::NoMemory)));
    assert_eq!(cache.counters().now, Pinned::default());
}

#[test]
fn what_is_invalidated_is_unpinned_or_waits() {
    let mut cache = cache(100);
    touch(&mut cache, 0, 2).unwrap();
    touch(&mut cache, 10, 2).unwrap();
    let hold = cache.begin(HERE, 20 * PAGE, 2 * PAGE).unwrap();
    touch(&mut cache, 30, 2).unwrap();
    // From the last byte of one to the first of another.
    let done = cache.invalidate(HERE, 12 * PAGE - 1, 8 * PAGE + 2);
    assert_eq!(done, Invalidated { unpinned: 1, in_use: 1 });
    assert_eq!(pinned(&cache), [(0, 2), (20, 22), (30, 32)]);
    // It is pinned anew, beside the old one.
    let new = cache.begin(HERE, 20 * PAGE, PAGE).unwrap();
    assert_ne!(new.handle(), hold.handle());
    cache.end(hold);
    assert_eq!(pinned(&cache), [(0, 2), (20, 21), (30, 32)]);
    assert_eq!(cache.invalidate(HERE, 0, 0), Invalidated::default());
    // Neither the area that ends where it begins, nor the one that begins where it ends.
    assert_eq!(cache.invalidate(HERE, 2 * PAGE, 18 * PAGE), Invalidated::default());
    assert_eq!(cache.invalidate(THERE, 0, u64::MAX), Invalidated::default());
    assert_eq!(cache.close(HERE), Invalidated { unpinned: 2, in_use: 1 });
    cache.end(new);
    assert_eq!(pinned(&cache), []);
    assert_eq!(cache.counters().invalidations, 5);
}

#[test]
fn counts_of_ended_transfers_may_overflow() {
    let mut cache = cache(10);
    let many = (1 << 24) + 5;
    for _ in 0..many {
        touch(&mut cache, 0, 1).unwrap();
    }
    assert_eq!((cache.counters().hits, cache.counters().deferred), (many - 1, many));
    assert_eq!(cache.close(HERE).unpinned, 1);
    assert_eq!(cache.counters().hits, many - 1);
}

#[test]
fn of_some_spaces_the_idle_area_that_was_used_first_goes() {
    let mut cache = cache(10);
    for (space, page) in [(HERE, 0), (THERE, 0), (THERE, 4), (THERE, 8)] {
        let hold = cache.begin(space, page * PAGE, PAGE).unwrap();
        cache.end(hold);
    }
    let first = cache.begin(THERE, 0, PAGE).unwrap();
    assert!(!cache.evict_of([]) && !cache.evict_of([SpaceId(9)]));
    let counters = |cache: &PinCache<Fake>| (cache.counters().evictions, cache.counters().unpins);
    assert_eq!(counters(&cache), (0, 0));
    // The first is in flight, the second was used before the third.
    assert!(cache.evict_of([SpaceId(9), THERE]));
    assert_eq!(pinned(&cache), [(0, 1), (0, 1), (8, 9)]);
    assert!(cache.evict_of([THERE]) && !cache.evict_of([THERE]));
    assert_eq!((pinned(&cache), counters(&cache)), (vec![(0, 1), (0, 1)], (2, 2)));
    cache.end(first);
    // The policy knows of it: the remaining areas are chosen in order.
    assert!(cache.evict_of([HERE, THERE]));
    assert_eq!(cache.pinner().pinned.values().map(|area| area.space).collect::<Vec<_>>(), [THERE]);
    assert_eq!(touch(&mut cache, 20, 10), Ok(()));
    assert_eq!((cache.counters().evictions, cache.counters().now.entries), (4, 1));
}
