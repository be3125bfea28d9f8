//! The allocator of ranges, against a model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

impl Space {
    /// # Panics
    /// If any invariant does not hold.
    fn check(&self) {
        let mut in_bins = 0;
        for (bin, first) in self.bins.iter().enumerate() {
            let (row, column) = (bin / SPLIT as usize, bin as u32 % SPLIT);
            assert_eq!(self.columns[row] >> column & 1 == 1, *first != NONE, "bit of bin {bin}");
            let (mut at, mut before) = (*first, NONE);
            while at != NONE {
                let node = &self.nodes[at as usize];
                assert_eq!(node.state, Use::Free);
                assert_eq!(bin_of(node.len), (row, column));
                assert_eq!(node.bin_before, before);
                in_bins += 1;
                (before, at) = (at, node.bin_behind);
            }
        }
        for (row, columns) in self.columns.iter().enumerate() {
            assert_eq!(self.rows >> row & 1 == 1, *columns != 0, "bit of row {row}");
        }
        let mut at = self.nodes.iter().position(|n| n.state != Use::Spare && n.offset == 0);
        let (mut end, mut free, mut taken, mut before) = (0, 0, 0, NONE);
        while let Some(index) = at {
            let node = &self.nodes[index];
            assert_eq!((node.offset, node.before), (end, before));
            assert!(node.len > 0);
            match node.state {
                Use::Free => {
                    free += 1;
                    assert!(before == NONE || self.nodes[before as usize].state != Use::Free);
                }
                Use::Taken => taken += node.len,
                Use::Spare => panic!("a spare node has a place"),
            }
            end += node.len;
            before = index as u32;
            at = (node.behind != NONE).then_some(node.behind as usize);
        }
        assert_eq!((end, free, taken), (self.units, in_bins, self.taken));
    }

    fn free_units(&self) -> u32 {
        self.free_ranges(1).map(|(_, len)| len).sum()
    }
}

#[test]
fn bins_are_in_order() {
    let index = |(row, column): (usize, u32)| row * SPLIT as usize + column as usize;
    let mut last = 0;
    for len in (1..5000).chain((13..32).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]))
    {
        let bin = index(bin_of(len));
        assert!(bin >= last && bin < ROWS * SPLIT as usize);
        last = bin;
        let above = index(bin_above(len).unwrap());
        assert!(above == bin || above == bin + 1, "{len}");
        // Every range in the bin above is long enough.
        assert!(above > bin || len == 1 || index(bin_of(len - 1)) < bin, "{len}");
    }
    assert!(index(bin_of(u32::MAX)) < ROWS * SPLIT as usize);
    assert_eq!(bin_above(u32::MAX), None);
}

#[test]
fn a_space_can_be_taken_whole() {
    for units in [1, 15, 16, 17, 1000, 1025, u32::MAX - 1] {
        let mut space = Space::new(units);
        let whole = space.take(units, 1).unwrap();
        assert_eq!(whole.offset, 0);
        assert_eq!(space.take(1, 1), None);
        assert_eq!(space.range(whole.node), (0, units));
        space.check();
        assert_eq!(space.give(whole.node), (0, units));
        assert!(space.is_empty());
        assert_eq!(space.take(u32::MAX, 1), None);
        assert_eq!(space.take(u32::MAX, 1 << 31), None);
        space.check();
    }
}

#[test]
fn what_was_used_last_is_used_next() {
    let mut space = Space::new(1 << 20);
    let keep: Vec<Grant> = (0..10).map(|_| space.take(64, 1).unwrap()).collect();
    space.give(keep[2].node);
    space.give(keep[7].node);
    assert_eq!(space.take(64, 1).unwrap().offset, keep[7].offset);
    assert_eq!(space.take(64, 1).unwrap().offset, keep[2].offset);
}

#[test]
fn alignment_wastes_nothing_for_good() {
    let mut space = Space::new(1 << 15);
    let odd = space.take(1, 1).unwrap();
    let aligned = space.take(3, 1 << 12).unwrap();
    assert_eq!(aligned.offset, 1 << 12);
    space.check();
    // The units that were skipped are free.
    assert_eq!(space.take(1, 1).unwrap().offset, 1);
    // The same place again, although its range is not longer than needed.
    let next = space.take(1, 1).unwrap();
    space.give(aligned.node);
    assert_eq!(space.take(3, 1 << 12).unwrap().offset, 1 << 12);
    space.give(next.node);
    space.give(odd.node);
    space.check();
}

#[test]
fn a_place_can_be_asked_for() {
    let mut space = Space::new(1000);
    let one = space.take_at(100, 50).unwrap();
    assert_eq!(space.range(one.node), (100, 50));
    space.check();
    for (offset, len) in [(100, 1), (149, 1), (99, 2), (0, 101), (149, 100), (990, 11), (1000, 1)] {
        assert_eq!(space.take_at(offset, len), None, "{offset} {len}");
    }
    assert!(space.take_at(150, 850).is_some());
    assert!(space.take_at(99, 1).is_some());
    assert!(space.take_at(0, 99).is_some());
    assert_eq!(space.taken(), 1000);
    space.check();
}

#[test]
#[should_panic(expected = "given back twice")]
fn nothing_is_given_back_twice() {
    let mut space = Space::new(100);
    let grant = space.take(10, 1).unwrap();
    space.give(grant.node);
    space.give(grant.node);
}

#[test]
fn fragments_grow_together_again() {
    const UNITS: u32 = 1 << 14;
    let mut space = Space::new(UNITS);
    let all: Vec<Grant> = (0..UNITS).map(|_| space.take(1, 1).unwrap()).collect();
    assert_eq!(space.take(1, 1), None);
    // Every second one: the worst there is.
    for grant in all.iter().step_by(2) {
        space.give(grant.node);
    }
    assert_eq!(space.free_units(), UNITS / 2);
    assert_eq!(space.take(2, 1), None);
    space.check();
    for grant in all.iter().skip(1).step_by(2) {
        space.give(grant.node);
    }
    space.check();
    assert_eq!(space.free_ranges(UNITS).collect::<Vec<_>>(), [(0, UNITS)]);
    assert!(space.take(UNITS, 1).is_some());
}

#[derive(Clone, Debug)]
enum Step {
    Take(u32, u32),
    Give(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![6 => 1u32..40, 3 => 40u32..3000, 1 => 3000u32..60_000];
    let align = prop_oneof![4 => Just(0u32), 1 => 0u32..14];
    prop_oneof![
        3 => (len, align).prop_map(|(len, align)| Step::Take(len, 1 << align)),
        2 => any::<usize>().prop_map(Step::Give),
    ]
}

proptest! {
    #[test]
    fn ranges_never_overlap_and_all_come_back(
        units in 1u32..200_000,
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let mut space = Space::new(units);
        let mut live: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Take(len, align) => {
                    let Some(grant) = space.take(len, align) else {
                        // It says no only if nothing is comfortably long enough.
                        let need = u64::from(len + align - 1) * 17 / 16 + 1;
                        prop_assert!(space.free_ranges(1).all(|(_, has)| u64::from(has) < need));
                        continue;
                    };
                    prop_assert!(grant.offset.is_multiple_of(align));
                    prop_assert!(grant.offset + len <= units);
                    let before = live.range(..=grant.offset).next_back();
                    prop_assert!(before.is_none_or(|(at, (len, _))| at + len <= grant.offset));
                    let behind = live.range(grant.offset..).next();
                    prop_assert!(behind.is_none_or(|(at, _)| grant.offset + len <= *at));
                    prop_assert_eq!(space.range(grant.node), (grant.offset, len));
                    live.insert(grant.offset, (len, grant.node));
                }
                Step::Give(which) if !live.is_empty() => {
                    let at = *live.keys().nth(which % live.len()).unwrap();
                    let (len, node) = live.remove(&at).unwrap();
                    prop_assert_eq!(space.give(node), (at, len));
                }
                Step::Give(_) => {}
            }
            let sum: u32 = live.values().map(|(len, _)| len).sum();
            prop_assert_eq!(space.taken(), sum);
            prop_assert_eq!(space.free_units(), units - sum);
        }
        space.check();
        for (_, node) in live.into_values() {
            space.give(node);
        }
        space.check();
        prop_assert!(space.is_empty());
        prop_assert_eq!(space.free_ranges(1).collect::<Vec<_>>(), vec![(0, units)]);
    }
}
