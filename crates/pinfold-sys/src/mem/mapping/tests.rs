#![allow(unsafe_code)]
//! Mappings: sharing, bounds, alignment, rights, huge pages, holes.

use std::{ops::Range, os::fd::AsFd};

use rustix::{io::Errno, mm, param::page_size};

use super::*;
use crate::mem::memfd::create_sealed;

fn resident(file: impl AsFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
}

#[test]
fn two_mappings_see_each_other() {
    let file = create_sealed("pinfold-test", 1 << 20).unwrap();
    let one = SharedMapping::map(file.as_fd(), 1 << 20).unwrap();
    let two = SharedMapping::map(file.as_fd(), 1 << 20).unwrap();
    assert_eq!(one.len(), 1 << 20);
    // SAFETY: offset 4097 is within both mappings; nothing else uses them.
    unsafe {
        one.as_ptr().add(4097).write_volatile(7);
        assert_eq!(two.as_ptr().add(4097).read_volatile(), 7);
    }
}

#[test]
fn pages_come_and_go() {
    if !crate::skip::is_advice_followed() {
        return;
    }
    let page = page_size();
    let file = create_sealed("pinfold-test", 16 * page).unwrap();
    let map = SharedMapping::map(file.as_fd(), 16 * page).unwrap();
    assert_eq!(resident(&file), 0);
    map.populate(page + 1..3 * page).unwrap();
    assert_eq!(resident(&file), 2 * page as u64);
    // SAFETY: within the mapping; nothing else uses it.
    unsafe { map.as_ptr().add(page).write_volatile(9) };
    map.populate(0..16 * page).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { map.as_ptr().add(page).read_volatile() }, 9);
    map.release(1..2 * page + 1).unwrap();
    assert_eq!(resident(&file), 15 * page as u64);
    // SAFETY: as above.
    assert_eq!(unsafe { map.as_ptr().add(page).read_volatile() }, 0);
    map.release(5..6).unwrap();
    map.populate(4..4).unwrap();
    map.release(0..16 * page).unwrap();
    map.0.touch(page..2 * page + 1);
    assert_eq!(resident(&file), 2 * page as u64);
}

#[test]
fn memory_of_no_file_comes_and_goes() {
    if !crate::skip::is_advice_followed() {
        return;
    }
    let page = page_size();
    let map = SharedMapping::anonymous(4 * page).unwrap();
    assert!(!map.is_resident(0..page).unwrap());
    map.populate(0..2 * page).unwrap();
    assert!(map.is_resident(0..2 * page).unwrap());
    // SAFETY: within the mapping; nothing else uses it.
    unsafe { map.as_ptr().add(page).write_volatile(9) };
    map.release(page..2 * page).unwrap();
    // SAFETY: as above.
    assert_eq!(unsafe { map.as_ptr().add(page).read_volatile() }, 0);
    let none = SharedMapping::anonymous(0).unwrap_err();
    assert_eq!(none.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn ranges_are_checked() {
    let file = create_sealed("pinfold-test", 8192).unwrap();
    let map = SharedMapping::map(file.as_fd(), 8192).unwrap();
    for range in [0..8193, 8193..8193, Range { start: 5, end: 4 }] {
        assert_eq!(map.populate(range.clone()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(map.release(range).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn mappings_lie_where_they_should() {
    let len = 3 * page_size();
    let file = create_sealed("pinfold-test", len).unwrap();
    for align in [1, page_size(), 1 << 16, 1 << 21, 1 << 30] {
        let map = SharedMapping::map_aligned(file.as_fd(), len, align).unwrap();
        assert!(map.as_ptr().addr().is_multiple_of(align));
        let read = ReadOnlyMapping::map(file.as_fd(), len, align).unwrap();
        assert!(read.as_ptr().addr().is_multiple_of(align));
        assert_eq!(read.len(), len);
        // SAFETY: the last byte of both mappings; nothing else uses them.
        unsafe {
            map.as_ptr().add(len - 1).write_volatile(5);
            assert_eq!(read.as_ptr().add(len - 1).read_volatile(), 5);
            map.as_ptr().add(len - 1).write_volatile(0);
        }
    }
    assert!(SharedMapping::map_aligned(file.as_fd(), len, 3).is_err());
    assert!(SharedMapping::map_aligned(file.as_fd(), usize::MAX - 1, 1 << 21).is_err());
}

#[test]
fn readers_stay_readers() {
    if !crate::skip::is_advice_followed() {
        return;
    }
    let file = crate::mem::memfd::create_fixed("pinfold-test", 8192).unwrap();
    let map = SharedMapping::map(file.as_fd(), 8192).unwrap();
    crate::mem::memfd::seal(file.as_fd(), true).unwrap();
    if !crate::mem::memfd::refuses_writers(file.as_fd()) {
        return println!("this kernel cannot keep writers out");
    }
    let read = ReadOnlyMapping::map(file.as_fd(), 8192, 1).unwrap();
    let both = mm::MprotectFlags::READ | mm::MprotectFlags::WRITE;
    // SAFETY: the mapping is ours, and the call is expected to change nothing.
    let done = unsafe { mm::mprotect(read.as_ptr().cast_mut().cast(), 8192, both) };
    assert_eq!(done, Err(Errno::ACCESS));
    let done = SharedMapping::map(file.as_fd(), 8192).unwrap_err();
    assert_eq!(done.raw_os_error(), Some(libc::EPERM));
    // The owner's own mapping still takes memory, and keeps it.
    map.populate_file(file.as_fd(), 0..8192).unwrap();
    assert_eq!(map.release(0..8192).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(resident(&file), 8192);
}

#[test]
fn a_huge_page_is_filled_and_can_go() {
    if !crate::skip::is_advice_followed() {
        return;
    }
    const HUGE: usize = 2 << 20;
    let file = create_sealed("pinfold-test", 2 * HUGE).unwrap();
    let map = SharedMapping::map_aligned(file.as_fd(), 2 * HUGE, HUGE).unwrap();
    map.populate_file(file.as_fd(), HUGE..HUGE + 1).unwrap();
    match map.collapse(HUGE..2 * HUGE) {
        Ok(()) => assert_eq!(resident(&file), HUGE as u64),
        Err(error) => println!("no huge pages here: {error}"),
    }
    map.populate_file(file.as_fd(), HUGE..2 * HUGE).unwrap();
    assert_eq!(resident(&file), HUGE as u64);
    map.release(HUGE..2 * HUGE).unwrap();
    assert_eq!(resident(&file), 0);
}

#[test]
fn holes_are_seen_and_stay() {
    let page = page_size();
    let len = 2000 * page;
    let file = create_sealed("pinfold-test", len).unwrap();
    let map = SharedMapping::map(file.as_fd(), len).unwrap();
    let read = ReadOnlyMapping::map(file.as_fd(), len, 1).unwrap();
    map.populate(3 * page..1900 * page).unwrap();
    for (range, wanted) in [
        (3 * page..1900 * page, true),
        (3 * page + 1..3 * page + 2, true),
        (3 * page - 1..4 * page, false),
        (3 * page..1900 * page + 1, false),
        (len - 1..len, false),
        (7..7, true),
    ] {
        assert_eq!(read.is_resident(range.clone()).unwrap(), wanted, "{range:?}");
        assert_eq!(map.is_resident(range.clone()).unwrap(), wanted, "{range:?}");
    }
    assert_eq!(resident(&file), 1897 * page as u64);
    assert!(read.is_resident(0..len + 1).is_err() && map.is_resident(len..len + 1).is_err());
}

#[test]
fn a_read_only_file_cannot_be_mapped() {
    let null = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(SharedMapping::map(null.as_fd(), 4096).is_err());
    let file = create_sealed("pinfold-test", 4096).unwrap();
    assert!(SharedMapping::map(file.as_fd(), 0).is_err());
}
