#![allow(unsafe_code)]
//! **Invariant.** A [`Span`] is one live mapping of exactly `len` bytes at `ptr`, made by this
//! module, seen by nobody else as owned, and unmapped once, on drop. It is `MAP_SHARED`, or private
//! and never writable.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU8, Ordering},
};

use rustix::{
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
    param::page_size,
};

use crate::mem::resident;

/// Addresses at which a file is mapped from its beginning, or memory of no file; absent from
/// children of `fork(2)`.
#[derive(Debug)]
pub(super) struct Span {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the address space, not to a thread, and the type hands out only
// raw pointers and makes only calls that the kernel orders itself.
unsafe impl Send for Span {}
// SAFETY: as for `Send`; no method changes the struct behind `&self`.
unsafe impl Sync for Span {}

impl Span {
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        len: usize,
        align: usize,
        prot: ProtFlags,
    ) -> Result<Span, Errno> {
        let ptr = place(fd, len, align, prot, MapFlags::SHARED)?;
        Ok(Span { ptr, len }.keep_from_children())
    }

    /// Maps a file for reading, as memory of this process's own: the kernel then counts no mapping
    /// that could be made writable for the file, and refuses none of a file without writers.
    pub(super) fn map_private(fd: BorrowedFd<'_>, len: usize, align: usize) -> Result<Span, Errno> {
        let ptr = place(fd, len, align, ProtFlags::READ, MapFlags::PRIVATE)?;
        Ok(Span { ptr, len }.keep_from_children())
    }

    /// Maps `len` bytes that belong to no file.
    pub(super) fn anonymous(len: usize, prot: ProtFlags) -> Result<Span, Errno> {
        // SAFETY: no address is asked for, so no existing mapping can be replaced.
        let at = unsafe { mm::mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::SHARED) }?;
        let ptr = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        Ok(Span { ptr, len }.keep_from_children())
    }

    fn keep_from_children(self) -> Span {
        // If the kernel denies that, a child keeps the memory, of which it knows (`fork`) that it
        // is its parent's.
        let _ = self.advise(0..self.len, Advice::LinuxDontFork);
        self
    }

    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        if range.start <= range.end && range.end <= self.len { Ok(()) } else { Err(Errno::INVAL) }
    }

    pub(super) fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Errno> {
        self.check(&range)?;
        // SAFETY: within the mapping. No advice in use takes memory away from anything else:
        // DONTFORK, WILLNEED and POPULATE_* keep the contents, and REMOVE zeroes shared bytes,
        // which any peer may do at any time anyway.
        unsafe { mm::madvise(self.as_ptr().add(range.start).cast(), range.len(), advice) }
    }

    pub(super) fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        // SAFETY: within the mapping, and the call changes no contents.
        let done = unsafe {
            libc::madvise(self.as_ptr().add(range.start).cast(), range.len(), libc::MADV_COLLAPSE)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn fetch(&self, range: Range<usize>) -> io::Result<()> {
        let start = range.start / page_size() * page_size();
        Ok(self.advise(start..range.end, Advice::WillNeed)?)
    }

    /// Writes to each absent page of a range within the mapping without changing it.
    pub(super) fn touch(&self, range: Range<usize>) {
        for offset in range.step_by(page_size()) {
            // SAFETY: the callers pass a checked range; so the byte lies in the live mapping, which
            // is reached atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.as_ptr().add(offset)) };
            // An absent page reads as zero, so this writes it; a page that holds something is
            // not absent. (An atomic OR with 0 would be compiled to a load.)
            let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Returns whether all pages of a range are in memory.
    pub(super) fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(true);
        }
        let start = range.start / page_size() * page_size();
        match resident::all(self.as_ptr().addr() + start, range.end - start) {
            // The kernel had no page of its own for the answer just now.
            Err(Errno::AGAIN) => Ok(false),
            said => Ok(said?),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone (see the invariant) and nothing borrowed from `self`
        // is left; raw pointers taken from it are the taker's to keep within its life.
        let done = unsafe { mm::munmap(self.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}

/// Maps `len` bytes of a file at a multiple of `align`.
fn place(
    fd: BorrowedFd<'_>,
    len: usize,
    align: usize,
    prot: ProtFlags,
    sharing: MapFlags,
) -> Result<NonNull<u8>, Errno> {
    if !align.is_power_of_two() || len == 0 {
        return Err(Errno::INVAL);
    }
    let page = page_size();
    if align <= page {
        // SAFETY: no address is asked for, so no existing mapping can be replaced.
        let at = unsafe { mm::mmap(ptr::null_mut(), len, prot, sharing, fd, 0) }?;
        return NonNull::new(at.cast()).ok_or(Errno::NOMEM);
    }
    // Take more address space than needed, put the file into its aligned part, return the rest.
    let pages = len.checked_next_multiple_of(page).ok_or(Errno::NOMEM)?;
    let whole = pages.checked_add(align).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for.
    let from = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags) }?;
    let skip = from.cast::<u8>().align_offset(align);
    // SAFETY: `skip` is below `align`, so the sum is within the mapping above.
    let at = unsafe { from.cast::<u8>().add(skip) };
    let flags = sharing | MapFlags::FIXED;
    // SAFETY: replaces only the mapping above, which nobody else knows.
    let placed = unsafe { mm::mmap(at.cast(), len, prot, flags, fd, 0) };
    let (before, behind) = match placed {
        Ok(_) => (skip, align - skip),
        Err(_) => (whole, 0),
    };
    if before > 0 {
        // SAFETY: the part before the file's mapping, or all if there is none, is still ours alone.
        unsafe { mm::munmap(from, before) }?;
    }
    if behind > 0 {
        // SAFETY: the part behind the file's mapping is still ours alone.
        unsafe { mm::munmap(at.add(pages).cast(), behind) }?;
    }
    placed.and_then(|at| NonNull::new(at.cast()).ok_or(Errno::NOMEM))
}
