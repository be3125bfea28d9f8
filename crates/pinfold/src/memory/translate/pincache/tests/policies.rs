//! Policies of eviction by themselves.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Areas with moments, of which some are in flight.
#[derive(Default)]
struct Few {
    used: Vec<u64>,
    in_flight: BTreeSet<u32>,
    now: u64,
}

impl Candidates for Few {
    fn used(&self, area: u32) -> u64 {
        self.used[area as usize]
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn claim(&mut self, area: u32) -> bool {
        !self.in_flight.contains(&area)
    }
}

#[test]
fn the_clock_gives_a_second_chance() {
    let mut clock = Clock::default();
    let mut few = Few { used: vec![1, 2, 3, 4], now: 4, ..Few::default() };
    (0..4).for_each(|area| clock.insert(area, few.used[area as usize]));
    // Round once to see them all, then the first.
    assert_eq!(clock.choose(&mut few), Some(0));
    // 1 was used since the hand came by; 2 was not.
    few.used[1] = 5;
    assert_eq!(clock.choose(&mut few), Some(2));
    clock.forget(3);
    assert_eq!(clock.choose(&mut few), Some(1));
    assert_eq!(clock.choose(&mut few), None);
}

#[test]
fn a_cache_with_a_clock_evicts_what_was_not_used_again() {
    let budget = budget(8);
    let mut cache = PinCache::with_policy(Fake::new(budget), budget, Clock::default()).unwrap();
    for page in [0, 10, 20, 30] {
        touch(&mut cache, page, 2).unwrap();
    }
    touch(&mut cache, 40, 2).unwrap();
    assert_eq!(pinned(&cache), [(10, 12), (20, 22), (30, 32), (40, 42)]);
    touch(&mut cache, 10, 2).unwrap();
    touch(&mut cache, 50, 2).unwrap();
    assert_eq!(pinned(&cache), [(10, 12), (30, 32), (40, 42), (50, 52)]);
    let holds: Vec<Hold> =
        [10, 30, 40, 50].map(|page| cache.begin(HERE, page * PAGE, 1).unwrap()).into();
    assert_eq!(touch(&mut cache, 60, 2), Err(NoPin::Busy));
    holds.into_iter().for_each(|hold| cache.end(hold));
    touch(&mut cache, 60, 8).unwrap();
    assert_eq!(pinned(&cache), [(60, 68)]);
}

#[test]
fn forgotten_areas_do_not_gather() {
    let mut lru = Lru::default();
    for moment in 0..10_000 {
        lru.insert(3, moment);
        lru.forget(3);
    }
    assert!(format!("{lru:?}").len() < 20_000);
    let few = &mut Few { used: vec![0; 4], now: 10_000, ..Few::default() };
    assert_eq!(lru.choose(few), None);
}

proptest! {
    /// The idle area with the earliest use goes, for any uses, removals and transfers in flight.
    #[test]
    fn lru_chooses_the_least_recently_used(
        steps in prop::collection::vec((0..6u8, 0..80u32), 1..400)
    ) {
        let mut lru = Lru::default();
        let mut few = Few { used: vec![0; 80], ..Few::default() };
        let mut members = BTreeSet::new();
        for (step, area) in steps {
            few.now += 1;
            match step {
                0 | 1 => {
                    if members.insert(area) {
                        few.used[area as usize] = few.now;
                        lru.insert(area, few.now);
                    }
                }
                2 => few.used[area as usize] = few.now,
                3 => drop(few.in_flight.insert(area)),
                4 => {
                    if few.in_flight.remove(&area) {
                        few.used[area as usize] = few.now;
                    }
                    if area % 5 == 0 && members.remove(&area) {
                        lru.forget(area);
                    }
                }
                _ => {
                    let idle = members.iter().filter(|area| !few.in_flight.contains(area));
                    let expected = idle.copied().min_by_key(|area| few.used[*area as usize]);
                    prop_assert_eq!(lru.choose(&mut few), expected);
                    expected.map(|area| members.remove(&area));
                }
            }
        }
    }
}
