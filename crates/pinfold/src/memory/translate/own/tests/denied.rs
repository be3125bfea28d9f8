//! Facilities that are denied. Filters are for good, so each is in a child of its own.
use super::*;

#[test]
fn every_reason_is_a_sentence_with_advice() {
    let lacks = [Lack::Denied, Lack::Absent, Lack::Memlock(0), Lack::Exhausted, Lack::Errno(5)];
    let facilities =
        [Facility::Ring, Facility::Lock, Facility::Watch, Facility::Proc, Facility::Frames];
    let all = facilities.into_iter().flat_map(|what| lacks.map(|lack| Why::Lacks(what, lack)));
    let more = [
        Why::Busy,
        Why::Kind,
        Why::Mappings,
        Why::Locking,
        Why::Restless,
        Why::Discarding,
        Why::Child,
    ];
    let said: Vec<String> = all.chain(more).map(|why| why.to_string()).collect();
    assert!(said.iter().all(|said| said.len() > 20 && !said.contains("  ")), "{said:#?}");
    let mut different = said.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), said.len());
}

#[test]
fn what_there_is_is_said() {
    let own = memory(1 << 20);
    let standing = own.standing();
    println!("{standing}");
    assert_eq!(standing.no_ring.is_none(), standing.by == PinnedBy::Ring);
    assert!(standing.no_lock.is_none() || standing.by == PinnedBy::Nothing);
    assert_eq!(own.budget().is_none(), standing.by == PinnedBy::Nothing);
    assert_eq!(own.cost().is_some_and(|cost| cost.pin_ns > 0), standing.by != PinnedBy::Nothing);
    let none = Budget { entries_max: 0, ..Budget::of_bytes(1) };
    assert_eq!(OwnMemory::new(none).unwrap_err(), BudgetError::Entries(0));
}
