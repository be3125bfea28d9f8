//! The order rules, the cost, the memory, and a comparison with a plain list.

mod claims;
mod standing;

use proptest::prelude::*;

use super::*;

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

fn peer(index: u32) -> PeerId {
    PeerId::new(index, 1)
}

fn matcher() -> Matcher<u64, u64> {
    Matcher::new(0x1234_5678_9abc_def0)
}

impl Matcher<u64, u64> {
    fn visited(&self) -> u64 {
        self.posted.visited() + self.unexpected.visited()
    }

    fn footprint(&self) -> usize {
        self.posted.footprint() + self.unexpected.footprint()
    }
}

/// The same rules over plain lists.
#[derive(Default)]
struct Naive {
    posted: Vec<(Source, TagMatch, u64)>,
    /// Those of them that stand.
    standing: Vec<u64>,
    unexpected: Vec<(PeerId, u64, u64)>,
}

impl Naive {
    fn arrive(&mut self, peer: PeerId, tag: u64) -> Option<u64> {
        let at =
            self.posted.iter().position(|(from, it, _)| from.matches(peer) && it.matches(tag))?;
        let value = self.posted[at].2;
        if !self.standing.contains(&value) {
            self.posted.remove(at);
        }
        Some(value)
    }

    fn locate(&self, from: Source, it: TagMatch) -> Option<usize> {
        self.unexpected.iter().position(|&(peer, tag, _)| from.matches(peer) && it.matches(tag))
    }
}

#[derive(Clone, Debug)]
enum Step {
    Post(Source, TagMatch),
    PostStanding(Source, TagMatch),
    Cancel(usize),
    Arrive(PeerId, u64),
    Keep(PeerId, u64),
    Take(Source, TagMatch),
    Find(Source, TagMatch),
    Change(usize),
    Again(usize),
    Remove(usize),
    DropPeer(PeerId),
    DropAny,
    ChangePeer(PeerId),
}

fn any_peer() -> impl Strategy<Value = PeerId> {
    (0..3u32, 1..3u32).prop_map(|(index, generation)| PeerId::new(index, generation))
}

fn any_source() -> impl Strategy<Value = Source> {
    prop_oneof![1 => Just(Source::Any), 2 => any_peer().prop_map(Source::Peer)]
}

/// Few tags, differing in low and in high bits.
fn any_tag() -> impl Strategy<Value = u64> {
    (0..4u64, 0..3u64).prop_map(|(low, high)| high << 62 | low)
}

fn any_match() -> impl Strategy<Value = TagMatch> {
    let ignore = prop_oneof![
        6 => Just(0),
        2 => Just(u64::MAX),
        2 => Just(1),
        2 => Just(1 << 63),
        1 => (0..12u32).prop_map(|bits| (1 << bits) - 1),
    ];
    (any_tag(), ignore).prop_map(|(tag, ignore)| TagMatch::masked(tag, ignore))
}

/// `adds` times as many steps add as remove, so that queues stay short or grow long.
fn any_step(adds: u32) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 * adds => (any_source(), any_match()).prop_map(|(from, tag)| Step::Post(from, tag)),
        adds => (any_source(), any_match()).prop_map(|(from, tag)| Step::PostStanding(from, tag)),
        3 => any::<usize>().prop_map(Step::Cancel),
        4 => (any_peer(), any_tag()).prop_map(|(peer, tag)| Step::Arrive(peer, tag)),
        4 * adds => (any_peer(), any_tag()).prop_map(|(peer, tag)| Step::Keep(peer, tag)),
        3 => (any_source(), any_match()).prop_map(|(from, tag)| Step::Take(from, tag)),
        3 => (any_source(), any_match()).prop_map(|(from, tag)| Step::Find(from, tag)),
        1 => any::<usize>().prop_map(Step::Change),
        2 => any::<usize>().prop_map(Step::Again),
        1 => any::<usize>().prop_map(Step::Remove),
    ]
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let rare = prop_oneof![
        any_peer().prop_map(Step::DropPeer),
        Just(Step::DropAny),
        any_peer().prop_map(Step::ChangePeer),
    ];
    let run = (1..6u32).prop_flat_map(|adds| prop::collection::vec(any_step(adds), 0..200));
    prop::collection::vec((run, rare), 0..4).prop_map(|runs| {
        runs.into_iter().flat_map(|(run, rare)| run.into_iter().chain([rare])).collect()
    })
}

/// Drives a matcher and the plain lists side by side.
fn compare(steps: Vec<Step>) {
    let mut real = matcher();
    let mut naive = Naive::default();
    // Keys of everything ever added, by payload: stale ones must stay dead.
    let mut posted = Vec::new();
    let mut unexpected = Vec::new();
    // Messages that were taken, with their numbers.
    let mut taken = Vec::new();
    let mut next = 0;
    for step in steps {
        next += 1;
        match step {
            Step::Post(from, tag) => {
                posted.push((real.post(from, tag, next), next));
                naive.posted.push((from, tag, next));
            }
            Step::PostStanding(from, tag) => {
                posted.push((real.post_standing(from, tag, next), next));
                naive.posted.push((from, tag, next));
                naive.standing.push(next);
            }
            Step::Cancel(at) => {
                let Some(&(key, value)) = posted.get(at % posted.len().max(1)) else { continue };
                let at = naive.posted.iter().position(|it| it.2 == value);
                assert_eq!(real.cancel(key), at.map(|at| naive.posted.remove(at).2));
            }
            Step::Arrive(peer, tag) => {
                let would = real.would_take(peer, tag);
                let receive = naive.arrive(peer, tag);
                assert_eq!((real.arrive(peer, tag), would), (receive, receive.is_some()));
            }
            Step::Keep(peer, tag) => {
                real.pass();
                unexpected.push((real.keep(peer, tag, next), next));
                naive.unexpected.push((peer, tag, next));
            }
            Step::Take(from, tag) => {
                let at = naive.locate(from, tag);
                let expected = at.map(|at| naive.unexpected.remove(at));
                assert_eq!(real.take(from, tag), expected);
                taken.extend(expected.map(|message| (message, real.matched())));
            }
            Step::Again(at) => {
                if taken.is_empty() {
                    continue;
                }
                let ((peer, tag, value), arrival) = taken.swap_remove(at % taken.len());
                let receive = naive.arrive(peer, tag);
                assert_eq!(real.arrive_again(peer, tag), receive);
                if receive.is_none() {
                    // Payloads rise as messages come.
                    let at = naive.unexpected.partition_point(|it| it.2 < value);
                    naive.unexpected.insert(at, (peer, tag, value));
                    // The key from before stays dead; no payload is 0.
                    let old = unexpected.iter_mut().filter(|it| it.1 == value);
                    old.for_each(|it| it.1 = 0);
                    unexpected.push((real.keep_again((peer, tag), arrival, value), value));
                }
            }
            Step::Find(from, tag) => {
                let found = real.find(from, tag).map(|(peer, tag, &value)| (peer, tag, value));
                assert_eq!(found, naive.locate(from, tag).map(|at| naive.unexpected[at]));
            }
            Step::Change(at) | Step::Remove(at) => {
                let Some(&(key, value)) = unexpected.get(at % unexpected.len().max(1)) else {
                    continue;
                };
                let at = naive.unexpected.iter().position(|it| it.2 == value);
                if let Step::Change(_) = step {
                    let here = at.map(|at| naive.unexpected[at].2);
                    assert_eq!(real.unexpected_mut(key).copied(), here);
                } else {
                    let gone = at.map(|at| naive.unexpected.remove(at).2);
                    assert_eq!(real.remove_unexpected(key), gone);
                }
            }
            Step::DropPeer(peer) => {
                let posted = real.drop_posted(|from| from == Source::Peer(peer));
                let goes = |it: &(Source, TagMatch, u64)| it.0 == Source::Peer(peer);
                let (gone, left) = naive.posted.drain(..).partition(goes);
                naive.posted = left;
                assert_eq!(posted, Vec::from_iter(Vec::into_iter(gone).map(|it| it.2)));
            }
            Step::ChangePeer(peer) => {
                // Payloads name entries, so the calls are only noted.
                let mut seen = Vec::new();
                real.each_unexpected_of(peer, |value| seen.push(*value));
                let theirs = naive.unexpected.iter().filter(|it| it.0 == peer);
                assert_eq!(seen, Vec::from_iter(theirs.map(|it| it.2)));
            }
            Step::DropAny => {
                let (gone, left) = naive.posted.drain(..).partition(|it| it.0 == Source::Any);
                naive.posted = left;
                let posted = real.drop_posted(|from| from == Source::Any);
                assert_eq!(posted, Vec::from_iter(Vec::into_iter(gone).map(|it| it.2)));
            }
        }
        assert_eq!(real.posted_len(), naive.posted.len());
        assert_eq!(real.unexpected_len(), naive.unexpected.len());
        assert_eq!(real.stores_none(), naive.unexpected.is_empty());
    }
    // The entries left are taken in order.
    for (peer, tag, value) in naive.unexpected {
        assert_eq!(real.take(Source::Any, TagMatch::any()), Some((peer, tag, value)));
    }
    for (key, value) in posted {
        let left = naive.posted.iter().any(|it| it.2 == value);
        assert_eq!(real.cancel(key), left.then_some(value));
    }
    assert!(real.stores_none() && real.posted_len() == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn a_plain_list_agrees(steps in any_steps()) {
        compare(steps);
    }
}

#[test]
fn tag_matches() {
    assert!(TagMatch::from(7).matches(7));
    assert!(!TagMatch::from(7).matches(7 | 1 << 63));
    assert!(TagMatch::any().matches(u64::MAX) && TagMatch::any().matches(0));
    let masked = TagMatch::masked(0xab_cd, 0xff);
    assert!(masked.matches(0xab_00) && masked.matches(0xab_ff) && !masked.matches(0xac_cd));
    assert_eq!((masked.tag(), masked.ignore()), (0xab_00, 0xff));
    assert_eq!(masked, TagMatch::masked(0xab_12, 0xff));
    assert_eq!(TagMatch::exact(3), 3.into());
    assert!(Source::Any.matches(peer(1)) && Source::from(peer(1)).matches(peer(1)));
    let later = PeerId::new(1, 2);
    assert!(!Source::Peer(peer(1)).matches(later));
}

#[test]
fn earliest_posted_wins_exact_or_wildcard() {
    // Few, which are scanned, and many, which are indexed.
    for others in [0, 100] {
        let mut it = matcher();
        for other in 0..others {
            it.post(peer(9).into(), other.into(), other);
        }
        it.post(Source::Any, TagMatch::any(), 1000);
        it.post(peer(1).into(), 5.into(), 1001);
        it.post(Source::Any, TagMatch::masked(4, 1), 1002);
        it.post(peer(1).into(), 5.into(), 1003);
        assert_eq!(it.arrive(peer(1), 5), Some(1000));
        assert_eq!(it.arrive(peer(1), 5), Some(1001));
        assert_eq!(it.arrive(peer(2), 5), Some(1002));
        assert_eq!(it.arrive(peer(2), 5), None);
        assert_eq!(it.arrive(peer(1), 5), Some(1003));
        assert_eq!(it.arrive(peer(1), 5), None);
        assert_eq!(it.posted_len(), others as usize);
    }
}

#[test]
fn earliest_arrived_wins() {
    for others in [0, 100] {
        let mut it = matcher();
        for other in 0..others {
            it.keep(peer(9), other + 100, other);
        }
        it.keep(peer(1), 4, 1000);
        it.keep(peer(2), 5, 1001);
        it.keep(peer(1), 5, 1002);
        it.keep(peer(1), 4, 1003);
        assert_eq!(it.take(peer(2).into(), 4.into()), None);
        let four_or_five = TagMatch::masked(4, 1);
        assert_eq!(it.take(Source::Any, four_or_five), Some((peer(1), 4, 1000)));
        assert_eq!(it.find(peer(1).into(), TagMatch::any()), Some((peer(1), 5, &1002)));
        assert_eq!(it.take(peer(2).into(), 5.into()), Some((peer(2), 5, 1001)));
        assert_eq!(it.take(peer(1).into(), TagMatch::any()), Some((peer(1), 5, 1002)));
        assert_eq!(it.take(peer(1).into(), 4.into()), Some((peer(1), 4, 1003)));
    }
}

#[test]
fn keys_do_not_outlive_their_entry() {
    let mut it = matcher();
    let first = it.post(Source::Any, 1.into(), 1);
    assert_eq!(it.cancel(first), Some(1));
    let second = it.post(Source::Any, 1.into(), 2);
    assert_eq!(it.cancel(first), None);
    assert_eq!(it.arrive(peer(0), 1), Some(2));
    assert_eq!(it.cancel(second), None);

    let first = it.keep(peer(0), 1, 1);
    *it.unexpected_mut(first).unwrap() += 10;
    assert_eq!(it.take(Source::Any, 1.into()), Some((peer(0), 1, 11)));
    let second = it.keep(peer(0), 1, 2);
    assert_eq!(it.unexpected_mut(first), None);
    assert_eq!(it.remove_unexpected(first), None);
    assert_eq!(it.remove_unexpected(second), Some(2));
    assert!(it.stores_none() && it.posted_len() == 0);

    // Nor when the storage was given back in between.
    let old = it.keep(peer(0), 0, 0);
    for tag in 1..=2 * KEPT_MAX as u64 {
        it.keep(peer(0), tag, tag);
    }
    while it.take(Source::Any, TagMatch::any()).is_some() {}
    assert_eq!(it.unexpected.footprint(), 0);
    it.keep(peer(0), 0, 7);
    assert_eq!(it.unexpected_mut(old), None);
}

#[test]
fn more_masks_than_classes() {
    let masks: Vec<TagMatch> = (0..20).map(|bit| TagMatch::masked(0, 1 << bit)).collect();
    let mut it = matcher();
    for (at, &mask) in masks.iter().enumerate() {
        it.post(Source::Any, mask, at as u64);
    }
    for (at, mask) in masks.iter().enumerate().rev() {
        assert_eq!(it.arrive(peer(0), mask.ignore()), Some(at as u64));
    }
    for at in 0..20 {
        it.keep(peer(0), 1 << at, at);
    }
    for (at, &mask) in masks.iter().enumerate().rev() {
        assert_eq!(it.take(Source::Any, mask), Some((peer(0), mask.ignore(), at as u64)));
    }
    assert!(it.stores_none() && it.posted_len() == 0);
}

/// Receives as programs post them: exact, from any source, and with a few masks.
fn varied(at: u64) -> (Source, TagMatch) {
    let tag = at << 8;
    match at % 5 {
        0 | 1 => (peer(at as u32 % 7).into(), tag.into()),
        2 => (Source::Any, tag.into()),
        3 => (peer(at as u32 % 7).into(), TagMatch::masked(tag, 0xff)),
        _ => (Source::Any, TagMatch::masked(tag, 0x0f)),
    }
}

#[test]
fn cost_does_not_depend_on_the_length_of_the_queue() {
    let n = if cfg!(miri) { 500 } else { 100_000 };
    let shuffled = |i: u64| i * 7919 % n;
    let mut it = matcher();

    for at in 0..n {
        let (from, tag) = varied(at);
        it.post(from, tag, at);
    }
    assert_eq!(it.visited(), 0);
    for at in (0..n).map(shuffled) {
        assert_eq!(it.arrive(peer(at as u32 % 7), at << 8), Some(at));
        assert_eq!(it.arrive(peer(0), u64::MAX), None);
    }
    // Indexed once, which looks at each; then a look at each class twice a turn.
    assert!(it.visited() <= n + 2 * 5 * n + 100, "{}", it.visited());

    let before = it.visited();
    for at in 0..n {
        it.keep(peer(at as u32 % 7), at << 8, at);
    }
    assert_eq!(it.visited(), before);
    for at in (0..n).map(shuffled) {
        let (from, tag) = varied(at);
        assert_eq!(it.find(from, tag).map(|found| *found.2), Some(at));
        assert_eq!(it.take(from, tag).map(|taken| taken.2), Some(at));
        assert_eq!(it.take(Source::Any, u64::MAX.into()), None);
    }
    // Four classes are built, a step for each message in each.
    assert!(it.visited() - before <= 4 * n + 3 * n + 100, "{}", it.visited() - before);
}

#[test]
fn wildcards_that_take_in_order_need_no_index() {
    let n = if cfg!(miri) { 500 } else { 100_000 };
    let mut it = matcher();
    for at in 0..n {
        it.keep(peer(at as u32 % 7), at, at);
    }
    for at in 0..n {
        assert_eq!(it.take(Source::Any, TagMatch::any()).map(|taken| taken.2), Some(at));
    }
    for at in 0..n {
        it.post(peer(0).into(), 1.into(), at);
    }
    for at in 0..n {
        assert_eq!(it.arrive(peer(0), 1), Some(at));
    }
    assert_eq!(it.visited(), 2 * n);
}

#[test]
fn a_class_that_is_not_used_is_dropped() {
    let mut it = matcher();
    for at in 0..100 {
        it.keep(peer(0), at, at);
    }
    assert!(it.take(Source::Any, 99.into()).is_some());
    let before = it.footprint();
    // The queue never gets short, and is always served at its head.
    for at in 0..10_000 {
        it.keep(peer(0), at, at);
        assert!(it.take(Source::Any, TagMatch::any()).is_some());
    }
    assert!(it.footprint() < before, "{} {before}", it.footprint());
}

#[test]
fn memory_follows_the_entries_not_the_tags() {
    let n = if cfg!(miri) { 1_000 } else { 1_000_000 };
    let mut it = matcher();
    let mut largest = 0;
    for at in 0..n {
        // Tags that differ in all bits, from ever new peers, about 50 at a time on either side.
        let tag = |at: u64| at.wrapping_mul(ODD);
        it.post(peer(at as u32).into(), tag(at).into(), at);
        it.keep(peer(at as u32), tag(at), at);
        if let Some(old) = at.checked_sub(50) {
            assert_eq!(it.arrive(peer(old as u32), tag(old)), Some(old));
            let taken = it.take(peer(old as u32).into(), tag(old).into());
            assert_eq!(taken, Some((peer(old as u32), tag(old), old)));
            if old % 3 == 0 {
                assert_eq!(it.arrive(peer(old as u32), tag(old)), None);
                assert_eq!(it.take(Source::Any, tag(old).into()), None);
            }
        }
        largest = largest.max(it.footprint());
    }
    assert!(largest < 2_000, "{largest}");
}

#[test]
fn a_long_queue_gives_its_memory_back() {
    let n = if cfg!(miri) { 2 * KEPT_MAX as u64 } else { 100_000 };
    let mut it = matcher();
    for at in 0..n {
        it.post(peer(0).into(), at.into(), at);
        it.keep(peer(1), at, at);
    }
    for at in (0..n).rev() {
        assert_eq!(it.arrive(peer(0), at), Some(at));
        assert_eq!(it.take(peer(1).into(), at.into()), Some((peer(1), at, at)));
    }
    assert!(it.stores_none() && it.posted_len() == 0);
    assert_eq!(it.footprint(), 0);
}

/// The longest run of hashes that agree in the bits that a table of `n` looks at.
fn worst_bucket(seed: u64, n: u64, tag: impl Fn(u64) -> u64) -> usize {
    use std::hash::BuildHasher;
    let seeds = Seeds::new(seed);
    let mut buckets = vec![0; n as usize];
    for at in 0..n {
        let key = index::Key::of(peer(3).into(), tag(at).into());
        buckets[(seeds.hash_one(key) % n) as usize] += 1;
    }
    buckets.into_iter().max().unwrap_or(0)
}

#[test]
fn hashes_spread_whatever_the_tags() {
    let n = 1 << 12;
    // The inverse of a known odd factor, by Newton's iteration: an attack on a plain multiplicative
    // hash multiplies by it.
    let inverse = (0..6).fold(ODD, |x, _| x.wrapping_mul(2u64.wrapping_sub(ODD.wrapping_mul(x))));
    assert_eq!(inverse.wrapping_mul(ODD), 1);
    for seed in 0..8 {
        for shift in [0, 8, 20, 32, 44, 52] {
            assert!(worst_bucket(seed, n, |at| at << shift) <= 16, "{seed} {shift}");
            let chosen = |at: u64| (at << shift).wrapping_mul(inverse);
            assert!(worst_bucket(seed, n, chosen) <= 16, "{seed} {shift}");
        }
    }
}
