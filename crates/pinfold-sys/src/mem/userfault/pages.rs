//! Private memory whose pages may be moved.
#![allow(unsafe_code)]
//! **Invariant.** A [`Pages`] is one live private anonymous mapping of exactly `len` bytes at `at`,
//! known to nobody else, unmapped once, on drop. Its pages leave or come only through `&mut self`,
//! so never under a reference to its bytes; where pages are missing it reads as zeros.

use std::{
    io,
    ops::Range,
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU8, Ordering},
};

use rustix::{
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
    param::page_size,
};

use crate::mem::resident;

/// Private memory of whole pages, zero at first, absent from children of `fork(2)`: else pages that
/// they share with their parent could not be moved.
#[derive(Debug)]
pub struct Pages {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the address space, not to a thread, and is reached by the rules of
// references.
unsafe impl Send for Pages {}
// SAFETY: as for `Send`; nothing changes behind `&self`.
unsafe impl Sync for Pages {}

impl Pages {
    /// Bytes of a huge page.
    pub const HUGE: usize = 2 << 20;

    /// Reserves `len` bytes, rounded up to pages; takes no memory yet. With `huge`, starts at a
    /// multiple of 2 MiB and asks for huge pages. Some µs.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the mappings are used up.
    pub fn new(len: usize, huge: bool) -> io::Result<Pages> {
        let pages = Pages::place(len, if huge { Pages::HUGE } else { page_size() })?;
        if huge {
            // A kernel without them has small ones.
            let _ = pages.advise(0..pages.len, Advice::LinuxHugepage);
        }
        Ok(pages)
    }

    /// As [`new`](Pages::new), at a multiple of 2 MiB, but huge pages appear only where
    /// [`collapse`](Pages::collapse) makes them; or anywhere, if the system is set to have them
    /// always.
    ///
    /// # Errors
    /// As there.
    pub fn aligned(len: usize) -> io::Result<Pages> {
        Pages::place(len, Pages::HUGE)
    }

    fn place(len: usize, align: usize) -> io::Result<Pages> {
        let len = len.checked_next_multiple_of(page_size()).filter(|&len| len > 0);
        let len = len.ok_or(Errno::INVAL)?;
        let whole = len.checked_add(align - page_size()).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let from = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, prot, flags) }?;
        let skip = from.cast::<u8>().align_offset(align);
        // SAFETY: `skip` is at most the length mapped beyond `len`.
        let at = unsafe { from.cast::<u8>().add(skip) };
        for (piece, len) in [(from.cast(), skip), (at.wrapping_add(len), whole - skip - len)] {
            if len > 0 {
                // SAFETY: before or behind the part that is kept of the mapping above.
                unsafe { mm::munmap(piece.cast(), len) }?;
            }
        }
        let pages = Pages { at: NonNull::new(at).ok_or(Errno::NOMEM)?, len };
        pages.advise(0..len, Advice::LinuxDontFork)?;
        Ok(pages)
    }

    /// Has children of `fork(2)` get a copy, as of other memory.
    ///
    /// # Errors
    /// The error of `madvise(2)`.
    pub fn inherit(&self) -> io::Result<()> {
        Ok(self.advise(0..self.len, Advice::LinuxDoFork)?)
    }

    /// Bytes; a multiple of the page size, never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its address.
    pub fn addr(&self) -> usize {
        self.at.as_ptr().addr()
    }

    /// The first byte.
    pub fn as_non_null(&self) -> NonNull<u8> {
        self.at
    }

    /// All bytes. Reading those of missing pages is slower, and shows zeros.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped and readable while `self` lives, and changed through `&mut self` only.
        unsafe { slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }

    /// All bytes. Touching those of missing pages, be it to read, fills these, and nothing
    /// can be moved there then.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_slice`, and nobody else has a reference.
        unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }

    /// Gives the pages of `range` (byte offsets, multiples of the page size) back to the system: it
    /// reads as zeros, and pages can be moved there.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not pages or lies outside.
    pub fn discard(&mut self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        Ok(self.advise(range, Advice::LinuxDontNeed)?)
    }

    /// Pages of `range` (byte offsets) that there are. About 20 ns a page, see `mincore(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not pages or lies outside.
    pub fn resident(&self, range: Range<usize>) -> io::Result<usize> {
        self.check(&range)?;
        let parts = resident::parts(self.addr() + range.start, range.len());
        Ok(parts.map(|part| Ok(part?.there)).sum::<Result<usize, Errno>>()?)
    }

    /// Has the kernel put memory behind the pages of `range` (byte offsets, multiples of the page
    /// size) that have none. The contents stay. One `madvise(MADV_POPULATE_WRITE)`; kernels before
    /// 5.14 have no such call, there each page is touched.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not pages or lies outside; `ENOMEM` or `EFAULT` where memory
    /// ran out.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        loop {
            match self.advise(range.clone(), Advice::LinuxPopulateWrite) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) => break,
                done => return Ok(done?),
            }
        }
        for offset in range.step_by(page_size()) {
            // SAFETY: within the mapping, and reached atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.at.as_ptr().add(offset)) };
            // A missing page reads as zero, so this writes it; one that holds something is not
            // missing.
            let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the kernel make huge pages of the aligned 2 MiB of `range` (byte offsets, multiples of 2
    /// MiB). The contents stay. Where the memory is registered with a userfaultfd all pages have to
    /// be there already; else one in each. See `MADV_COLLAPSE` in `madvise(2)`; Linux 6.1.
    ///
    /// # Errors
    /// `EINVAL` for such a range, and where the kernel cannot; `ENOMEM`, `EAGAIN` or `EBUSY` where
    /// there are no huge pages just now. Some may have been made.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        let at = self.at.as_ptr().wrapping_add(range.start);
        let mut tries = 3;
        loop {
            // SAFETY: within the mapping, and the call changes no contents.
            let done = unsafe { libc::madvise(at.cast(), range.len(), libc::MADV_COLLAPSE) };
            if done == 0 {
                return Ok(());
            }
            tries -= 1;
            let error = io::Error::last_os_error();
            // One of its pages was just being moved to another list, say.
            if tries == 0 || Errno::from_io_error(&error) != Some(Errno::AGAIN) {
                return Err(error);
            }
        }
    }

    /// The addresses of `range`, byte offsets of whole pages.
    pub(super) fn within(&self, range: &Range<usize>) -> Result<Range<usize>, Errno> {
        self.check(range)?;
        Ok(self.addr() + range.start..self.addr() + range.end)
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        let page = |at: usize| at.is_multiple_of(page_size());
        let fits = range.start <= range.end && range.end <= self.len;
        if fits && page(range.start) && page(range.end) { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Advice that changes contents is given through `&mut self`.
    fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Errno> {
        if range.is_empty() {
            return Ok(());
        }
        let at = self.at.as_ptr().wrapping_add(range.start);
        // SAFETY: within the mapping, which is ours; DONTNEED is given with no reference about.
        unsafe { mm::madvise(at.cast(), range.len(), advice) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: ours alone, and borrows of it have ended.
        let done = unsafe { mm::munmap(self.at.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}
