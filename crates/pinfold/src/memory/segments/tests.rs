//! Lists of segments for the kernel, neighbours joined.

use proptest::prelude::*;

use super::*;

fn here(addr: usize, len: usize) -> Segment {
    Segment { ptr: std::ptr::without_provenance_mut(addr), len }
}

fn there(addr: u64, len: u64) -> RemoteSegment {
    RemoteSegment { addr, len }
}

#[test]
fn neighbours_are_one_segment_and_the_rest_are_not() {
    let mut list = List::new();
    for (addr, len) in [(100, 10), (110, 5), (115, 1), (117, 3), (120, 1), (100, 10), (100, 10)] {
        assert!(push(&mut list, here(addr, len)));
    }
    assert_eq!(list[..], [here(100, 16), here(117, 4), here(100, 10), here(100, 10)]);
}

#[test]
fn a_call_has_room_for_as_many_segments_however_many_they_are_made_of() {
    let mut list = List::new();
    for part in 0..6400 {
        // Hundreds that are next to each other, and a gap.
        assert!(push(&mut list, there(part * 8 + part / 100 * 8, 8)), "{part}");
    }
    assert_eq!(list.len(), SEGMENTS_A_CALL);
    // The last segment still takes an adjacent one, and no other does.
    let end = list.last().unwrap().addr + 800;
    assert!(push(&mut list, there(end, 1)));
    assert!(!push(&mut list, there(end + 2, 1)));
    assert!(!push(&mut list, there(0, 1)));
    assert_eq!(list.len(), SEGMENTS_A_CALL);
}

#[test]
fn what_a_peer_wrote_does_not_overflow() {
    for (first, next) in [
        // From the last address to the first one.
        (there(u64::MAX - 9, 10), there(0, 10)),
        (there(u64::MAX, u64::MAX), there(u64::MAX - 1, 5)),
        (there(1, u64::MAX - 1), there(u64::MAX, 2)),
    ] {
        let mut list = List::from_slice(&[first]);
        assert!(push(&mut list, next));
        assert_eq!(list[..], [first, next]);
    }
}

proptest! {
    #[test]
    fn the_bytes_are_the_same_in_the_same_order(
        parts in proptest::collection::vec((0u64..30, 1u64..9, any::<bool>()), 0..100),
    ) {
        let (mut list, mut all, mut last) = (List::new(), Vec::new(), 0);
        for (addr, len, goes_on) in parts {
            let addr = if goes_on { last } else { addr };
            last = addr + len;
            if !push(&mut list, there(addr, len)) {
                break;
            }
            all.extend(addr..last);
        }
        let listed: Vec<u64> = list.iter().flat_map(|it| it.addr..it.addr + it.len).collect();
        prop_assert_eq!(listed, all);
        prop_assert!(list.windows(2).all(|two| two[0].addr + two[0].len != two[1].addr));
    }
}
