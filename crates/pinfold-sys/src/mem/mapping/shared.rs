//! Mappings that can be read and written.

use std::{io, ops::Range, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    mm::{Advice, ProtFlags},
    param::page_size,
};

use super::span::Span;
use crate::{failed::may_be_denied, mem::advice};

/// A readable and writable mapping of a shared file from its beginning, or of no file, absent from
/// children of `fork(2)`.
///
/// Its bytes belong to other processes too: reach them by raw pointers, atomically or as bytes
/// copied out, never by `&` or `&mut`.
#[derive(Debug)]
pub struct SharedMapping(pub(super) Span);

impl SharedMapping {
    /// Maps the first `len` bytes of `fd`. No page is touched.
    ///
    /// Memory behind the end of the file faults with `SIGBUS`: check a peer's descriptor with
    /// [`check_sealed`](crate::mem::memfd::check_sealed) first. See `mmap(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the number of mappings
    /// is exhausted, `EACCES` or `EPERM` if the file may not be written.
    pub fn map(fd: BorrowedFd<'_>, len: usize) -> io::Result<SharedMapping> {
        SharedMapping::map_aligned(fd, len, 1)
    }

    /// As [`SharedMapping::map`], at an address that is a multiple of `align`, a power of two.
    /// Takes up to `align` bytes more of address space for a moment.
    ///
    /// # Errors
    /// As for [`SharedMapping::map`].
    pub fn map_aligned(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<SharedMapping> {
        Ok(SharedMapping(Span::map(fd, len, align, ProtFlags::READ | ProtFlags::WRITE)?))
    }

    /// Maps `len` bytes of zeros that no file and no other process has. No page is touched, and no
    /// descriptor is taken.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the number of mappings
    /// is exhausted.
    pub fn anonymous(len: usize) -> io::Result<SharedMapping> {
        Ok(SharedMapping(Span::anonymous(len, ProtFlags::READ | ProtFlags::WRITE)?))
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reserves memory for every page that `range` (byte offsets) touches, so that using it later
    /// neither faults nor dies for want of memory. The contents stay.
    ///
    /// One `madvise(MADV_POPULATE_WRITE)`. Kernels before 5.14 have no such call; there each
    /// page is touched instead, and want of memory is `SIGBUS`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; `ENOMEM` or `EFAULT` where memory ran out.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        if let Some(range) = self.try_populate(range)? {
            self.0.touch(range);
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
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, at, len) {
            // Then the memory comes as it is touched, if there is any.
            Err(errno) if may_be_denied(errno) => {}
            done => done?,
        }
        self.0.touch(range);
        Ok(())
    }

    /// Has the kernel make huge pages of the aligned 2 MiB parts of `range` (byte offsets), each of
    /// which must have a page present already; absent ones are filled with zeros. Does so under any
    /// setting of the system for huge pages of shared memory, short of `deny`, and never calls the
    /// out-of-memory killer. The mapping must be aligned to 2 MiB.
    ///
    /// See `MADV_COLLAPSE` in `madvise(2)`; Linux 6.1.
    ///
    /// # Errors
    /// `EINVAL` where the kernel cannot, `ENOMEM`, `EAGAIN` or `EBUSY` where there are no huge
    /// pages just now. The contents are the same in any case; some parts may have been done.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        self.0.collapse(range)
    }

    /// Gives the memory of every page that lies wholly within `range` (byte offsets) back to
    /// the system, for every process that maps the file. The pages read as zero afterwards.
    /// See `MADV_REMOVE` in `madvise(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; else the kernel's error.
    pub fn release(&self, range: Range<usize>) -> io::Result<()> {
        let page = page_size();
        self.0.check(&range)?;
        let start = range.start.next_multiple_of(page);
        // The last page of the mapping may be a part of one: it is whole when the mapping ends.
        let end = if range.end == self.len() { range.end } else { range.end / page * page };
        if start >= end {
            return Ok(());
        }
        Ok(self.0.advise(start..end, Advice::LinuxRemove)?)
    }

    /// As [`ReadOnlyMapping::is_resident`](super::ReadOnlyMapping::is_resident).
    ///
    /// # Errors
    /// As there.
    pub fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        self.0.is_resident(range)
    }

    /// As [`ReadOnlyMapping::fetch`](super::ReadOnlyMapping::fetch).
    ///
    /// # Errors
    /// As there.
    pub fn fetch(&self, range: Range<usize>) -> io::Result<()> {
        self.0.fetch(range)
    }

    /// The range, by whole pages, if the kernel has no `MADV_POPULATE_WRITE` for it, or a filter
    /// denies that, or it is agreed to and not [followed](advice).
    fn try_populate(&self, range: Range<usize>) -> io::Result<Option<Range<usize>>> {
        self.0.check(&range)?;
        if range.is_empty() {
            return Ok(None);
        }
        let range = range.start / page_size() * page_size()..range.end;
        if !advice::is_followed() {
            return Ok(Some(range));
        }
        loop {
            match self.0.advise(range.clone(), Advice::LinuxPopulateWrite) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) => return Ok(Some(range)),
                Err(errno) if may_be_denied(errno) => return Ok(Some(range)),
                Err(errno) => return Err(errno.into()),
                Ok(()) => return Ok(None),
            }
        }
    }
}
