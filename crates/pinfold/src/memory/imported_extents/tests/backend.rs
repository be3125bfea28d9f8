#![allow(unsafe_code)]
//! The back end by itself: a file it maps is there, and gone when it was unmapped.

use std::io::{Seek, SeekFrom, Write};

use rustix::io::Errno;

use super::*;
use crate::{
    Error,
    memory::translate::pincache::{Area, Handle, NoPin, Pinner, Refused},
};

fn backend() -> Backend {
    Backend::new(Files::new(account(1 << 20)), Arc::new(ForkMark::new().unwrap()))
}

fn area(space: SpaceId, pages: u64) -> Area {
    Area { space, start: 0, end: pages * PAGE }
}

/// A file with its number in its first bytes.
fn marked(id: u64, pages: u64, writable: bool) -> Extent {
    let fd = memfd::create_fixed("pinfold-test", (pages * PAGE) as usize).unwrap();
    let mut file = std::fs::File::from(fd);
    file.seek(SeekFrom::Start(0)).unwrap();
    // All of it has memory.
    file.write_all(&id.to_ne_bytes().repeat((pages * PAGE / 8) as usize)).unwrap();
    let fd = file.into();
    memfd::seal(std::os::fd::AsFd::as_fd(&fd), !writable).unwrap();
    Extent { id, bytes: pages * PAGE, writable, fd }
}

/// The number of the file that is mapped there.
fn mark(backend: &Backend, handle: Handle) -> u64 {
    let mapping = &backend.held(handle.0 as u32).unwrap().mapping;
    mapping.prepare(0, 8).unwrap();
    let at = mapping.get(0, 8).unwrap();
    // SAFETY: eight bytes of a mapping that is there.
    unsafe { at.cast::<u64>().read_unaligned() }
}

#[test]
fn to_pin_is_to_map() {
    let mut backend = backend();
    let spaces = [(7, 1, false), (8, 3, true), (9, 2, false)].map(|(id, pages, writable)| {
        let space = backend.files.add(peer(1), marked(id, pages, writable), tie());
        backend.files.keep(space);
        area(space, pages)
    });
    let handles = spaces.map(|area| backend.pin(area).unwrap());
    assert_eq!(handles.map(|handle| mark(&backend, handle)), [7, 8, 9]);
    assert_eq!((backend.bytes(), backend.count(peer(1)), backend.len()), (6 * PAGE, 3, 3));
    let is_writable = handles
        .map(|handle| backend.held(handle.0 as u32).unwrap().mapping.get_mut(0, 1).is_some());
    assert_eq!(is_writable, [false, true, false]);

    backend.unpin(handles[1], spaces[1]);
    assert_eq!((backend.bytes(), backend.count(peer(1)), backend.len()), (3 * PAGE, 2, 2));
    assert!(backend.held(handles[1].0 as u32).is_none());
    // Twice is as good as once.
    backend.unpin(handles[1], spaces[1]);
    assert_eq!(backend.bytes(), 3 * PAGE);
    let again = backend.pin(spaces[1]).unwrap();
    assert_eq!((again, mark(&backend, again)), (handles[1], 8), "its place is used again");
    assert_eq!([handles[0], handles[2]].map(|handle| mark(&backend, handle)), [7, 9]);
    for (handle, area) in handles.into_iter().zip(spaces) {
        backend.unpin(handle, area);
    }
    assert_eq!((backend.bytes(), backend.count(peer(1)), backend.len()), (0, 0, 0));
    assert_eq!(backend.files.len(), 3, "they can be mapped again");
}

#[test]
fn an_area_is_the_whole_of_a_file() {
    let mut backend = backend();
    let space = backend.files.add(peer(1), marked(1, 3, false), tie());
    let parts = [(0, 2), (1, 3), (0, 4)]
        .map(|(start, end)| backend.pin(Area { space, start: start * PAGE, end: end * PAGE }));
    assert_eq!(parts, [Err(Refused::NotMapped); 3]);
    assert_eq!(backend.pin(area(SpaceId(99), 3)), Err(Refused::NotMapped), "not known");
    assert_eq!((backend.bytes(), backend.len()), (0, 0));
    // Less than a page takes a page.
    let fd = memfd::create_fixed("pinfold-test", 100).unwrap();
    memfd::seal(fd.as_fd(), true).unwrap();
    let odd = Extent { id: 2, bytes: 100, writable: false, fd };
    let odd = area(backend.files.add(peer(1), odd, tie()), 1);
    let handle = backend.pin(odd).unwrap();
    assert_eq!(backend.bytes(), PAGE);
    backend.unpin(handle, odd);
    assert_eq!(backend.bytes(), 0);
}

#[test]
fn what_is_closed_while_in_use_counts_until_it_is_unpinned() {
    let mut backend = backend();
    let space = backend.files.add(peer(1), marked(1, 1, false), tie());
    let handle = backend.pin(area(space, 1)).unwrap();
    backend.files.remove(space);
    assert_eq!((backend.bytes(), backend.count(peer(1)), mark(&backend, handle)), (PAGE, 1, 1));
    // The number for another file, which is not touched by the end of the first.
    let other = backend.files.add(peer(1), marked(1, 1, false), tie());
    let there = backend.pin(area(other, 1)).unwrap();
    backend.unpin(handle, area(space, 1));
    assert_eq!((backend.bytes(), backend.count(peer(1))), (PAGE, 1));
    assert_eq!(backend.files.get(other).unwrap().slot, Some(there.0 as u32));
}

#[test]
fn a_shortage_is_one_as_long_as_others_could_make_room() {
    let mut backend = backend();
    let space = backend.files.add(peer(1), marked(1, 2, false), tie());
    backend.pin(area(space, 2)).unwrap();
    let failed = |errno: Errno| Error::os("mmap", "a test", errno);
    let (two, three) = (area(SpaceId(5), 2), area(SpaceId(5), 3));
    assert!(backend.refused(&failed(Errno::NOMEM), two).is_shortage());
    assert_eq!(
        backend.refused(&failed(Errno::NOMEM), three),
        Refused::Other(Errno::NOMEM.raw_os_error())
    );
    assert_eq!(
        backend.refused(&failed(Errno::PERM), two),
        Refused::Other(Errno::PERM.raw_os_error())
    );
}

#[test]
fn a_cache_of_it_evicts_and_maps_again() {
    let mut backend = backend();
    let areas = [1, 2, 3].map(|id| {
        let space = backend.files.add(peer(1), marked(id, 1, false), tie());
        backend.files.keep(space);
        space
    });
    let budget = Budget { bytes_max: 2 * PAGE, entries_max: 8, slots_max: 8, merge_growth_max: 0 };
    let mut cache = PinCache::new(backend, budget).unwrap();
    for (space, id) in areas.into_iter().zip(1..).cycle().take(7) {
        let hold = cache.begin(space, 0, PAGE).unwrap();
        assert_eq!(mark(cache.pinner(), hold.handle()), id);
        cache.end(hold);
    }
    let counters = cache.counters();
    assert_eq!((counters.pins, counters.evictions, counters.now.bytes), (7, 5, 2 * PAGE));
    assert_eq!(cache.pinner().bytes(), 2 * PAGE);
    assert_eq!(cache.begin(areas[0], 0, 3 * PAGE), Err(NoPin::TooLarge));
}

#[test]
fn costs_follow_what_is_measured() {
    let mut backend = backend();
    let before = backend.cost();
    assert!(before.pin_ns > 0 && before.unpin_ns > 0 && before.pin_page_ns > 0);
    for (mean, took, after) in [(1000, 9000, 2000), (1000, 200, 900), (0, 0, 0), (8, 8, 8)] {
        let mut mean_ns = mean;
        super::super::backend::average(&mut mean_ns, std::time::Duration::from_nanos(took));
        assert_eq!(mean_ns, after);
    }
    let space = backend.files.add(peer(1), marked(1, 1, false), tie());
    backend.files.keep(space);
    // No time is exactly the one assumed, again and again.
    for _ in 0..50 {
        let handle = backend.pin(area(space, 1)).unwrap();
        backend.unpin(handle, area(space, 1));
    }
    let after = backend.cost();
    assert!(after.pin_ns != before.pin_ns && after.unpin_ns != before.unpin_ns, "{after:?}");
}
