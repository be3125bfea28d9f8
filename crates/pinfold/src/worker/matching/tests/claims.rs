//! Messages that are claimed: no receive finds them, and they keep their place.

use super::*;

fn arrived(it: &mut Matcher<u64, u64>, from: u32, tag: u64, value: u64) {
    assert_eq!(it.arrive(peer(from), tag), None);
    it.keep(peer(from), tag, value);
}

fn take(it: &mut Matcher<u64, u64>, tag: u64) -> Option<u64> {
    it.take(Source::Any, tag.into()).map(|(_, _, value)| value)
}

#[test]
fn claimed_messages_are_found_by_their_claims_alone() {
    for count in [3, 60] {
        let mut it = matcher();
        (0..count).for_each(|value| arrived(&mut it, 0, 7, value));
        let keys: Vec<_> = (0..count).map(|_| it.claim(Source::Any, 7.into()).unwrap()).collect();
        assert!(it.claim(Source::Any, 7.into()).is_none() && take(&mut it, 7).is_none());
        assert!(it.find(Source::Any, TagMatch::any()).is_none());
        for (value, key) in (0u64..).zip(&keys).collect::<Vec<_>>().into_iter().rev() {
            assert_eq!(it.claimed(*key).map(|(_, _, _, it)| *it), Some(value));
            assert_eq!(it.take_claimed(*key), Some((peer(0), 7, value)));
            assert_eq!(it.take_claimed(*key), None);
            assert!(it.claimed(*key).is_none());
            // A claim that is over does nothing.
            it.unclaim(*key);
        }
        assert_eq!(it.unexpected_len(), 0);
    }
}

#[test]
fn a_message_that_is_put_back_is_found_in_its_place() {
    for count in [4, 60] {
        for back in 0..count {
            let mut it = matcher();
            (0..count).for_each(|value| arrived(&mut it, 0, 7, value));
            let mut keys: Vec<_> =
                (0..count).map(|_| it.claim(Source::Any, 7.into()).unwrap()).collect();
            // In any order.
            keys.rotate_left(back as usize);
            keys.iter().for_each(|key| it.unclaim(*key));
            for value in 0..count {
                assert_eq!(take(&mut it, 7), Some(value));
            }
        }
    }
}

#[test]
fn a_claimed_message_can_be_removed() {
    let mut it = matcher();
    arrived(&mut it, 0, 7, 1);
    let stored = it.keep(peer(0), 7, 2);
    let first = it.claim(Source::Any, 7.into()).unwrap();
    let second = it.claim(Source::Any, 7.into()).unwrap();
    assert_eq!(it.remove_unexpected(stored), Some(2));
    assert_eq!(it.take_claimed(second), None);
    it.each_unexpected_of(peer(0), |value| *value = 9);
    assert_eq!(it.take_claimed(first), Some((peer(0), 7, 9)));
}

#[derive(Clone, Debug)]
enum Step {
    Keep(u32, u64),
    Claim(Source, TagMatch),
    Unclaim(usize),
    TakeClaimed(usize),
    Take(Source, TagMatch),
}

fn step() -> impl Strategy<Value = Step> {
    let source = prop_oneof![Just(Source::Any), (0..3u32).prop_map(|at| peer(at).into())];
    let tag = prop_oneof![
        (0..4u64).prop_map(TagMatch::exact),
        (0..4u64).prop_map(|tag| TagMatch::masked(tag, 1)),
        Just(TagMatch::any()),
    ];
    prop_oneof![
        4 => (0..3u32, 0..4u64).prop_map(|(from, tag)| Step::Keep(from, tag)),
        2 => (source.clone(), tag.clone()).prop_map(|(from, tag)| Step::Claim(from, tag)),
        1 => any::<usize>().prop_map(Step::Unclaim),
        1 => any::<usize>().prop_map(Step::TakeClaimed),
        2 => (source, tag).prop_map(|(from, tag)| Step::Take(from, tag)),
    ]
}

proptest! {
    /// As over a plain list in which claimed messages are marked.
    #[test]
    fn claims_do_as_marks_in_a_list_do(steps in prop::collection::vec(step(), 1..300)) {
        let mut it = matcher();
        let mut list: Vec<(PeerId, u64, u64, bool)> = Vec::new();
        let mut claims = Vec::new();
        for (value, step) in (0u64..).zip(steps) {
            let locate = |list: &[(PeerId, u64, u64, bool)], from: Source, tag: TagMatch| {
                list.iter().position(|&(peer, it, _, is_claimed)| {
                    !is_claimed && from.matches(peer) && tag.matches(it)
                })
            };
            match step {
                Step::Keep(from, tag) => {
                    arrived(&mut it, from, tag, value);
                    list.push((peer(from), tag, value, false));
                }
                Step::Claim(from, tag) => {
                    let at = locate(&list, from, tag);
                    let key = it.claim(from, tag);
                    prop_assert_eq!(at.is_some(), key.is_some());
                    if let (Some(at), Some(key)) = (at, key) {
                        list[at].3 = true;
                        claims.push((key, list[at].2));
                    }
                }
                Step::Unclaim(at) if !claims.is_empty() => {
                    let (key, value) = claims.swap_remove(at % claims.len());
                    it.unclaim(key);
                    list.iter_mut().filter(|it| it.2 == value).for_each(|it| it.3 = false);
                }
                Step::TakeClaimed(at) if !claims.is_empty() => {
                    let (key, value) = claims.swap_remove(at % claims.len());
                    prop_assert_eq!(it.take_claimed(key).map(|it| it.2), Some(value));
                    list.retain(|it| it.2 != value);
                }
                Step::Unclaim(_) | Step::TakeClaimed(_) => {}
                Step::Take(from, tag) => {
                    let expected = locate(&list, from, tag).map(|at| list.remove(at));
                    let taken = it.take(from, tag);
                    let expected = expected.map(|(peer, tag, value, _)| (peer, tag, value));
                    prop_assert_eq!(taken, expected);
                }
            }
            prop_assert_eq!(it.unexpected_len(), list.len());
        }
    }
}
