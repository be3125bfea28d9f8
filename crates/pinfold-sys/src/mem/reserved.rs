//! Reserved addresses, and the memory that is put there.
#![allow(unsafe_code)]
//! **Invariant.** A [`Reserved`] is `len` bytes of addresses at `at` which nobody else may map
//! anything to, but for ranges that were abandoned; those are never touched again. The mappings
//! there are changed by its methods alone.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    io::Errno,
    mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags},
    param::page_size,
};

/// Private addresses that can neither be read nor written until they are [opened](Reserved::open).
///
/// Ranges are byte offsets of whole pages; others are `EINVAL`. Each call takes the lock of the
/// address space, 1 to 3 µs, and more where pages are there.
#[derive(Debug)]
pub struct Reserved {
    at: NonNull<u8>,
    len: usize,
    /// True once some of it was abandoned, which may be somebody else's by now.
    holed: AtomicBool,
}

// SAFETY: the addresses belong to the address space, not to a thread, and only raw pointers are
// handed out.
unsafe impl Send for Reserved {}
// SAFETY: as for `Send`; the kernel orders the calls.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// `len` bytes from a multiple of `align` on, a power of two. Takes no memory, and does not
    /// count as memory promised. See `MAP_NORESERVE` in `mmap(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0; `ENOMEM` where addresses or mappings are used up, or limited.
    pub fn new(len: usize, align: usize) -> io::Result<Reserved> {
        let page = page_size();
        let align = align.max(page);
        let len = len.checked_next_multiple_of(page).filter(|len| *len > 0).ok_or(Errno::INVAL)?;
        if !align.is_power_of_two() {
            return Err(Errno::INVAL.into());
        }
        let whole = len.checked_add(align - page).ok_or(Errno::NOMEM)?;
        // SAFETY: no address is asked for, so nothing that exists is replaced.
        let from =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), FLAGS) }?;
        let skip = from.cast::<u8>().align_offset(align);
        let at = from.cast::<u8>().wrapping_add(skip);
        for (piece, len) in [(from.cast(), skip), (at.wrapping_add(len), whole - skip - len)] {
            if len > 0 {
                // SAFETY: before or behind the part that is kept of the mapping above.
                unsafe { mm::munmap(piece.cast(), len) }?;
            }
        }
        let at = NonNull::new(at).ok_or(Errno::NOMEM)?;
        let reserved = Reserved { at, len, holed: AtomicBool::new(false) };
        reserved.no_huge(0..len);
        Ok(reserved)
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Bytes; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes private memory of a range: it reads as zero, and can be written. Where a file is
    /// mapped, that becomes writable, if its descriptor was.
    ///
    /// # Errors
    /// `EINVAL` for a range outside; `ENOMEM` where mappings are used up.
    pub fn open(&self, range: Range<usize>) -> io::Result<()> {
        self.protect(range, MprotectFlags::READ | MprotectFlags::WRITE)
    }

    /// Closes a range again; pages that are there stay.
    ///
    /// # Errors
    /// As for [`open`](Reserved::open).
    ///
    /// # Safety
    /// Nobody reads or writes there from now on.
    pub unsafe fn close(&self, range: Range<usize>) -> io::Result<()> {
        self.protect(range, MprotectFlags::empty())
    }

    /// Maps a part of a file at a range, shared, for reading only. `offset` is of whole pages.
    ///
    /// # Errors
    /// The error of `mmap(2)`. Afterwards the contents are not known: [`clear`](Reserved::clear)
    /// the range.
    ///
    /// # Safety
    /// There is no reference to the memory that was there. Readers of the range know that the file
    /// has so many bytes, and which process writes to it.
    pub unsafe fn map(
        &self,
        range: Range<usize>,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<()> {
        let at = self.check(&range)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: within the reserved range; the rest is the caller's promise.
        unsafe { mm::mmap(at.cast(), range.len(), ProtFlags::READ, flags, file, offset) }?;
        Ok(())
    }

    /// Takes everything away from a range and closes it: it is as it was at first, but no longer
    /// registered with a userfaultfd.
    ///
    /// # Errors
    /// The error of `mmap(2)`; the contents are then not known.
    ///
    /// # Safety
    /// Nobody reads or writes there from now on.
    pub unsafe fn clear(&self, range: Range<usize>) -> io::Result<()> {
        let at = self.check(&range)?;
        if !range.is_empty() {
            let flags = FLAGS | MapFlags::FIXED;
            // SAFETY: within the reserved range; the rest is the caller's promise.
            unsafe { mm::mmap_anonymous(at.cast(), range.len(), ProtFlags::empty(), flags) }?;
            self.no_huge(range);
        }
        Ok(())
    }

    /// Gives a range up for good, addresses and all. The memory there is unmapped if the kernel
    /// can; returns whether it could. All other addresses are then kept until the process ends.
    ///
    /// # Safety
    /// Nobody reads or writes there from now on, nor calls anything here for that range again.
    pub unsafe fn abandon(&self, range: Range<usize>) -> bool {
        self.holed.store(true, Ordering::Relaxed);
        // SAFETY: within the reserved range; the rest is the caller's promise.
        self.check(&range).is_ok_and(|at| unsafe { mm::munmap(at.cast(), range.len()) }.is_ok())
    }

    /// The memory of a message comes there page by page, and huge pages by moving; no huge page is
    /// to appear because one byte is touched.
    fn no_huge(&self, range: Range<usize>) {
        if let Ok(at) = self.check(&range) {
            // SAFETY: within the reserved range; contents stay. A kernel without huge pages
            // refuses.
            let _ = unsafe { mm::madvise(at.cast(), range.len(), Advice::LinuxNoHugepage) };
        }
    }

    fn protect(&self, range: Range<usize>, to: MprotectFlags) -> io::Result<()> {
        let at = self.check(&range)?;
        // SAFETY: within the reserved range; the closer has promised that nobody reads there.
        Ok(unsafe { mm::mprotect(at.cast(), range.len(), to) }?)
    }

    fn check(&self, range: &Range<usize>) -> Result<*mut u8, Errno> {
        let page = |at: usize| at.is_multiple_of(page_size());
        let fits = range.start <= range.end && range.end <= self.len;
        if fits && page(range.start) && page(range.end) {
            Ok(self.as_ptr().wrapping_add(range.start))
        } else {
            Err(Errno::INVAL)
        }
    }
}

const FLAGS: MapFlags = MapFlags::PRIVATE.union(MapFlags::NORESERVE);

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.holed.load(Ordering::Relaxed) {
            // Something of it may be somebody else's.
            return;
        }
        // SAFETY: ours alone; pointers into it are their takers' to keep within its life.
        let done = unsafe { mm::munmap(self.at.as_ptr().cast(), self.len) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::mem::memfd;

    const PAGE: usize = 4096;

    /// Returns whether a byte can be read, by a call that says so instead of faulting.
    fn reads(reserved: &Reserved, at: usize) -> Option<u8> {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let byte = reserved.as_ptr().wrapping_add(at);
        // SAFETY: the kernel checks the address itself.
        let wrote = unsafe { libc::write(std::os::fd::AsRawFd::as_raw_fd(&write), byte.cast(), 1) };
        let mut got = [0];
        (wrote == 1).then(|| {
            rustix::io::read(&read, &mut got).unwrap();
            got[0]
        })
    }

    #[test]
    fn closed_ranges_show_nothing() {
        let reserved = Reserved::new(8 * PAGE, 2 << 20).unwrap();
        assert_eq!((reserved.as_ptr().addr() % (2 << 20), reserved.len()), (0, 8 * PAGE));
        assert_eq!(reads(&reserved, PAGE), None);
        reserved.open(PAGE..3 * PAGE).unwrap();
        assert_eq!([0, PAGE, 3 * PAGE].map(|at| reads(&reserved, at)), [None, Some(0), None]);
        // SAFETY: it was opened.
        unsafe { reserved.as_ptr().add(PAGE).write(7) };
        // SAFETY: there are no references.
        unsafe { reserved.close(PAGE..2 * PAGE) }.unwrap();
        assert_eq!(reads(&reserved, PAGE), None);
        reserved.open(PAGE..2 * PAGE).unwrap();
        assert_eq!(reads(&reserved, PAGE), Some(7));
        // SAFETY: as above.
        unsafe { reserved.clear(0..4 * PAGE) }.unwrap();
        assert_eq!(reads(&reserved, PAGE), None);
        reserved.open(PAGE..2 * PAGE).unwrap();
        assert_eq!(reads(&reserved, PAGE), Some(0));
    }

    #[test]
    fn files_are_there_for_reading() {
        let file = memfd::create_fixed("pinfold-test", 4 * PAGE).unwrap();
        rustix::io::pwrite(&file, &[5; PAGE], PAGE as u64).unwrap();
        let reserved = Reserved::new(8 * PAGE, PAGE).unwrap();
        // SAFETY: there are no references, and nobody writes to the file.
        unsafe { reserved.map(2 * PAGE..3 * PAGE, file.as_fd(), PAGE as u64) }.unwrap();
        let seen = [PAGE, 2 * PAGE, 3 * PAGE].map(|at| reads(&reserved, at));
        assert_eq!(seen, [None, Some(5), None]);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let at = format!("{:x}-", reserved.as_ptr().addr() + 2 * PAGE);
        let line = maps.lines().find(|line| line.starts_with(&at)).unwrap();
        assert_eq!(line.split(' ').nth(1), Some("r--s"), "{line}");
        // SAFETY: as above.
        unsafe { reserved.clear(0..8 * PAGE) }.unwrap();
        assert_eq!(reads(&reserved, 2 * PAGE), None);
    }

    #[test]
    fn what_is_no_range_is_refused() {
        assert!(Reserved::new(0, PAGE).is_err() && Reserved::new(PAGE, 3 * PAGE).is_err());
        assert!(Reserved::new(usize::MAX, PAGE).is_err());
        let reserved = Reserved::new(4 * PAGE, 1).unwrap();
        for bad in [1..PAGE, 0..PAGE + 1, 0..5 * PAGE, 5 * PAGE..5 * PAGE] {
            assert!(reserved.open(bad.clone()).is_err());
            // SAFETY: nothing is there.
            assert!(unsafe { reserved.clear(bad) }.is_err());
        }
    }

    #[test]
    fn what_was_abandoned_is_left_alone() {
        let reserved = Reserved::new(4 * PAGE, PAGE).unwrap();
        let start = reserved.as_ptr().wrapping_add(PAGE);
        // SAFETY: nothing is there.
        assert!(unsafe { reserved.abandon(PAGE..2 * PAGE) });
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: takes a place that is free.
        let got = unsafe { mm::mmap_anonymous(start.cast(), PAGE, ProtFlags::READ, flags) };
        assert_eq!(got.unwrap(), start.cast());
        drop(reserved);
        // SAFETY: mapped above, and still there.
        assert_eq!(unsafe { start.read_volatile() }, 0);
    }
}
