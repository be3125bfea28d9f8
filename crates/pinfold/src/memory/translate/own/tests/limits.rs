//! Kinds of memory, and limits.
use super::*;

#[test]
fn memory_that_others_can_change_is_not_kept() {
    let Some(own) = keeping() else { return };
    let range = place(2);
    let fd = file();
    for flags in [MapFlags::SHARED, MapFlags::PRIVATE] {
        let at = ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: a place that only the test knows.
        unsafe { mm::mmap(at, range.len(), RW, flags | MapFlags::FIXED, &fd, 0) }.unwrap();
        assert_eq!(is_kept(&own, range.clone()), Err(Why::Kind));
        assert_eq!(own.counters().pins.now.entries, 0);
    }
    // The file changes under a private mapping, too.
    let file = file();
    let byte = fill(range.clone());
    assert_eq!(sent(&own, &file, range.clone()), byte);
    // Private memory beside it is kept, and its union with the other is not.
    let more = range.end..range.end + 2 * PAGE;
    map(more.clone());
    fill(more.clone());
    until_kept(&own, more.clone());
    assert_eq!(is_kept(&own, range.start..more.end), Err(Why::Kind));
    drop(own);
    unmap(range.start..more.end);
}

#[test]
fn what_another_watches_is_not_kept() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    let other = Reader::new(Watch::new().unwrap()).unwrap();
    other.watch().watch(range.start + PAGE..range.start + 2 * PAGE).unwrap();
    let file = file();
    for _ in 0..3 {
        let byte = fill(range.clone());
        assert_eq!(is_kept(&own, range.clone()), Err(Why::Busy));
        assert_eq!(sent(&own, &file, range.clone()), byte);
    }
    until_kept(&own, range.start + 2 * PAGE..range.end);
    drop(other);
    until_kept(&own, range.clone());
    drop(own);
    unmap(range);
}

#[test]
fn what_is_not_there_is_refused() {
    let own = memory(1 << 20);
    if own.standing().by == PinnedBy::Nothing {
        return;
    }
    let range = place(2);
    map(range.start..range.start + PAGE);
    let begin = |start: usize, len: usize| own.begin(start as u64, len as u64).unwrap_err();
    assert_eq!(begin(range.start, 2 * PAGE), NoPin::Refused(Refused::NotMapped));
    assert_eq!(begin(range.start, 0), NoPin::Invalid);
    assert_eq!(begin(range.start, (1 << 20) + 1), NoPin::TooLarge);
    assert_eq!(begin(usize::MAX - 5, 20), NoPin::Invalid);
    let lavish = memory(1 << 40);
    if lavish.standing().by == PinnedBy::Ring {
        assert_eq!(lavish.begin(range.start as u64, 1 << 30).unwrap_err(), NoPin::TooLarge);
    }
    assert_eq!(own.counters().pins.now.entries, 0);
    unmap(range.start..range.start + PAGE);
}

/// Mappings that begin in a range.
fn mappings(range: &Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let within = |line: &&str| {
        let start = line.split('-').next().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        start.is_some_and(|start| range.contains(&start))
    };
    maps.lines().filter(within).count()
}

#[test]
fn what_is_watched_without_being_kept_has_bounds() {
    let Some(_) = keeping() else { return };
    let budget = Budget { entries_max: 8, ..Budget::of_bytes(1 << 22) };
    let own = OwnMemory::new(budget).unwrap();
    let range = mapped(64);
    fill(range.clone());
    assert_eq!(mappings(&range), 1);
    // Every other page, so that none is merged.
    for page in range.clone().step_by(2 * PAGE) {
        until_kept(&own, page..page + PAGE);
    }
    // 8 are kept, and one more may have been on its way out.
    let mappings = mappings(&range);
    assert!((16..=19).contains(&mappings), "{mappings}");
    // Those that are not any more are watched anew when they come again.
    let file = file();
    for page in range.clone().step_by(2 * PAGE) {
        until_kept(&own, page..page + PAGE);
        map(page..page + PAGE);
        let byte = fill(page..page + PAGE);
        assert_eq!(sent(&own, &file, page..page + PAGE), byte);
    }
    drop(own);
    unmap(range);
}

/// Memory that was evicted stays watched, and its changes meanwhile are known when it comes again.
#[test]
fn what_is_evicted_and_changed_is_watched_anew() {
    let Some(own) = keeping() else { return };
    let (range, file) = (mapped(5), file());
    let page = range.start + 2 * PAGE..range.start + 3 * PAGE;
    let big = mapped(1024);
    for round in 0..6 {
        let byte = fill(range.clone());
        until_kept(&own, page.clone());
        assert_eq!(sent(&own, &file, page.clone()), byte);
        // The budget is 4 MiB.
        fill(big.clone());
        until_kept(&own, big.clone());
        assert_eq!(mappings(&range), 3, "it is watched no more");
        if round % 2 == 0 {
            map(range.clone());
        }
        let byte = fill(range.clone());
        until_kept(&own, page.clone());
        assert_eq!(sent(&own, &file, page.clone()), byte);
        // Changes of it are told again.
        map(range.clone());
        let byte = fill(range.clone());
        assert_eq!(sent(&own, &file, page.clone()), byte);
    }
    drop(own);
    unmap(big);
    unmap(range);
}

#[test]
fn overlapping_areas_stay_watched() {
    let Some(own) = keeping() else { return };
    let (range, file) = (mapped(8), file());
    fill(range.clone());
    let part = |from: usize, to: usize| range.start + from * PAGE..range.start + to * PAGE;
    // The first one is held while it is taken out of reach, and its place pinned anew.
    until_kept(&own, part(0, 4));
    let hold = own.begin(range.start as u64, 4 * PAGE as u64).unwrap();
    map(part(0, 4));
    fill(part(0, 8));
    until_kept(&own, part(0, 4));
    // Its end must not end the watch of the second one.
    own.end(hold);
    map(part(0, 4));
    let byte = fill(part(0, 4));
    assert_eq!(sent(&own, &file, part(0, 4)), byte);
    drop(own);
    unmap(range);
}
