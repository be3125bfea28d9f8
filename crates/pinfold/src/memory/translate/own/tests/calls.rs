//! After each call that changes memory, a transfer from the address carries the new bytes.
use std::os::fd::AsFd;

use super::*;

/// Transfers, changes memory, and transfers again: the bytes that are there now come.
fn after(what: &str, own: &OwnMemory, range: Range<usize>, change: impl Fn()) {
    let file = file();
    for round in 0..20 {
        let one = fill(range.clone());
        until_kept(own, range.clone());
        assert_eq!(sent(own, &file, range.clone()), one);
        change();
        // The byte that is there without a touch of ours, then the one written.
        // SAFETY: memory of the test's.
        let there = unsafe { ptr::with_exposed_provenance::<u8>(range.start).read_volatile() };
        assert_eq!(sent(own, &file, range.clone()), there, "{what}, round {round}");
        let two = fill(range.clone());
        assert_eq!(sent(own, &file, range.clone()), two, "{what}, round {round}");
        assert_eq!(sent(own, &file, range.clone()), two, "{what}, round {round}");
    }
}

#[test]
fn unmapped_and_mapped_again() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    after("munmap and mmap", &own, range.clone(), || {
        unmap(range.clone());
        map(range.clone());
    });
    after("MAP_FIXED over", &own, range.clone(), || map(range.clone()));
    let counters = own.counters();
    assert!(counters.events >= 40 && counters.pins.hits >= 40, "{counters:?}");
    drop(own);
    unmap(range);
}

#[test]
fn moved_away_and_onto() {
    let Some(own) = keeping() else { return };
    let (range, other) = (mapped(4), place(4));
    after("mremap away, and others there", &own, range.clone(), || {
        remap(range.clone(), other.clone(), MremapFlags::empty());
        map(range.clone());
    });
    after("mremap onto", &own, range.clone(), || {
        map(other.clone());
        fill(other.clone());
        remap(other.clone(), range.clone(), MremapFlags::empty());
    });
    after("mremap of one that is kept onto one that is kept", &own, range.clone(), || {
        map(other.clone());
        fill(other.clone());
        let _ = is_kept(&own, other.clone());
        remap(other.clone(), range.clone(), MremapFlags::empty());
    });
    after("mremap that leaves a shell", &own, range.clone(), || {
        remap(range.clone(), other.clone(), MremapFlags::DONTUNMAP);
    });
    drop(own);
    unmap(range);
    unmap(other);
}

#[test]
fn discarded() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    for advice in [Advice::LinuxDontNeed, Advice::LinuxFree] {
        after(&format!("{advice:?}"), &own, range.clone(), || advise(range.clone(), advice));
    }
    drop(own);
    unmap(range);
}

#[test]
fn discarded_by_a_thread_that_is_still_at_it() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    let file = file();
    fill(range.clone());
    for _ in 0..200 {
        until_kept(&own, range.clone());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| advise(range.clone(), Advice::LinuxDontNeed));
            // Pins in between.
            while !thread.is_finished() {
                let _ = is_kept(&own, range.clone());
            }
        });
        let byte = fill(range.clone());
        assert_eq!(sent(&own, &file, range.clone()), byte);
    }
    drop(own);
    unmap(range);
}

#[test]
fn neighbours_stay_kept() {
    let Some(own) = keeping() else { return };
    let range = mapped(12);
    let (one, two) = (range.start..range.start + 4 * PAGE, range.start + 8 * PAGE..range.end);
    for part in [&one, &two] {
        fill(part.clone());
        until_kept(&own, part.clone());
    }
    map(one.clone());
    let before = own.counters().pins;
    is_kept(&own, two.clone()).unwrap();
    let after = own.counters().pins;
    assert_eq!((after.pins, after.hits), (before.pins, before.hits + 1));
    drop(own);
    unmap(range);
}

#[test]
fn what_is_in_flight_keeps_its_pages() {
    let Some(own) = keeping() else { return };
    let range = mapped(2);
    let byte = fill(range.clone());
    until_kept(&own, range.clone());
    let hold = own.begin(range.start as u64, range.len() as u64).unwrap();
    map(range.clone());
    let new = fill(range.clone());
    let file = file();
    assert_eq!(sent(&own, &file, range.clone()), new);
    assert_eq!(own.write_out(&hold, file.as_fd(), 0).unwrap(), range.len());
    let mut found = [0];
    rustix::io::pread(&file, &mut found, 0).unwrap();
    assert_eq!(found[0], byte);
    own.end(hold);
    assert_eq!(own.counters().pins.now.entries, 1);
    drop(own);
    unmap(range);
}

fn status_of(pid: rustix::process::Pid) -> Option<i32> {
    use rustix::process::{WaitOptions, waitpid};
    waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap().1.exit_status()
}

#[test]
fn a_child_is_told_so_and_disturbs_nobody() {
    let Some(own) = keeping() else { return };
    let range = mapped(4);
    let file = file();
    let byte = fill(range.clone());
    until_kept(&own, range.clone());
    let (start, len) = (range.start as u64, range.len() as u64);
    let hold = own.begin(start, len).unwrap();
    let (mut kept, mut held) = (Some(own), Some(hold));
    let child = || {
        let (Some(own), Some(hold)) = (kept.take(), held.take()) else { return 9 };
        fill(range.clone());
        let refused = own.begin(start, len).unwrap_err() == NoPin::Refused(Refused::Child)
            && own.begin_exact(start, len).unwrap_err() == NoPin::Refused(Refused::Child)
            && own
                .write_out(&hold, file.as_fd(), 0)
                .is_err_and(|error| error.reason() == pin::Reason::Child)
            && own.budget().is_none()
            && own.cost().is_none();
        let _ = own.counters();
        own.end(hold);
        unmap(range.clone());
        drop(own);
        i32::from(!refused)
    };
    // SAFETY: the child drops its copies; the C library keeps the allocator usable.
    let pid = unsafe { pinfold_sys::child::spawn(child) }.unwrap();
    // The parent's pages are its own still, and the bytes it writes now are sent.
    let (Some(own), Some(hold)) = (kept, held) else { panic!() };
    assert_eq!(sent(&own, &file, range.clone()), byte);
    assert_eq!(status_of(pid), Some(0));
    let byte = fill(range.clone());
    assert_eq!(sent(&own, &file, range.clone()), byte);
    own.end(hold);
    is_kept(&own, range.clone()).unwrap();
    drop(own);
    unmap(range);
}

/// The kernel's facts that the module stands on.
#[test]
fn locked_memory_cannot_be_discarded() {
    let range = mapped(1);
    fill(range.clone());
    let at = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: memory of the test's.
    let said = unsafe {
        mm::mlock(at, PAGE).unwrap();
        mm::madvise(at, PAGE, Advice::LinuxDontNeed)
    };
    assert_eq!(said, Err(Errno::INVAL));
    unmap(range);
}
