//! Memory mapped from a shared file.
#![allow(unsafe_code)]
// Invariant: a `SharedMapping` is one live `MAP_SHARED` mapping of exactly `len` bytes at `ptr`,
// made by this module, seen by nobody else as owned, and unmapped once, on drop. Another process
// may write every byte of it at any time, so this module never makes a reference into it.

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

/// A readable and writable mapping of a shared file from its beginning, absent from children of
/// `fork(2)`.
///
/// Its bytes belong to other processes too: reach them by raw pointers, atomically or as bytes
/// copied out, never by `&` or `&mut`.
#[derive(Debug)]
pub struct SharedMapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the address space, not to a thread, and the type hands out only
// raw pointers and makes only calls that the kernel orders itself.
unsafe impl Send for SharedMapping {}
// SAFETY: as for `Send`; no method changes the struct behind `&self`.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps the first `len` bytes of `fd`. No page is touched.
    ///
    /// Memory behind the end of the file faults with `SIGBUS`: check a peer's descriptor with
    /// [`check_sealed`](crate::memfd::check_sealed) first. See `mmap(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the number of mappings
    /// is exhausted, `EACCES` or `EPERM` if the file may not be written.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<SharedMapping> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no existing mapping can be replaced.
        let at = unsafe { mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
        let ptr = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        let mapping = SharedMapping { ptr, len };
        mapping.advise(0..len, Advice::LinuxDontFork)?;
        Ok(mapping)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reserves memory for every page that `range` (byte offsets) touches, so that using it
    /// later neither faults nor dies for want of memory. What the pages hold stays.
    ///
    /// One `madvise(MADV_POPULATE_WRITE)`. Kernels before 5.14 have no such call; there each
    /// page is touched instead, and want of memory is `SIGBUS`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; `ENOMEM` or `EFAULT` where memory ran out.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let page = page_size();
        self.check(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let start = range.start / page * page;
        loop {
            match self.advise(start..range.end, Advice::LinuxPopulateWrite) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) => break,
                done => return Ok(done?),
            }
        }
        self.touch(start..range.end);
        Ok(())
    }

    /// Gives the memory of every page that lies wholly within `range` (byte offsets) back to
    /// the system, for every process that maps the file. The pages read as zero afterwards.
    /// See `MADV_REMOVE` in `madvise(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; what the kernel said otherwise.
    pub fn release(&self, range: Range<usize>) -> io::Result<()> {
        let page = page_size();
        self.check(&range)?;
        let start = range.start.next_multiple_of(page);
        // The last page of the mapping may be a part of one: it is whole when the mapping ends.
        let end = if range.end == self.len { range.end } else { range.end / page * page };
        if start >= end {
            return Ok(());
        }
        Ok(self.advise(start..end, Advice::LinuxRemove)?)
    }

    /// Writes to each absent page of a range within the mapping without changing it.
    fn touch(&self, range: Range<usize>) {
        for offset in range.step_by(page_size()) {
            // SAFETY: `offset` is below `len`, so the byte lies in the live mapping, which is
            // reached atomically.
            let byte = unsafe { AtomicU8::from_ptr(self.as_ptr().add(offset)) };
            // An absent page reads as zero, so this writes it; a page that holds something is
            // not absent. (An atomic OR with 0 would be compiled to a load.)
            let _ = byte.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn check(&self, range: &Range<usize>) -> Result<(), Errno> {
        if range.start <= range.end && range.end <= self.len { Ok(()) } else { Err(Errno::INVAL) }
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> Result<(), Errno> {
        // SAFETY: callers pass ranges within the mapping. None of the three kinds of advice in
        // use takes memory away from anything else: DONTFORK and POPULATE_WRITE keep the
        // contents, and REMOVE zeroes shared bytes, which any peer may do at any time anyway.
        unsafe { mm::madvise(self.as_ptr().add(range.start).cast(), range.len(), advice) }
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone (see the invariant) and nothing borrowed from `self`
        // is left; raw pointers taken from it are the taker's to keep within its life.
        let done = unsafe { mm::munmap(self.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memfd::create_sealed;

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
        map.touch(page..2 * page + 1);
        assert_eq!(resident(&file), 2 * page as u64);
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
    fn a_read_only_file_cannot_be_mapped() {
        let null = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(SharedMapping::map(null.as_fd(), 4096).is_err());
        let file = create_sealed("pinfold-test", 4096).unwrap();
        assert!(SharedMapping::map(file.as_fd(), 0).is_err());
    }
}
