#![allow(unsafe_code)]
//! userfaultfd: watching memory, moving pages, the kernel's events and refusals.

mod kernel;
mod measure;
mod moving;
mod reading;
mod refused;

use std::{
    ops::Range,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::*;

const PAGE: usize = 4096;
const RW: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// Private memory with something in each page, that stays when dropped: tests unmap it themselves.
/// It lies where the kernel puts nothing by itself, so that nobody else's memory comes to lie in
/// the holes that tests make.
pub(crate) fn mapped(pages: usize) -> Range<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 44);
    let step = (pages * PAGE).next_multiple_of(Pages::HUGE) + Pages::HUGE;
    let start = NEXT.fetch_add(step, Ordering::Relaxed);
    let at = ptr::with_exposed_provenance_mut(start);
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: takes a place that is free.
    let got = unsafe { mm::mmap_anonymous(at, pages * PAGE, RW, flags) }.unwrap();
    assert_eq!(got, at);
    let range = start..start + pages * PAGE;
    if pages * PAGE >= Pages::HUGE {
        advise(range.clone(), Advice::LinuxHugepage);
    }
    fill(range.clone(), 1);
    range
}

fn fill(range: Range<usize>, byte: u8) {
    for page in range.step_by(PAGE) {
        // SAFETY: mapped by the test, which keeps no reference to it.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(page).write_volatile(byte) };
    }
}

fn peek(at: usize) -> u8 {
    // SAFETY: mapped by the test.
    unsafe { ptr::with_exposed_provenance::<u8>(at).read_volatile() }
}

fn unmap(range: Range<usize>) {
    // SAFETY: mapped by the test, which uses it no more.
    unsafe { mm::munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.unwrap();
}

fn map_over(range: Range<usize>) {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let at = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: replaces memory that the test mapped, or nothing.
    unsafe { mm::mmap_anonymous(at, range.len(), RW, flags) }.unwrap();
    fill(range, 2);
}

fn advise(range: Range<usize>, advice: Advice) {
    let at = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: mapped by the test, which keeps no reference to it.
    unsafe { mm::madvise(at, range.len(), advice) }.unwrap();
}

fn remap(range: Range<usize>, to: Range<usize>, more: libc::c_int) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | more;
    let at = ptr::with_exposed_provenance_mut(range.start);
    let to_at = ptr::with_exposed_provenance_mut::<libc::c_void>(to.start);
    // SAFETY: both ranges are the test's.
    let done = unsafe { libc::mremap(at, range.len(), to.len(), flags, to_at) };
    assert_ne!(done, libc::MAP_FAILED);
}

/// A watch, or nothing where there is none.
fn watch() -> Option<Watch> {
    Watch::new().map_err(|error| crate::skip::skip(&format!("{error}"))).ok()
}

/// Does `work` in another thread, which waits for its events; returns the events until it has
/// ended.
fn heard(watch: &Watch, work: impl FnOnce() + Send) -> Vec<Event> {
    let mut events = Vec::with_capacity(64);
    std::thread::scope(|scope| {
        let thread = scope.spawn(work);
        while !thread.is_finished() {
            watch.events(|event| events.push(event)).unwrap();
            std::thread::yield_now();
        }
        thread.join().unwrap();
    });
    assert_eq!(watch.events(|_| {}), Ok(0));
    assert_eq!(watch.is_quiet(), Ok(true));
    events
}
