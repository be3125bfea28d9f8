//! Policies against cases worked out by hand, and against plain versions.

use pinfold::translate::pincache::{Clock, Lru};
use proptest::prelude::*;

use super::*;
use crate::models::pm::pinning::Pinning;

/// The hits of a trace of areas of a page, through the library's cache.
fn hits_of<E: Evict>(trace: &[u64], areas: u64, evict: E) -> u64 {
    let mut pinning = Pinning::new(areas, evict, false).unwrap();
    for &area in trace {
        pinning.transfer(area * 4096, 4096).unwrap();
    }
    pinning.counters().hits
}

/// The position of the next use of each transfer's area.
fn nexts(trace: &[u64]) -> Vec<u64> {
    let next = |at: usize| trace[at + 1..].iter().position(|area| *area == trace[at]);
    (0..trace.len()).map(|at| next(at).map_or(u64::MAX, |n| (at + 1 + n) as u64)).collect()
}

/// The same with a policy that is told, which hits are `true`.
fn told<P: Policy>(trace: &[u64], areas: u64, policy: P) -> Vec<bool> {
    let (driver, told) = Driver::new(policy);
    let mut pinning = Pinning::new(areas, told, false).unwrap();
    let all = trace.iter().zip(nexts(trace)).map(|(&area, next)| {
        driver.upcoming(area * 4096, next);
        let is_hit = pinning.is_hit(area * 4096, 4096).unwrap();
        if is_hit {
            driver.hit(area * 4096);
        }
        is_hit
    });
    all.collect()
}

fn count(hits: &[bool]) -> u64 {
    hits.iter().filter(|is_hit| **is_hit).count() as u64
}

#[test]
fn belady_keeps_what_is_used_next() {
    // Belady's own kind of example: three areas, of which the one that is used last goes.
    let trace = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
    // The page-reference string of Silberschatz's *Operating System Concepts*: 9 faults.
    assert_eq!(count(&told(&trace, 3, Belady::default())), 20 - 9);
    assert_eq!(count(&told(&trace, 3, Fifo::default())), 20 - 15);
    assert_eq!(hits_of(&trace, 3, Lru::default()), 20 - 12);
}

#[test]
fn sieve_passes_what_was_used() {
    // 1 is used again, so the hand passes it and 2 goes for 4; then 3 for 5, where the hand is.
    let trace = [1, 2, 3, 1, 4, 1, 5, 1, 2];
    let hits = told(&trace, 3, Sieve::default());
    assert_eq!(hits, [false, false, false, true, false, true, false, true, false]);
}

#[test]
fn s3_fifo_lets_a_scan_go_by() {
    // 1 and 2 are used three times each; of the scan behind them nothing is used again.
    let mut trace = vec![1, 2, 1, 2, 1, 2];
    trace.extend(10..40);
    trace.extend([1, 2]);
    let hits = told(&trace, 10, S3Fifo::new(10));
    assert_eq!(hits[trace.len() - 2..], [true, true]);
    assert_eq!(hits_of(&trace, 10, Lru::default()), 4);
    // An area that comes back while its address is remembered goes to the main queue.
    let back = [1, 2, 3, 4, 5, 1, 6, 7, 8, 9, 1];
    let hits = told(&back, 4, S3Fifo::new(4));
    assert_eq!((count(&hits), hits[back.len() - 1]), (1, true));
    assert_eq!(hits_of(&back, 4, Lru::default()), 0);
}

/// The hits of a cache that looks through all of its areas for the one with the least `key`, which
/// is of area, time of its pinning, time of its last use, position.
fn naive(trace: &[u64], areas: usize, key: impl Fn(u64, usize, usize, usize) -> i64) -> u64 {
    let mut pinned: Vec<(u64, usize, usize)> = Vec::new();
    let mut hits = 0;
    for (at, &area) in trace.iter().enumerate() {
        if let Some(found) = pinned.iter_mut().find(|found| found.0 == area) {
            found.2 = at;
            hits += 1;
            continue;
        }
        if pinned.len() == areas {
            let keys = pinned.iter().map(|&(area, since, used)| key(area, since, used, at));
            let least = keys.enumerate().min_by_key(|(_, key)| *key).unwrap().0;
            pinned.remove(least);
        }
        pinned.push((area, at, at));
    }
    hits
}

proptest! {
    #[test]
    fn policies_are_as_plain_versions(
        trace in prop::collection::vec(0u64..12, 1..200),
        areas in 1u64..9,
    ) {
        let size = areas as usize;
        let next = |area, at: usize| trace[at..].iter().position(|it| *it == area);
        let belady = naive(&trace, size, |area, _, _, at| {
            -next(area, at).map_or(i64::MAX / 2, |next| next as i64)
        });
        prop_assert_eq!(count(&told(&trace, areas, Belady::default())), belady);
        let fifo = naive(&trace, size, |_, since, _, _| since as i64);
        prop_assert_eq!(count(&told(&trace, areas, Fifo::default())), fifo);
        let lru = naive(&trace, size, |_, _, used, _| used as i64);
        prop_assert_eq!(hits_of(&trace, areas, Lru::default()), lru);
        // Nobody hits more often than the optimum.
        prop_assert!(count(&told(&trace, areas, Sieve::default())) <= belady);
        prop_assert!(count(&told(&trace, areas, S3Fifo::new(size))) <= belady);
        prop_assert!(hits_of(&trace, areas, Clock::default()) <= belady);
        prop_assert!(lru <= belady && fifo <= belady);
    }
}
