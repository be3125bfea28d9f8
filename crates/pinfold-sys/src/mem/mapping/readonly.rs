//! Mappings of shared files that can only be read.

use std::{io, ops::Range, os::fd::BorrowedFd};

use rustix::{
    io::Errno,
    mm::{Advice, ProtFlags},
    param::page_size,
};

use super::span::Span;
use crate::failed::may_be_denied;

/// A mapping of a shared file that can only be read, absent from children of `fork(2)`.
///
/// Its bytes can be written by other processes: copy them out, never take a `&` to them.
#[derive(Debug)]
pub struct ReadOnlyMapping(Span);

impl ReadOnlyMapping {
    /// Maps the first `len` bytes of `fd` at a multiple of `align`, a power of two.
    ///
    /// Memory behind the end of the file faults with `SIGBUS`: check a peer's descriptor with
    /// [`check_sealed`](crate::mem::memfd::check_sealed) first. See `mmap(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a `len` of 0, `ENOMEM` where the address space or the number of mappings
    /// is exhausted, `EACCES` if the file may not be read.
    pub fn map(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<ReadOnlyMapping> {
        Ok(ReadOnlyMapping(Span::map(fd, len, align, ProtFlags::READ)?))
    }

    /// As [`ReadOnlyMapping::map`], of a file [without writers](crate::mem::memfd::has_no_writers),
    /// or one that is to become so: the mapping is private (`MAP_PRIVATE`). Kernels before 6.7
    /// refuse shared mappings of such files by descriptors that could write, and put the seal on no
    /// file that has one.
    ///
    /// # Errors
    /// As for [`ReadOnlyMapping::map`].
    pub fn map_private(fd: BorrowedFd<'_>, len: usize, align: usize) -> io::Result<Self> {
        Ok(ReadOnlyMapping(Span::map_private(fd, len, align)?))
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Bytes mapped; never 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the file has every page of `range` (byte offsets), and none of them is
    /// swapped out. Takes no memory. The kernel tells this only to a process that owns the file or
    /// may write it, and says yes to all others. About 50 ns a page; stops at the first megabytes
    /// that lack some. See `mincore(2)`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; else the kernel's error.
    pub fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        self.0.is_resident(range)
    }

    /// Has the kernel begin to read the swapped-out pages of `range` (byte offsets). Takes no
    /// memory for pages that the file does not have. One `madvise(MADV_WILLNEED)`.
    ///
    /// # Errors
    /// `EINVAL` for a range outside the mapping; else the kernel's error.
    pub fn fetch(&self, range: Range<usize>) -> io::Result<()> {
        self.0.fetch(range)
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
        self.0.check(&range)?;
        let range = range.start / page_size() * page_size()..range.end;
        loop {
            match self.0.advise(range.clone(), Advice::LinuxPopulateRead) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::INVAL) | Ok(()) => return Ok(()),
                // Each page is mapped as it is read.
                Err(errno) if may_be_denied(errno) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}
