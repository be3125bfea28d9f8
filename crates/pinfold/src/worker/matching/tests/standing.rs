//! Receives that take more than one message.

use super::*;

#[test]
fn a_standing_receive_takes_every_message_until_it_is_withdrawn() {
    let mut it = matcher();
    it.post(peer(0).into(), 7.into(), 1);
    let standing = it.post_standing(Source::Any, 7.into(), 2);
    it.post(peer(0).into(), 7.into(), 3);
    // The earlier one is first, and the later one does not overtake.
    assert_eq!(it.arrive(peer(0), 7), Some(1));
    for _ in 0..3 {
        assert!(it.would_take(peer(1), 7) && !it.would_take(peer(1), 8));
        assert_eq!(it.arrive(peer(0), 7), Some(2));
        assert_eq!(it.arrive_again(peer(1), 7), Some(2));
    }
    assert_eq!(it.posted_len(), 2);
    assert_eq!(it.cancel(standing), Some(2));
    assert_eq!(it.cancel(standing), None);
    assert_eq!(it.arrive(peer(0), 7), Some(3));
    assert_eq!(it.arrive(peer(0), 7), None);
}

#[test]
fn a_standing_receive_keeps_its_place_in_an_index() {
    let mut it = matcher();
    for at in 0..50 {
        it.post(peer(0).into(), at.into(), at);
    }
    let standing = it.post_standing(Source::Any, TagMatch::any(), 100);
    for at in 0..50 {
        it.post(peer(0).into(), at.into(), 200 + at);
    }
    for at in (0..50).rev() {
        assert_eq!(it.arrive(peer(0), at), Some(at));
        assert_eq!(it.arrive(peer(0), at), Some(100));
        assert_eq!(it.arrive(peer(1), at), Some(100));
    }
    assert_eq!(it.drop_posted(|from| from == Source::Any), [100]);
    assert_eq!(it.cancel(standing), None);
    assert_eq!(it.arrive(peer(0), 3), Some(203));
}
