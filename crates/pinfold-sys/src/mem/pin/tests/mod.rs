#![allow(unsafe_code)]
//! Pinning by registered buffers and by `mlock`: limits, refusals, ends.

mod measure;
mod transfer;

use std::ops::Range;

use super::*;
use crate::mem::userfault::Pages;

const PAGE: usize = 4096;

/// In KiB. Other tests pin, too, in other processes or not at all while this lock is held.
pub(crate) fn status(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// One test at a time looks at the memory that the process has pinned.
pub(crate) static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn ring(slots: u32) -> Option<Registered> {
    Registered::new(slots).map_err(|error| crate::skip::skip(&format!("{error}"))).ok()
}

fn memory(pages: usize) -> (Pages, Range<usize>) {
    let mut memory = Pages::new(pages * PAGE, false).unwrap();
    memory.as_mut_slice().fill(1);
    let range = memory.addr()..memory.addr() + memory.len();
    (memory, range)
}

#[test]
fn registered_pages_are_pinned_until_unpinned() {
    let _alone = alone();
    let Some(ring) = ring(Registered::SLOTS_MAX) else { return };
    assert_eq!(ring.room(), 16384);
    let (_memory, range) = memory(64);
    let before = status("VmPin");
    let one = ring.pin(range.start..range.start + 16 * PAGE).unwrap();
    assert_eq!(status("VmPin"), before + 64);
    // Any alignment will do; whole pages count, and again for each slot.
    let two = ring.pin(range.start + 100..range.start + PAGE + 1).unwrap();
    assert_eq!(status("VmPin"), before + 64 + 8);
    assert_ne!(one.index(), two.index());
    ring.unpin(one).unwrap();
    assert_eq!(status("VmPin"), before + 8);
    ring.unpin(two).unwrap();
    assert_eq!(status("VmPin"), before);
    // The owner's end ends a pin, too.
    let _kept = ring.pin(range).unwrap();
    assert_eq!(status("VmPin"), before + 256);
    drop(ring);
    assert_eq!(status("VmPin"), before);
}

#[test]
fn pins_end_with_their_owner_although_a_copy_is_open() {
    let _alone = alone();
    let Some(ring) = ring(4) else { return };
    use std::os::fd::AsFd;
    let copy = ring.as_fd().try_clone_to_owned().unwrap();
    let (_memory, range) = memory(4);
    let before = status("VmPin");
    let _slot = ring.pin(range).unwrap();
    assert_eq!(status("VmPin"), before + 16);
    drop(ring);
    assert_eq!(status("VmPin"), before);
    drop(copy);
}

#[test]
fn a_huge_page_counts_whole_once_for_a_ring() {
    let _alone = alone();
    let Some(ring) = ring(4) else { return };
    let mut huge = Pages::new(Pages::HUGE, true).unwrap();
    huge.as_mut_slice().fill(1);
    let before = status("VmPin");
    match ring.pin(huge.addr()..huge.addr() + PAGE) {
        Ok(slot) => {
            let counted = status("VmPin") - before;
            println!("a page of a huge page counts {counted} KiB");
            assert!(counted == 4 || counted == 2048);
            let second = ring.pin(huge.addr() + 9 * PAGE..huge.addr() + 10 * PAGE).unwrap();
            let both = if counted == 4 { 8 } else { counted };
            assert_eq!(status("VmPin") - before, both);
            let other = Registered::new(1).unwrap();
            let third = other.pin(huge.addr()..huge.addr() + PAGE).unwrap();
            assert_eq!(status("VmPin") - before, both + counted);
            other.unpin(third).unwrap();
            ring.unpin(second).unwrap();
            ring.unpin(slot).unwrap();
        }
        Err(error) => println!("{error}"),
    }
    assert_eq!(status("VmPin"), before);
}

#[test]
fn refusals_pin_nothing_and_have_names() {
    let _alone = alone();
    let Some(ring) = ring(2) else { return };
    let before = status("VmPin");
    let refused = |range: Range<usize>| ring.pin(range).unwrap_err().reason();
    let (pages, range) = memory(4);
    assert_eq!(refused(range.start..range.start), Reason::Length);
    assert_eq!(refused(range.start..range.start + (1 << 30) + 1), Reason::Length);
    assert_eq!(refused(PAGE..2 * PAGE), Reason::Unmapped);
    // The end of the range is not mapped.
    drop((pages, range));
    let range = crate::mem::userfault::tests::mapped(4);
    assert_eq!(rustix_munmap(range.end - PAGE), 0);
    assert_eq!(refused(range.clone()), Reason::Unmapped);
    assert_eq!(remap_at(range.end - PAGE), range.end - PAGE);
    assert_eq!(
        refused(&raw const CONSTANT as usize..&raw const CONSTANT as usize + 1),
        Reason::Unmapped
    );
    assert_eq!(status("VmPin"), before);
    // Full, then a slot is free again, and failed pins have cost none.
    let one = ring.pin(range.clone()).unwrap();
    let two = ring.pin(range.clone()).unwrap();
    assert_eq!(refused(range.clone()), Reason::Full);
    ring.unpin(one).unwrap();
    let three = ring.pin(range.clone()).unwrap();
    // Another owner's.
    let other = Registered::new(4).unwrap();
    assert_eq!(other.unpin(two).unwrap_err().reason(), Reason::Stranger);
    other.unpin(three).unwrap_err();
    drop(ring);
    assert_eq!(status("VmPin"), before);
    assert_eq!(Registered::new(0).unwrap_err().reason(), Reason::Length);
    assert_eq!(Registered::new(16385).unwrap_err().reason(), Reason::Length);
}

static CONSTANT: u64 = 5;

fn rustix_munmap(at: usize) -> i32 {
    // SAFETY: a page of the test's, which maps it again before anybody looks.
    unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(at), PAGE) }
}

fn remap_at(at: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: takes a place that is free.
    unsafe { libc::mmap(at, PAGE, prot, flags, -1, 0) }.addr()
}

#[test]
fn locks_nest() {
    let _alone = alone();
    let locked = Locked::new().unwrap();
    let (_memory, range) = memory(8);
    let before = status("VmLck");
    let part = |from: usize, to: usize| range.start + from * PAGE..range.start + to * PAGE;
    let one = locked.pin(part(0, 5)).unwrap();
    let two = locked.pin(range.start + 3 * PAGE + 7..range.end - 7).unwrap();
    assert_eq!(status("VmLck"), before + 32);
    locked.unpin(one).unwrap();
    assert_eq!(status("VmLck"), before + 20);
    let three = locked.pin(part(4, 6)).unwrap();
    locked.unpin(two).unwrap();
    assert_eq!(status("VmLck"), before + 8);
    let stranger = Locked::new().unwrap().pin(part(0, 1)).unwrap();
    assert_eq!(locked.unpin(stranger).unwrap_err().reason(), Reason::Stranger);
    assert_eq!(locked.pin(0..0).unwrap_err().reason(), Reason::Length);
    assert_eq!(locked.pin(PAGE..2 * PAGE).unwrap_err().reason(), Reason::Unmapped);
    let _ = three;
    drop(locked);
    assert_eq!(status("VmLck"), before);
}

#[test]
fn locks_that_fail_leave_nothing() {
    let _alone = alone();
    let locked = Locked::new().unwrap();
    let range = crate::mem::userfault::tests::mapped(8);
    let before = status("VmLck");
    let middle = locked.pin(range.start + PAGE..range.start + 2 * PAGE).unwrap();
    rustix_munmap(range.end - PAGE);
    assert_eq!(locked.pin(range.clone()).unwrap_err().reason(), Reason::Unmapped);
    assert_eq!(status("VmLck"), before + 4);
    remap_at(range.end - PAGE);
    locked.unpin(middle).unwrap();
    assert_eq!(status("VmLck"), before);
}

/// Only ordinary users have a limit: root's `CAP_IPC_LOCK` passes it.
#[test]
fn the_limit_is_named() {
    let _alone = alone();
    if rustix::process::geteuid().is_root() {
        return crate::skip::skip("takes an ordinary user");
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current.unwrap();
    let (_memory, range) = memory(limit as usize / PAGE + 64);
    let locked = Locked::new().unwrap();
    let error = locked.pin(range.clone()).unwrap_err();
    assert_eq!(error.reason(), Reason::Memlock(limit));
    assert_eq!(status("VmLck"), 0);
    let Some(ring) = ring(64) else { return };
    let before = status("VmPin");
    let error = ring.pin(range.clone()).unwrap_err();
    println!("{error}");
    assert_eq!(error.reason(), Reason::Memlock(limit));
    // Piece by piece up to it, and never beyond.
    let mut slots = Vec::new();
    let error = loop {
        let from = range.start + slots.len() * (1 << 20);
        match ring.pin(from..from + (1 << 20)) {
            Ok(slot) => slots.push(slot),
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason(), Reason::Memlock(limit));
    assert!(status("VmPin") - before <= limit as usize >> 10 && slots.len() > 1);
    slots.drain(..).for_each(|slot| ring.unpin(slot).unwrap());
    assert_eq!(status("VmPin"), before);
}

#[test]
fn a_child_has_no_pins() {
    let _alone = alone();
    let Some(ring) = ring(4) else { return };
    let (memory, range) = memory(4);
    let before = status("VmPin");
    let slot = ring.pin(range.clone()).unwrap();
    let (mut ring, mut slot) = (Some(ring), Some(slot));
    let child = || {
        let (Some(ring), Some(slot)) = (ring.take(), slot.take()) else { return 9 };
        let refused = ring.pin(range.clone()).is_err_and(|error| error.reason() == Reason::Child)
            && ring.unpin(slot).is_err_and(|error| error.reason() == Reason::Child);
        drop(ring);
        i32::from(!refused)
    };
    // SAFETY: the child makes and drops its own; the C library keeps the allocator usable.
    let pid = unsafe { crate::child::spawn(child) }.unwrap();
    assert_eq!(crate::child::status_of(pid), Some(0));
    assert_eq!(status("VmPin"), before + 16);
    ring.unwrap().unpin(slot.unwrap()).unwrap();
    assert_eq!(status("VmPin"), before);
    drop(memory);
}

/// Returns whether filters could be made: asked with none, the kernel misses the filter's memory.
fn can_filter() -> bool {
    const MODE_FILTER: libc::c_ulong = 1;
    // SAFETY: takes numbers; no memory is there to be read as a filter.
    let made = unsafe { libc::syscall(libc::SYS_seccomp, MODE_FILTER, 0, 0) };
    made == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

#[test]
fn a_filter_is_named() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    if crate::trial::seccomp_mode().is_err() || !can_filter() {
        return crate::skip::skip("there are no filters on system calls");
    }
    for (errno, reason) in [(libc::EPERM, Reason::Denied), (libc::ENOSYS, Reason::Absent)] {
        let filtered = move || {
            let calls = [(libc::SYS_io_uring_setup, Vec::new())].into();
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let no = SeccompAction::Errno(errno as u32);
            let filter = SeccompFilter::new(calls, SeccompAction::Allow, no, arch).unwrap();
            let program: BpfProgram = filter.try_into().unwrap();
            seccompiler::apply_filter(&program).unwrap();
            let error = Registered::new(4).unwrap_err();
            assert_eq!((error.reason(), error.call()), (reason, "io_uring_setup"));
            assert!(error.to_string().contains("seccomp"));
        };
        std::thread::spawn(filtered).join().unwrap();
    }
}
