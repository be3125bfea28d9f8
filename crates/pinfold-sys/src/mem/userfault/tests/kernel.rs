//! The changes of memory that the kernel tells of, and those that it does not.
use std::{
    os::fd::AsFd,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};

use super::*;

fn until(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !what() {
        assert!(Instant::now() < end, "nothing came");
        std::thread::yield_now();
    }
}

fn readable(watch: &Watch) {
    let mut wait = [PollFd::new(watch, PollFlags::IN)];
    poll(&mut wait, None).unwrap();
}

#[test]
fn watched_memory_is_ordinary_memory() {
    let Some(watch) = watch() else { return };
    let range = mapped(16);
    watch.watch(range.clone()).unwrap();
    watch.watch(range.clone()).unwrap();
    fill(range.clone(), 9);
    assert_eq!(peek(range.start), 9);
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    fill(range.clone(), 7);
    assert_eq!(watch.events(|_| {}), Ok(0));
    watch.unwatch(range.clone()).unwrap();
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Replaced));
    // Nobody waits for an event now.
    unmap(range);
}

#[test]
fn who_unmaps_waits_until_that_is_read() {
    let Some(watch) = watch() else { return };
    let (range, other) = (mapped(4), mapped(1));
    watch.watch(range.clone()).unwrap();
    watch.watch(other.clone()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            unmap(range.clone());
            done.store(true, Ordering::SeqCst);
        });
        readable(&watch);
        // It is gone already, and the kernel gives the place to others; memory that is watched
        // elsewhere is called pending, too.
        map_over(range.clone());
        for _ in 0..100 {
            assert_eq!(watch.validate(range.clone()), Ok(Validity::Pending));
            assert_eq!(watch.validate(other.clone()), Ok(Validity::Pending));
            assert_eq!(watch.is_quiet(), Ok(false));
            std::thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst));
        let mut events = Vec::new();
        assert_eq!(watch.events(|event| events.push(event)), Ok(1));
        assert_eq!(events, [Event::Unmapped(range.clone())]);
        until(|| done.load(Ordering::SeqCst));
        assert_eq!(watch.is_quiet(), Ok(true));
        assert_eq!(watch.validate(range.clone()), Ok(Validity::Replaced));
        assert_eq!(watch.validate(other.clone()), Ok(Validity::Valid));
    });
    drop(watch);
    unmap(range);
    unmap(other);
}

#[test]
fn a_map_over_is_an_unmap() {
    let Some(watch) = watch() else { return };
    let range = mapped(8);
    watch.watch(range.clone()).unwrap();
    let middle = range.start + 2 * PAGE..range.start + 3 * PAGE;
    let events = heard(&watch, || map_over(middle.clone()));
    assert_eq!(events, [Event::Unmapped(middle.clone())]);
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Replaced));
    assert_eq!(watch.validate(range.start..middle.start), Ok(Validity::Valid));
    drop(watch);
    unmap(range);
}

/// Not noticed by the validator, only by the event.
#[test]
fn a_hole_in_the_middle_is_valid_but_told() {
    let Some(watch) = watch() else { return };
    let range = mapped(8);
    watch.watch(range.clone()).unwrap();
    let middle = range.start + 2 * PAGE..range.start + 3 * PAGE;
    let events = heard(&watch, || unmap(middle.clone()));
    assert_eq!(events, [Event::Unmapped(middle.clone())]);
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    assert_eq!(watch.validate(middle.clone()), Ok(Validity::Replaced));
    // Somebody else's memory in the hole is noticed.
    map_over(middle.clone());
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Replaced));
    drop(watch);
    unmap(range);
}

/// The event comes first, the discard only after it was read, and the validator notices nothing.
#[test]
fn a_discard_comes_after_its_event() {
    let Some(watch) = watch() else { return };
    let range = mapped(4);
    watch.watch(range.clone()).unwrap();
    for advice in [Advice::LinuxDontNeed, Advice::LinuxFree] {
        fill(range.clone(), 5);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| advise(range.clone(), advice));
            readable(&watch);
            assert_eq!(peek(range.start), 5, "{advice:?}");
            assert_eq!(watch.validate(range.clone()), Ok(Validity::Pending));
            let mut events = Vec::new();
            watch.events(|event| events.push(event)).unwrap();
            assert_eq!(events, [Event::Removed(range.clone())]);
            thread.join().unwrap();
        });
        assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
        if advice == Advice::LinuxDontNeed {
            assert_eq!(peek(range.start), 0);
        }
    }
    drop(watch);
    unmap(range);
}

#[test]
fn a_remap_takes_the_watch_along() {
    let Some(watch) = watch() else { return };
    let (from, to) = (mapped(4), mapped(4));
    watch.watch(from.clone()).unwrap();
    let events = heard(&watch, || remap(from.clone(), to.clone(), 0));
    let moved = Event::Remapped { from: from.start, to: to.start, len: to.len() };
    assert!(events.contains(&moved), "{events:?}");
    assert_eq!(watch.validate(from.clone()), Ok(Validity::Replaced));
    assert_eq!(watch.validate(to.clone()), Ok(Validity::Valid));
    // Memory moved over other watched memory: both valid before and after, so only events tell.
    let third = mapped(4);
    watch.watch(third.clone()).unwrap();
    let events = heard(&watch, || remap(to.clone(), third.clone(), 0));
    assert!(
        events.iter().any(|event| matches!(event, Event::Unmapped(_)) && event.concerns(&third))
    );
    assert!(
        events
            .iter()
            .any(|event| matches!(event, Event::Remapped { .. }) && event.concerns(&third))
    );
    assert_eq!(watch.validate(third.clone()), Ok(Validity::Valid));
    drop(watch);
    unmap(third);
}

#[test]
fn a_mapping_of_which_part_is_watched_does_not_move_as_a_whole() {
    let Some(watch) = watch() else { return };
    let (from, to) = (mapped(4), mapped(4));
    watch.watch(from.start + PAGE..from.start + 2 * PAGE).unwrap();
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    heard(&watch, || {
        let at = ptr::with_exposed_provenance_mut(from.start);
        let to_at = ptr::with_exposed_provenance_mut::<libc::c_void>(to.start);
        // SAFETY: both ranges are the test's.
        let done = unsafe { libc::mremap(at, from.len(), to.len(), flags, to_at) };
        let error = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((done, error), (libc::MAP_FAILED, Some(libc::EFAULT)));
    });
    drop(watch);
    unmap(from);
    unmap(to);
}

/// Allocators cope with that: the C library's moves long blocks by `mremap`, and copies where it
/// must not.
#[test]
fn a_block_of_which_part_is_watched_can_still_grow() {
    let Some(watch) = watch() else { return };
    let reader = Reader::new(watch).unwrap();
    // Longer than blocks that `malloc` takes from the heap; grown until it has had to move.
    let mut block: Vec<u64> = (0..200_000).collect();
    for _ in 0..6 {
        let inside = block.as_ptr().addr().next_multiple_of(PAGE) + 3 * PAGE;
        reader.watch().watch(inside..inside + 2 * PAGE).unwrap();
        block.reserve_exact(2 * block.len());
        let len = block.len() as u64;
        block.extend(len..len + len / 2);
        assert!(block.iter().copied().eq(0..len + len / 2));
    }
}

#[test]
fn a_remap_that_leaves_a_shell_leaves_it_valid() {
    let Some(watch) = watch() else { return };
    let (from, to) = (mapped(4), mapped(4));
    watch.watch(from.clone()).unwrap();
    let events = heard(&watch, || remap(from.clone(), to.clone(), libc::MREMAP_DONTUNMAP));
    assert!(events.iter().any(|event| event.concerns(&from)), "{events:?}");
    println!("DONTUNMAP: {events:?}, old {:?}", watch.validate(from.clone()));
    assert_eq!(peek(from.start), 0);
    drop(watch);
    unmap(from);
    unmap(to);
}

#[test]
fn shrinking_growing_and_failing_remaps() {
    let Some(watch) = watch() else { return };
    let range = mapped(8);
    watch.watch(range.clone()).unwrap();
    let resize = |from: Range<usize>, len: usize, flags| {
        let at = ptr::with_exposed_provenance_mut(from.start);
        // SAFETY: the test's.
        unsafe { libc::mremap(at, from.len(), len, flags) }
    };
    let events = heard(&watch, || {
        assert_ne!(resize(range.clone(), 4 * PAGE, 0), libc::MAP_FAILED);
    });
    assert_eq!(events, [Event::Unmapped(range.start + 4 * PAGE..range.end)]);
    let left = range.start..range.start + 4 * PAGE;
    // A remap that cannot be done: afterwards all is quiet, too, which `heard` looks for.
    let events = heard(&watch, || {
        assert_eq!(resize(left.clone(), 1 << 46, libc::MREMAP_MAYMOVE), libc::MAP_FAILED);
    });
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(watch.validate(left.clone()), Ok(Validity::Valid));
    drop(watch);
    unmap(left);
}

#[test]
fn protection_is_not_told() {
    let Some(watch) = watch() else { return };
    let range = mapped(4);
    watch.watch(range.clone()).unwrap();
    let events = heard(&watch, || {
        let at = ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the test's.
        unsafe { mm::mprotect(at, 2 * PAGE, mm::MprotectFlags::empty()) }.unwrap();
    });
    assert!(events.is_empty());
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    drop(watch);
    unmap(range);
}

/// Linux 6.13.
#[test]
fn a_guard_takes_pages_away_without_a_word() {
    const MADV_GUARD_INSTALL: libc::c_int = 102;
    const MADV_GUARD_REMOVE: libc::c_int = 103;
    let Some(watch) = watch() else { return };
    let range = mapped(4);
    watch.watch(range.clone()).unwrap();
    let guard = |advice| {
        let at = ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the test's, which keeps no reference to it.
        unsafe { libc::madvise(at, PAGE, advice) == 0 }
    };
    let mut there = false;
    let events = heard(&watch, || there = guard(MADV_GUARD_INSTALL) && guard(MADV_GUARD_REMOVE));
    if !there {
        return crate::skip::skip("no guards in this kernel");
    }
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    assert_eq!(peek(range.start), 0);
    drop(watch);
    unmap(range);
}

#[test]
fn huge_pages_are_split_without_a_word_and_partly_unmapped_with_one() {
    let Some(watch) = watch() else { return };
    let range = mapped(2 * Pages::HUGE / PAGE);
    watch.watch(range.clone()).unwrap();
    let part = range.start + 5 * PAGE..range.start + 6 * PAGE;
    let events = heard(&watch, || {
        let at = ptr::with_exposed_provenance_mut(part.start);
        // SAFETY: the test's.
        unsafe { mm::mprotect(at, PAGE, mm::MprotectFlags::READ) }.unwrap();
    });
    assert!(events.is_empty());
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    let events = heard(&watch, || unmap(part.clone()));
    assert_eq!(events, [Event::Unmapped(part)]);
    drop(watch);
    unmap(range);
}

#[test]
fn the_break_is_watched_when_it_shrinks() {
    let Some(watch) = watch() else { return };
    // In a child of its own, for the break belongs to all of the process.
    let child = || -> Option<()> {
        let watch = Watch::new().ok()?;
        // SAFETY: nobody else in this child, which has one thread, uses the new part of the break.
        let from = unsafe { libc::sbrk(8 * PAGE as isize) }.addr().next_multiple_of(PAGE);
        let range = from..from + 4 * PAGE;
        fill(range.clone(), 1);
        watch.watch(range.clone()).ok()?;
        let events = std::thread::scope(|scope| {
            // SAFETY: as above.
            let thread = scope.spawn(|| unsafe { libc::sbrk(-(8 * PAGE as isize)) }.addr());
            let mut found = false;
            while !thread.is_finished() {
                watch.events(|event| found |= event.concerns(&range)).ok()?;
                std::thread::yield_now();
            }
            Some(found)
        })?;
        (events && watch.validate(range).ok()? == Validity::Replaced).then_some(())
    };
    drop(watch);
    // SAFETY: the C library keeps the allocator usable in children; no other lock is taken.
    let pid = unsafe { crate::child::spawn(|| i32::from(child().is_none())) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
}

#[test]
fn a_child_hears_nothing_and_disturbs_nobody() {
    let Some(watch) = watch() else { return };
    let range = mapped(4);
    watch.watch(range.clone()).unwrap();
    let child = || {
        // Not watched here: nobody waits.
        unmap(range.start..range.start + PAGE);
        let reason = |error: Error| error.reason() == Reason::Child;
        let good = watch.validate(range.clone()).is_err_and(reason)
            && watch.events(|_| {}).is_err_and(reason)
            && watch.is_quiet().is_err_and(reason)
            && watch.watch(range.clone()).is_err_and(reason)
            && watch.unwatch(range.clone()).is_err_and(reason);
        i32::from(!good)
    };
    // SAFETY: the child makes system calls and takes no lock.
    let pid = unsafe { crate::child::spawn(child) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
    assert_eq!(watch.events(|_| {}), Ok(0));
    assert_eq!(watch.validate(range.clone()), Ok(Validity::Valid));
    drop(watch);
    unmap(range);
}

/// A child with a copy of the descriptor would make everybody here wait for ever.
#[test]
fn a_dropped_watch_lets_all_go_although_a_child_has_a_copy() {
    let Some(watch) = watch() else { return };
    let (range, to) = (mapped(8), mapped(2));
    watch.watch(range.clone()).unwrap();
    let moved = range.start..range.start + 2 * PAGE;
    heard(&watch, || remap(moved.clone(), to.clone(), 0));
    let copy = watch.as_fd().try_clone_to_owned().unwrap();
    let late = range.start + 2 * PAGE..range.start + 3 * PAGE;
    std::thread::scope(|scope| {
        scope.spawn(|| unmap(late.clone()));
        readable(&watch);
        drop(watch);
    });
    unmap(range);
    unmap(to);
    drop(copy);
}

#[test]
fn kinds_of_memory() {
    let Some(watch) = watch() else { return };
    let file = crate::mem::memfd::create_sealed("pinfold-test", 4 * PAGE).unwrap();
    let shared = crate::mem::mapping::SharedMapping::map(file.as_fd(), 4 * PAGE).unwrap();
    let at = shared.as_ptr().addr();
    println!("shared: {:?}", watch.watch(at..at + 4 * PAGE));
    assert_eq!(watch.watch(at..at + 4 * PAGE).is_ok(), probe().unwrap().watch_shared);
    let own = &raw const OWN as usize / PAGE * PAGE;
    let done = watch.watch(own..own + PAGE);
    println!("a file: {done:?}");
    assert_eq!(done.is_ok(), watch.takes_any());
    if watch.takes_any() {
        assert_eq!(watch.validate(own..own + PAGE), Ok(Validity::Valid));
        watch.unwatch(own..own + PAGE).unwrap();
    }
    for bad in [1..PAGE, 0..PAGE, PAGE..PAGE, at..at + 1] {
        let error = watch.watch(bad.clone()).unwrap_err();
        assert_eq!(error.reason(), Reason::Kind, "{bad:?}");
    }
    for bad in [1..PAGE, PAGE..PAGE, at..at + 1] {
        assert_eq!(watch.unwatch(bad.clone()).unwrap_err().reason(), Reason::Kind, "{bad:?}");
    }
    watch.unwatch(0..PAGE).unwrap();
    // The stack, too.
    let here = 0u8;
    let stack = (&raw const here).addr() / PAGE * PAGE;
    watch.watch(stack..stack + PAGE).unwrap();
    assert_eq!(watch.validate(stack..stack + PAGE), Ok(Validity::Valid));
    watch.unwatch(stack..stack + PAGE).unwrap();
    watch.unwatch(at..at + 4 * PAGE).unwrap();
}

static OWN: u64 = 7;

#[test]
fn another_monitor_is_told_apart() {
    let (Some(one), Some(two)) = (watch(), watch()) else { return };
    let range = mapped(4);
    one.watch(range.start + PAGE..range.start + 2 * PAGE).unwrap();
    let error = two.watch(range.clone()).unwrap_err();
    assert_eq!(error.reason(), Reason::Busy);
    println!("{error}");
    // None of the range was registered.
    assert_eq!(two.validate(range.start..range.start + PAGE), Ok(Validity::Replaced));
    println!(
        "validated by a stranger: {:?}",
        two.validate(range.start + PAGE..range.start + 2 * PAGE)
    );
    drop(two);
    assert_eq!(one.validate(range.start + PAGE..range.start + 2 * PAGE), Ok(Validity::Valid));
    drop(one);
    unmap(range);
}

/// A call that only wants to be helpful must not wait for a page that nobody fills.
#[test]
fn what_any_userfaultfd_has_is_told_and_nothing_is_done() {
    let Some(watch) = watch() else { return };
    let claims = Claims::open().unwrap();
    let range = mapped(8);
    let (one, other) = (range.start..range.start + 4 * PAGE, range.start + 4 * PAGE..range.end);
    assert!(!claims.has(range.clone()));
    watch.watch(one.clone()).unwrap();
    assert!(claims.has(one.clone()) && !claims.has(other.clone()));
    assert!(!claims.has(other.end..other.end + PAGE), "where nothing is");
    assert!(range.step_by(PAGE).all(|at| peek(at) == 1));
    watch.unwatch(one.clone()).unwrap();
    assert!(!claims.has(one));
}
