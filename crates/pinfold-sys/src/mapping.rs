//! Memory mapped from a shared file.
#![allow(unsafe_code)]
// Invariant: a `SharedMapping` or `ReadOnlyMapping` is one live `MAP_SHARED` mapping of exactly
// `len` bytes at `ptr`, made by this module, seen by nobody else as owned, and unmapped once, on
// drop. Another process may write every byte of it at any time, so this module never makes a
// reference into it.

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
        SharedMapping::map_aligned(fd, len, 1)
    }

    /// As [`SharedMapping::map`], at an address that is a multiple of `align`, a power of two.
    /// Up to `align` bytes of address space more are taken for a moment.
    ///
    /// # Errors
    /// As for [`SharedMapping::map`].
    pub fn map_aligned(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<SharedMapping> {
        let ptr = place(fd, len, align, ProtFlags::READ | ProtFlags::WRITE)?;
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
        if let Some(range) = self.try_populate(range)? {
            self.touch(range);
        }
        Ok(())
    }

    /// As [`SharedMapping::populate`], but want of memory is an error on old kernels, too: there
    /// `fallocate(2)` on `file`, which this is a mapping of, reserves the memory first.
    ///
    /// # Errors
    /// As for [`SharedMapping::populate`]; `ENOSPC` where memory ran out.
    pub fn populate_file(&self, file: BorrowedFd<'_>, range: Range<usize>) -> io::Result<()> {
        let Some(range) = self.try_populate(range)? else { return Ok(()) };
        let (at, len) = (range.start as u64, range.len() as u64);
        rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, at, len)?;
        self.touch(range);
        Ok(())
    }

    /// Has the kernel make huge pages of the aligned 2 MiB parts of `range` (byte offsets), each
    /// of which must have a page present already; absent ones are filled with zeros. Does so
    /// whatever the system's setting for huge pages of shared memory is, short of `deny`, and
    /// never calls the out-of-memory killer. The mapping must be aligned to 2 MiB.
    ///
    /// See `MADV_COLLAPSE` in `madvise(2)`; Linux 6.1.
    ///
    /// # Errors
    /// `EINVAL` where the kernel cannot, `ENOMEM`, `EAGAIN` or `EBUSY` where there are no huge
    /// pages just now. The contents are the same in any case; some parts may have been done.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        self.check(&range)?;
        // SAFETY: the range lies within the mapping, and the call changes no contents.
        let done = unsafe {
            libc::madvise(self.as_ptr().add(range.start).cast(), range.len(), libc::MADV_COLLAPSE)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
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

    /// As [`ReadOnlyMapping::is_resident`].
    ///
    /// # Errors
    /// As there.
    pub fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        self.check(&range)?;
        is_resident(self.ptr, range)
    }

    /// The range, by whole pages, if the kernel has no `MADV_POPULATE_WRITE` for it.
    fn try_populate(&self, range: Range<usize>) -> io::Result<Option<Range<usize>>> {
        self.check(&range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let range = range.start / page_size() * page_size()..range.end;
        loop {
            match self.advise(range.clone(), Advice::LinuxPopulateWrite) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) => return Ok(Some(range)),
                Err(errno) => return Err(errno.into()),
                Ok(()) => return Ok(None),
            }
        }
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

/// A mapping of a shared file that can only be read, absent from children of `fork(2)`.
///
/// Its bytes can be written by other processes: copy them out, never take a `&` to them.
#[derive(Debug)]
pub struct ReadOnlyMapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: as for `SharedMapping`.
unsafe impl Send for ReadOnlyMapping {}
// SAFETY: as for `SharedMapping`.
unsafe impl Sync for ReadOnlyMapping {}

impl ReadOnlyMapping {
    /// Maps the first `len` bytes of `fd` at a multiple of `align`, a power of two.
    ///
    /// Memory behind the end of the file faults with `SIGBUS`: check a peer's descriptor with
    /// [`check_sealed`](crate::memfd::check_sealed) first. See `mmap(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the number of mappings
    /// is exhausted, `EACCES` if the file may not be read.
    pub fn map(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<ReadOnlyMapping> {
        let ptr = place(fd, len, align, ProtFlags::READ)?;
        let mapping = ReadOnlyMapping { ptr, len };
        // SAFETY: the whole of the mapping just made; the call takes nothing away.
        unsafe { mm::madvise(ptr.as_ptr().cast(), len, Advice::LinuxDontFork) }?;
        Ok(mapping)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file has every page of `range` (byte offsets), and none of them is swapped out.
    /// Takes no memory. The kernel tells those only who own the file or may write it, and says yes
    /// to all others. About 50 ns a page; stops at the first megabytes that lack some. See
    /// `mincore(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; what the kernel said otherwise.
    pub fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        if range.start > range.end || range.end > self.len {
            return Err(Errno::INVAL.into());
        }
        is_resident(self.ptr, range)
    }

    /// Has the kernel map the pages of `range` (byte offsets), so that reading them takes no fault
    /// and, as long as nobody takes them out of the file, cannot fail.
    ///
    /// One `madvise(MADV_POPULATE_READ)`. Kernels before 5.14 have no such call: there nothing
    /// happens.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; `ENOMEM` or `EFAULT` where memory ran out for
    /// pages that the file did not have.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        if range.start > range.end || range.end > self.len {
            return Err(Errno::INVAL.into());
        }
        let start = range.start / page_size() * page_size();
        loop {
            // SAFETY: within the mapping; the call changes no contents.
            let done = unsafe {
                let at = self.ptr.as_ptr().add(start).cast();
                mm::madvise(at, range.end - start, Advice::LinuxPopulateRead)
            };
            match done {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) | Ok(()) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for ReadOnlyMapping {
    fn drop(&mut self) {
        // SAFETY: as for `SharedMapping`.
        let done = unsafe { mm::munmap(self.ptr.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}

/// Whether all pages of a range of a mapping are in memory.
fn is_resident(ptr: NonNull<u8>, range: Range<usize>) -> io::Result<bool> {
    const PAGES: usize = 1024;
    let page = page_size();
    let mut start = range.start / page * page;
    while !range.is_empty() && start < range.end {
        let len = (range.end - start).min(PAGES * page);
        let mut pages = [0u8; PAGES];
        // SAFETY: the callers have checked that the range lies in the mapping, whose last page is
        // there as a whole; the kernel writes a byte for each page, of which there are `PAGES` at most.
        let done = unsafe {
            let at = ptr.as_ptr().add(start);
            libc::mincore(at.cast(), len, pages.as_mut_ptr())
        };
        match done {
            0 if pages[..len.div_ceil(page)].iter().any(|page| page & 1 == 0) => return Ok(false),
            0 => start += len,
            // The kernel had no page of its own for the answer just now.
            _ if Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::AGAIN) => {
                return Ok(false);
            }
            _ => return Err(io::Error::last_os_error()),
        }
    }
    Ok(true)
}

/// Maps `len` bytes of a file at a multiple of `align`.
fn place(
    fd: BorrowedFd<'_>,
    len: usize,
    align: usize,
    prot: ProtFlags,
) -> Result<NonNull<u8>, Errno> {
    if !align.is_power_of_two() || len == 0 {
        return Err(Errno::INVAL);
    }
    let page = page_size();
    if align <= page {
        // SAFETY: no address is asked for, so no existing mapping can be replaced.
        let at = unsafe { mm::mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }?;
        return NonNull::new(at.cast()).ok_or(Errno::NOMEM);
    }
    // Take more address space than needed, put the file into its aligned part, return the rest.
    let pages = len.checked_next_multiple_of(page).ok_or(Errno::NOMEM)?;
    let whole = pages.checked_add(align).ok_or(Errno::NOMEM)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is asked for.
    let from = unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags) }?;
    let skip = from.cast::<u8>().align_offset(align);
    // SAFETY: `skip` is below `align`, so the sum is within what was mapped.
    let at = unsafe { from.cast::<u8>().add(skip) };
    let flags = MapFlags::SHARED | MapFlags::FIXED;
    // SAFETY: replaces only what was mapped above, which nobody else knows.
    let placed = unsafe { mm::mmap(at.cast(), len, prot, flags, fd, 0) };
    let (before, behind) = match placed {
        Ok(_) => (skip, align - skip),
        Err(_) => (whole, 0),
    };
    if before > 0 {
        // SAFETY: what lies before the file's mapping, or all if there is none, is still ours alone.
        unsafe { mm::munmap(from, before) }?;
    }
    if behind > 0 {
        // SAFETY: what lies behind the file's mapping is still ours alone.
        unsafe { mm::munmap(at.add(pages).cast(), behind) }?;
    }
    placed.and_then(|at| NonNull::new(at.cast()).ok_or(Errno::NOMEM))
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
        let file = crate::memfd::create_fixed("pinfold-test", 8192).unwrap();
        let map = SharedMapping::map(file.as_fd(), 8192).unwrap();
        crate::memfd::seal(file.as_fd(), true).unwrap();
        if !crate::memfd::refuses_writers(file.as_fd()) {
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
}
