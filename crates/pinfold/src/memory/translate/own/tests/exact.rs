//! The exact form, and the finds of a blind one.
use super::*;

/// A thread gets the addresses anew while the thread that unmapped them has not returned.
#[test]
fn memory_given_anew_before_the_unmap_returns() {
    let Some(own) = keeping() else { return };
    let (range, file) = (mapped(1), file());
    for _ in 0..300 {
        map(range.clone());
        fill(range.clone());
        until_kept(&own, range.clone());
        std::thread::scope(|scope| {
            scope.spawn(|| unmap(range.clone()));
            let at = ptr::with_exposed_provenance_mut(range.start);
            let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
            // SAFETY: takes the place only once it is free.
            while unsafe { mm::mmap_anonymous(at, PAGE, RW, flags) }.is_err() {
                std::hint::spin_loop();
            }
            // From here on it is new memory, empty.
            let hold = own.begin_exact(range.start as u64, PAGE as u64).unwrap();
            let done = own.write_out(&hold, std::os::fd::AsFd::as_fd(&file), 0).unwrap();
            own.end(hold);
            let mut found = [9; PAGE];
            rustix::io::pread(&file, &mut found, 0).unwrap();
            assert_eq!((done, found), (PAGE, [0; PAGE]));
        });
    }
    drop(own);
    unmap(range);
}

#[test]
fn what_is_exact_is_a_hit_too() {
    let Some(own) = keeping() else { return };
    let range = mapped(1);
    fill(range.clone());
    until_kept(&own, range.clone());
    let before = own.counters().pins;
    for _ in 0..10 {
        let hold = own.begin_exact(range.start as u64, 1).unwrap();
        assert_eq!(hold.kept(), Ok(()));
        own.end(hold);
    }
    assert_eq!(own.counters().pins.pins, before.pins);
    drop(own);
    unmap(range);
}

#[test]
fn the_blind_send_what_was() {
    if keeping().is_none() {
        return;
    }
    let own = OwnMemory::<Blind>::with_validation(Budget::of_bytes(1 << 22)).unwrap();
    let (range, file) = (mapped(2), file());
    let old = fill(range.clone());
    assert_eq!(sent(&own, &file, range.clone()), old);
    map(range.clone());
    let new = fill(range.clone());
    assert_ne!(sent(&own, &file, range.clone()), new);
    drop(own);
    unmap(range);
}
