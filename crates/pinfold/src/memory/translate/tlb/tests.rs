//! The TLB: geometry, rights, conflicts, victims.

mod golden;
mod model;

use super::*;

const PAGE: u64 = 4096;
const HERE: SpaceId = SpaceId(1);
const THERE: SpaceId = SpaceId(2);

fn tlb(sets: usize, ways: usize, victims: usize) -> Tlb<u32> {
    let geometry = Geometry { sets, ways, victims, ..Geometry::default() };
    Tlb::new(geometry).unwrap()
}

/// Puts in the pages of these numbers, each with its number as value.
fn fill(tlb: &mut Tlb<u32>, pages: impl IntoIterator<Item = u64>) -> Vec<Gone<u32>> {
    let put = |page| tlb.insert(HERE, page * PAGE, Rights::Read, page as u32);
    pages.into_iter().filter_map(put).collect()
}

fn begin(tlb: &mut Tlb<u32>, page: u64) -> Transfer<u32> {
    match tlb.begin(HERE, page * PAGE, Rights::Read) {
        Lookup::Hit(transfer) => transfer,
        other => panic!("page {page}: {other:?}"),
    }
}

fn hits(tlb: &mut Tlb<u32>, page: u64) -> bool {
    matches!(tlb.look_up(HERE, page * PAGE, Rights::Read), Lookup::Hit(_))
}

#[test]
fn impossible_geometries_are_refused() {
    let refused = |change: fn(&mut Geometry)| {
        let mut geometry = Geometry::default();
        change(&mut geometry);
        Tlb::<u32>::new(geometry).err()
    };
    assert_eq!(refused(|_| ()), None);
    for sets in [0, 3, Geometry::SETS_MAX * 2] {
        let geometry = Geometry { sets, ..Geometry::default() };
        assert_eq!(Tlb::<u32>::new(geometry).err(), Some(GeometryError::Sets(sets)));
    }
    assert_eq!(refused(|g| g.ways = 0), Some(GeometryError::Ways(0)));
    assert_eq!(refused(|g| g.ways = 17), Some(GeometryError::Ways(17)));
    assert_eq!(refused(|g| g.ways = 16), None);
    assert_eq!(refused(|g| g.victims = 1025), Some(GeometryError::Victims(1025)));
    assert_eq!(refused(|g| g.victims = 0), None);
    for page_bytes in [0, 32, 4095, 1 << 41] {
        let geometry = Geometry { page_bytes, ..Geometry::default() };
        assert_eq!(Tlb::<u32>::new(geometry).err(), Some(GeometryError::PageBytes(page_bytes)));
    }
    let said = GeometryError::Sets(3).to_string();
    assert_eq!(said, "a TLB cannot have 3 sets: it must be a power of two up to 1048576");
}

#[test]
fn an_entry_of_eight_bytes_takes_half_a_line() {
    assert_eq!(std::mem::size_of::<Entry<u64>>(), 32);
}

#[test]
fn every_byte_of_a_page_hits_and_no_other() {
    let mut tlb = tlb(1024, 1, 16);
    assert_eq!(tlb.insert(HERE, 5 * PAGE + 17, Rights::Read, 42), None);
    for address in [5 * PAGE, 5 * PAGE + 1, 6 * PAGE - 1] {
        assert_eq!(tlb.look_up(HERE, address, Rights::Read), Lookup::Hit(42));
    }
    for address in [5 * PAGE - 1, 6 * PAGE, 0, u64::MAX] {
        assert_eq!(tlb.look_up(HERE, address, Rights::Read), Lookup::Miss);
    }
    assert_eq!(tlb.look_up(THERE, 5 * PAGE, Rights::Read), Lookup::Miss);
}

#[test]
fn the_ends_of_a_space_are_pages_like_others() {
    for page_bytes in [Geometry::PAGE_BYTES_MIN, PAGE, Geometry::PAGE_BYTES_MAX] {
        let mut tlb = Tlb::new(Geometry { page_bytes, ..Geometry::default() }).unwrap();
        for space in [SpaceId(0), SpaceId(u64::MAX)] {
            for address in [0, u64::MAX] {
                assert_eq!(tlb.look_up(space, address, Rights::Read), Lookup::Miss);
                assert_eq!(tlb.insert(space, address, Rights::ReadWrite, address), None);
                assert_eq!(tlb.look_up(space, address, Rights::ReadWrite), Lookup::Hit(address));
            }
            let mut gone = 0;
            tlb.invalidate_range(space, u64::MAX, u64::MAX, |_| gone += 1);
            assert_eq!(gone, 1);
            tlb.close(space, |gone| assert_eq!(gone.address, 0));
            assert_eq!(tlb.look_up(space, 0, Rights::Read), Lookup::Miss);
        }
        assert_eq!(tlb.counters().misses_compulsory, 6);
    }
}

#[test]
fn rights_that_do_not_suffice_are_told_from_misses() {
    let all = [Rights::Read, Rights::ReadWrite];
    // In the first level, and in the victim list.
    for displaced in [false, true] {
        for rights in all {
            let mut tlb = tlb(1, 1, 4);
            assert_eq!(tlb.insert(HERE, 0, rights, 7), None);
            if displaced {
                assert_eq!(tlb.insert(HERE, PAGE, Rights::Read, 8), None);
            }
            let mut denied = 0;
            for needed in all {
                let answer = tlb.look_up(HERE, 0, needed);
                if (rights, needed) != (Rights::Read, Rights::ReadWrite) {
                    assert_eq!(answer, Lookup::Hit(7));
                } else {
                    assert_eq!(answer, Lookup::Denied(rights));
                    assert_eq!(tlb.begin(HERE, 0, needed), Lookup::Denied(rights));
                    denied += 2;
                }
            }
            assert_eq!((tlb.counters().denied, tlb.counters().misses()), (denied, 0));
        }
    }
}

#[test]
fn a_row_of_pages_has_no_conflicts() {
    for space in 0..50 {
        let mut tlb = tlb(256, 1, 0);
        let start = space * 0x1234_5678 * 256;
        for page in start..start + 256 {
            assert_eq!(tlb.insert(SpaceId(space), page * PAGE, Rights::Read, 0), None);
        }
        assert_eq!(tlb.entries(), 256);
    }
}

#[test]
fn strides_and_spaces_do_not_gather_in_one_set() {
    let tlb = tlb(1024, 1, 16);
    let count = |sets: &mut dyn Iterator<Item = usize>| {
        sets.collect::<std::collections::HashSet<_>>().len()
    };
    for shift in 0..40 {
        let sets = count(&mut (0..512).map(|step| tlb.set_of(HERE, step << shift)));
        assert!(sets > 160, "a stride of 2^{shift} pages reaches {sets} sets");
    }
    for page in [0, 0x7f00_1234_5678] {
        let sets = count(&mut (0..512).map(|space| tlb.set_of(SpaceId(space), page)));
        assert!(sets > 160, "512 spaces reach {sets} sets");
    }
}

#[test]
fn the_oldest_victim_goes_first() {
    let mut tlb = tlb(1, 1, 3);
    // 0 to 2 become victims, in this order; 3 is in the set.
    assert_eq!(fill(&mut tlb, 0..4), []);
    // 1 goes back to the set, 3 behind 2.
    assert!(hits(&mut tlb, 1));
    assert_eq!(tlb.counters().hits_victim, 1);
    let order: Vec<u32> = fill(&mut tlb, 4..8).iter().map(|gone| gone.value).collect();
    assert_eq!(order, [0, 2, 3, 1]);
    assert_eq!(tlb.counters().evictions, 4);
}

#[test]
fn what_is_evicted_is_told_whole() {
    let mut tlb = tlb(1, 1, 0);
    assert_eq!(tlb.insert(THERE, 7 * PAGE + 5, Rights::ReadWrite, 9), None);
    let gone = tlb.insert(HERE, 0, Rights::Read, 1).unwrap();
    assert_eq!(gone, Gone { space: THERE, address: 7 * PAGE, value: 9, transfers: 0 });
}

#[test]
fn a_set_keeps_its_youngest() {
    let mut tlb = tlb(1, 4, 0);
    let gone: Vec<u32> = fill(&mut tlb, 0..10).iter().map(|gone| gone.value).collect();
    assert_eq!(gone, [0, 1, 2, 3, 4, 5]);
    // One in flight stays in its set, and the next older goes.
    let transfer = begin(&mut tlb, 6);
    let gone: Vec<u32> = fill(&mut tlb, 10..12).iter().map(|gone| gone.value).collect();
    assert_eq!(gone, [7, 8]);
    assert_eq!(tlb.end(transfer), None);
    assert!(hits(&mut tlb, 6));
}

#[test]
fn the_victim_list_grows_for_transfers_and_is_trimmed() {
    let mut tlb = tlb(1, 1, 2);
    let mut transfers = Vec::new();
    for page in 0..10 {
        assert_eq!(fill(&mut tlb, [page]), []);
        transfers.push(begin(&mut tlb, page));
    }
    assert_eq!((tlb.entries(), tlb.victims()), (10, 9));
    for page in 0..10 {
        assert!(hits(&mut tlb, page), "{page}");
    }
    assert_eq!(tlb.counters().victims_max, 9);
    // An idle entry finds no room: once it leaves its set, it is gone.
    assert_eq!(fill(&mut tlb, [10]), []);
    assert_eq!((tlb.victims(), tlb.entries()), (10, 11));
    assert_eq!(fill(&mut tlb, [11]).iter().map(|gone| gone.value).collect::<Vec<_>>(), [10]);
    let mut evicted = 0;
    for transfer in transfers {
        let value = transfer.value();
        if let Some(gone) = tlb.end(transfer) {
            assert_eq!((gone.value, gone.transfers), (value, 0));
            evicted += 1;
        }
    }
    assert_eq!((evicted, tlb.victims(), tlb.entries()), (8, 2, 3));
    assert_eq!(tlb.counters().evictions, 9);
}

#[test]
fn an_entry_with_two_transfers_waits_for_both() {
    let mut tlb = tlb(1, 1, 0);
    fill(&mut tlb, [0]);
    let (one, two) = (begin(&mut tlb, 0), begin(&mut tlb, 0));
    assert_eq!(fill(&mut tlb, [1]), []);
    assert_eq!(tlb.end(one), None);
    assert!(hits(&mut tlb, 0));
    assert_eq!(tlb.end(two).map(|gone| gone.value), Some(0));
    assert!(!hits(&mut tlb, 0));
}

#[test]
fn what_is_invalidated_in_flight_is_not_hit_and_comes_back_once() {
    let mut tlb = tlb(16, 1, 4);
    fill(&mut tlb, [3]);
    let (old, older) = (begin(&mut tlb, 3), begin(&mut tlb, 3));
    let gone = tlb.invalidate(HERE, 3 * PAGE).unwrap();
    assert_eq!((gone.value, gone.transfers), (3, 2));
    assert!(!hits(&mut tlb, 3));
    assert_eq!(tlb.invalidate(HERE, 3 * PAGE), None);
    // A new translation of the page is another entry.
    assert_eq!(tlb.insert(HERE, 3 * PAGE, Rights::Read, 33), None);
    let new = begin(&mut tlb, 3);
    assert_eq!((new.value(), tlb.in_use_aside()), (33, 1));
    assert_eq!(tlb.end(older), None);
    let gone = tlb.end(old).unwrap();
    assert_eq!((gone.value, gone.transfers, tlb.in_use_aside()), (3, 0, 0));
    assert_eq!(tlb.end(new), None);
    assert!(hits(&mut tlb, 3));
}

#[test]
fn a_new_translation_takes_the_place_of_the_old() {
    let mut tlb = tlb(16, 1, 4);
    fill(&mut tlb, [3]);
    let gone = tlb.insert(HERE, 3 * PAGE, Rights::ReadWrite, 4).unwrap();
    assert_eq!((gone.value, gone.transfers), (3, 0));
    assert_eq!(tlb.look_up(HERE, 3 * PAGE, Rights::ReadWrite), Lookup::Hit(4));
    let Lookup::Hit(transfer) = tlb.begin(HERE, 3 * PAGE, Rights::ReadWrite) else { panic!() };
    assert_eq!(tlb.insert(HERE, 3 * PAGE, Rights::Read, 5), None);
    assert_eq!((tlb.entries(), tlb.in_use_aside()), (1, 1));
    assert_eq!(tlb.end(transfer).map(|gone| gone.value), Some(4));
    assert_eq!((tlb.counters().replacements, tlb.counters().evictions), (2, 0));
}

#[test]
fn numbers_that_come_round_are_not_mistaken() {
    let mut tlb = tlb(16, 1, 4);
    fill(&mut tlb, [3]);
    let old = begin(&mut tlb, 3);
    assert!(tlb.invalidate(HERE, 3 * PAGE).is_some());
    tlb.next_id = tlb.next_id.wrapping_sub(1);
    fill(&mut tlb, [3]);
    assert_eq!(tlb.end(old).map(|gone| gone.value), Some(3));
    assert!(hits(&mut tlb, 3));
}

#[test]
fn a_range_invalidates_the_pages_it_touches() {
    // Page by page, and, since there are fewer entries than pages, entry by entry.
    for far in [0, 1 << 40] {
        let mut tlb = tlb(16, 1, 4);
        fill(&mut tlb, 0..8);
        assert_eq!(tlb.insert(THERE, 4 * PAGE, Rights::Read, 99), None);
        let mut gone = Vec::new();
        let (start, len) = if far == 0 { (2 * PAGE - 1, 2 * PAGE + 2) } else { (5 * PAGE, far) };
        tlb.invalidate_range(HERE, start, len, |one| gone.push(one.value));
        gone.sort_unstable();
        let expected: &[u32] = if far == 0 { &[1, 2, 3, 4] } else { &[5, 6, 7] };
        assert_eq!(gone, expected);
        assert_eq!(tlb.look_up(THERE, 4 * PAGE, Rights::Read), Lookup::Hit(99));
        tlb.invalidate_range(HERE, 0, 0, |_| panic!("nothing was asked for"));
        assert_eq!(tlb.counters().invalidations, expected.len() as u64);
    }
}

#[test]
fn a_space_that_closes_leaves_nothing_but_what_is_in_flight() {
    let mut tlb = tlb(2, 2, 4);
    fill(&mut tlb, 0..6);
    assert_eq!(tlb.insert(THERE, 0, Rights::Read, 99), None);
    let transfer = begin(&mut tlb, 0);
    let mut gone = Vec::new();
    tlb.close(HERE, |one| gone.push((one.value, one.transfers)));
    gone.sort_unstable();
    assert_eq!(gone, [(0, 1), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]);
    assert_eq!(tlb.entries(), 1);
    assert_eq!(tlb.end(transfer).map(|gone| gone.value), Some(0));
    // Another space of that number begins anew.
    let before = tlb.counters().misses_compulsory;
    assert!(!hits(&mut tlb, 0));
    assert_eq!(tlb.counters().misses_compulsory, before + 1);
    assert_eq!(tlb.look_up(THERE, 0, Rights::Read), Lookup::Hit(99));
    assert_eq!(tlb.look_up(THERE, PAGE, Rights::Read), Lookup::Miss);
}

#[test]
fn a_history_that_is_full_says_so() {
    let geometry = Geometry { history_groups_max: 2, ..Geometry::default() };
    let mut tlb = Tlb::<u32>::new(geometry).unwrap();
    // Two groups of 64 pages fit; their history stays exact.
    for page in [0, 63, 64, 127, 128, 0, 128, 64] {
        assert!(!hits(&mut tlb, page));
    }
    let counters = *tlb.counters();
    assert_eq!(counters.misses_compulsory, 4);
    assert_eq!(counters.misses_other, 2);
    assert_eq!(counters.misses_unclassified, 2);
    assert_eq!(counters.look_ups(), 8);
}

#[test]
fn a_page_put_in_unasked_was_known_before() {
    let mut tlb = tlb(1, 1, 0);
    fill(&mut tlb, [0, 1]);
    assert!(!hits(&mut tlb, 0));
    assert_eq!((tlb.counters().misses_compulsory, tlb.counters().misses_other), (0, 1));
}
