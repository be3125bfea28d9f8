#![allow(unsafe_code)]
//! This process's memory, pinned: every change of it is noticed.

mod alone;
mod calls;
mod denied;
mod exact;
mod limits;
mod looking;
mod quarantine;
mod steps;

use std::{
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    ptr,
    sync::atomic::{AtomicU8, AtomicUsize, Ordering},
};

use rustix::mm::{self, Advice, MapFlags, MremapFlags, ProtFlags};

use pinfold_sys::mem::userfault::{Reader, Watch};
use rustix::io::Errno;

use super::*;

const PAGE: usize = 4096;
const RW: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A place where the kernel puts no mapping by itself, apart from all other memory.
fn place(pages: usize) -> Range<usize> {
    static NEXT: AtomicUsize = AtomicUsize::new(1 << 45);
    let start = NEXT.fetch_add((pages + 512) * PAGE, Ordering::Relaxed);
    start..start + pages * PAGE
}

/// New memory there, in place of any that is there.
fn map(range: Range<usize>) {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let at = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: a place that only the test knows.
    unsafe { mm::mmap_anonymous(at, range.len(), RW, flags) }.unwrap();
}

fn mapped(pages: usize) -> Range<usize> {
    let range = place(pages);
    map(range.clone());
    range
}

fn unmap(range: Range<usize>) {
    // SAFETY: memory of the test's, which uses it no more.
    unsafe { mm::munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }.unwrap();
}

fn advise(range: Range<usize>, advice: Advice) {
    let at = ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: memory of the test's, to which there is no reference.
    unsafe { mm::madvise(at, range.len(), advice) }.unwrap();
}

fn remap(from: Range<usize>, to: Range<usize>, more: MremapFlags) {
    let at = ptr::with_exposed_provenance_mut(from.start);
    let to_at = ptr::with_exposed_provenance_mut(to.start);
    let flags = MremapFlags::MAYMOVE | more;
    // SAFETY: both are the test's.
    unsafe { mm::mremap_fixed(at, from.len(), to.len(), flags, to_at) }.unwrap();
}

/// Fills with a byte that was nowhere before lately. Returns it.
fn fill(range: Range<usize>) -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    // Odd numbers, of which none is 0.
    let byte = NEXT.fetch_add(2, Ordering::Relaxed);
    // SAFETY: memory of the test's, to which there is no reference.
    unsafe {
        ptr::with_exposed_provenance_mut::<u8>(range.start).write_bytes(byte, range.len());
    }
    byte
}

fn memory(bytes_max: u64) -> OwnMemory {
    OwnMemory::new(Budget::of_bytes(bytes_max)).unwrap()
}

/// One that keeps; or nothing, where there is none.
fn keeping() -> Option<OwnMemory> {
    let own = memory(1 << 22);
    match own.standing().not_kept {
        None => Some(own),
        Some(why) => {
            eprintln!("SKIPPED: {why}");
            None
        }
    }
}

fn file() -> OwnedFd {
    pinfold_sys::mem::memfd::create_sealed("own-test", 64 * PAGE).unwrap()
}

/// Transfers to the file and reads the bytes that came: all are the same.
fn sent<V: Validation>(own: &OwnMemory<V>, file: &OwnedFd, range: Range<usize>) -> u8 {
    let hold = own.begin(range.start as u64, range.len() as u64).unwrap();
    let done = own.write_out(&hold, file.as_fd(), 0).unwrap();
    own.end(hold);
    assert_eq!(done, range.len());
    let mut found = vec![0; range.len()];
    assert_eq!(rustix::io::pread(file, &mut found, 0).unwrap(), range.len());
    assert!(found.iter().all(|byte| *byte == found[0]), "a mixture");
    found[0]
}

/// Returns whether the memory of a transfer is kept.
fn is_kept<V: Validation>(own: &OwnMemory<V>, range: Range<usize>) -> Result<(), Why> {
    let hold = own.begin(range.start as u64, range.len() as u64).unwrap();
    let kept = hold.kept();
    own.end(hold);
    kept
}

/// Looks until the memory is kept: other tests' threads have to sleep once each.
fn until_kept(own: &OwnMemory, range: Range<usize>) {
    let end = Instant::now() + std::time::Duration::from_secs(60);
    while let Err(why) = is_kept(own, range.clone()) {
        assert!(matches!(why, Why::Discarding | Why::Restless), "{why}");
        assert!(Instant::now() < end, "{why}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
