//! The segments of one call.

use proptest::prelude::*;

use super::*;

fn part((here, there, len): (usize, u64, usize)) -> Part {
    Part { here: Segment { ptr: std::ptr::without_provenance_mut(here), len }, there }
}

/// The source and destination of each byte, in the order of all calls.
fn carried(parts: &[Part]) -> (Vec<(u64, u64)>, usize) {
    let (mut all, mut calls, mut first, mut skip) = (Vec::new(), 0, 0, 0);
    loop {
        let (here, there) = batch(&parts[first..], skip);
        if here.is_empty() {
            return (all, calls);
        }
        calls += 1;
        let here = here.iter().flat_map(|it| it.ptr.addr()..it.ptr.addr() + it.len);
        let there = there.iter().flat_map(|it| it.addr..it.addr + it.len);
        let before = all.len();
        all.extend(here.map(|byte| byte as u64).zip(there));
        let mut done = all.len() - before;
        assert!((1..=BYTES_A_CALL).contains(&done));
        while let Some(part) = parts.get(first)
            && done >= part.here.len - skip
        {
            done -= part.here.len - skip;
            (first, skip) = (first + 1, 0);
        }
        skip += done;
    }
}

#[test]
fn parts_next_to_each_other_go_in_one_call() {
    let calls = |there: u64, here: usize| {
        let parts: Vec<Part> =
            (0..1000).map(|at| part((5000 + at * here, 9000 + at as u64 * there, 8))).collect();
        carried(&parts).1
    };
    assert_eq!(calls(8, 8), 1);
    // 64 segments a call on the side that needs them.
    assert_eq!(calls(9, 8), 16);
    assert_eq!(calls(8, 9), 16);
    assert_eq!(calls(9, 9), 16);
}

#[test]
fn no_call_is_longer_than_others_may_have_to_wait() {
    let parts = [(0, 0, BYTES_A_CALL), (BYTES_A_CALL, BYTES_A_CALL as u64, BYTES_A_CALL + 1)];
    assert_eq!(carried(&parts.map(part)).1, 3);
}

proptest! {
    #[test]
    fn every_byte_goes_where_it_belongs(
        raw in proptest::collection::vec((0usize..2000, 0u64..2000, 0usize..9, 0u8..4), 0..300),
    ) {
        let (mut parts, mut wanted, mut last) = (Vec::new(), Vec::new(), (0, 0));
        for (here, there, len, kind) in raw {
            let here = if kind & 1 == 0 { here } else { last.0 };
            let there = if kind & 2 == 0 { there } else { last.1 };
            last = (here + len, there + len as u64);
            parts.push(part((here, there, len)));
            wanted.extend((0..len as u64).map(|byte| (here as u64 + byte, there + byte)));
        }
        prop_assert_eq!(carried(&parts).0, wanted);
    }
}
