//! The reader thread.
use super::*;

fn reader() -> Option<Reader> {
    Some(Reader::new(watch()?).unwrap())
}

#[test]
fn what_is_heard_changes_the_stamp_before_the_caller_returns() {
    let Some(reader) = reader() else { return };
    let mut stamp = reader.take(|_| {});
    for _ in 0..200 {
        let range = mapped(2);
        reader.watch().watch(range.clone()).unwrap();
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|event| panic!("{event:?}"));
        }
        unmap(range.clone());
        assert!(!reader.is_unchanged(stamp));
        assert!(!reader.holds(stamp).unwrap());
        let mut events = Vec::new();
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|event| events.push(event));
        }
        assert_eq!(events, [Event::Unmapped(range)]);
    }
    assert!(!reader.is_unchanged(Stamp::NEVER));
}

#[test]
fn more_events_than_fit_are_lost_with_a_word() {
    let Some(reader) = reader() else { return };
    let range = mapped(1);
    reader.watch().watch(range.clone()).unwrap();
    for _ in 0..1100 {
        advise(range.clone(), Advice::LinuxDontNeed);
    }
    let mut events = Vec::new();
    let mut stamp = Stamp::NEVER;
    while !reader.holds(stamp).unwrap() {
        stamp = reader.take(|event| events.push(event));
    }
    assert_eq!(events[0], Event::Lost);
    assert!((1025..1100).contains(&events.len()), "{}", events.len());
    drop(reader);
    unmap(range);
}

/// Nobody hangs, however it ends.
#[test]
fn a_dropped_reader_leaves_nobody_waiting() {
    for _ in 0..20 {
        let Some(reader) = reader() else { return };
        let range = mapped(64);
        reader.watch().watch(range.clone()).unwrap();
        std::thread::scope(|scope| {
            let work = || {
                for page in range.clone().step_by(PAGE) {
                    unmap(page..page + PAGE);
                }
            };
            scope.spawn(work);
            drop(reader);
        });
    }
}

#[test]
fn a_child_drops_it_without_waiting() {
    let Some(reader) = reader() else { return };
    let range = mapped(2);
    reader.watch().watch(range.clone()).unwrap();
    let mut kept = Some(reader);
    let child = || {
        let reader = kept.take();
        let refused = reader.as_ref().is_some_and(|reader| {
            let stamp = reader.take(|_| {});
            reader.holds(stamp).is_err_and(|error| error.reason() == Reason::Child)
        });
        drop(reader);
        i32::from(!refused)
    };
    // SAFETY: the child drops what it has a copy of; the C library keeps the allocator usable.
    let pid = unsafe { crate::child::spawn(child) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
    // It still works here.
    unmap(range);
    drop(kept);
}

/// Memory that another thread gets anew at the same place, while who unmapped it has not returned
/// yet, must never be taken for the old one.
#[test]
fn memory_given_anew_before_the_unmap_returns_is_noticed() {
    let Some(reader) = reader() else { return };
    let range = mapped(1);
    let (mut told, rounds) = (0, 300);
    for _ in 0..rounds {
        map_over(range.clone());
        fill(range.clone(), 1);
        reader.watch().watch(range.clone()).unwrap();
        let mut stamp = Stamp::NEVER;
        while !reader.holds(stamp).unwrap() {
            stamp = reader.take(|_| {});
        }
        std::thread::scope(|scope| {
            scope.spawn(|| unmap(range.clone()));
            let at = ptr::with_exposed_provenance_mut(range.start);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: takes the place only once it is free.
            while unsafe { mm::mmap_anonymous(at, PAGE, RW, flags) }.is_err() {
                std::hint::spin_loop();
            }
            // From here on it is new memory.
            assert!(!reader.holds(stamp).unwrap());
            told += 1;
        });
    }
    assert_eq!(told, rounds);
    drop(reader);
    unmap(range);
}
