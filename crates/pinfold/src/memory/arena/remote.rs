#![allow(unsafe_code)]
//! Extents of peers, mapped here.
//!
//! **Invariant.** No reference to bytes of a mapping ever exists, since its owner can write them at
//! any time, unless it [is frozen](Mapping::is_frozen). [`Mapping::get`] hands out raw pointers,
//! bounded, to copy out of.
//!
//! A peer may send a file without memory in it. A process that reads there takes memory for it, out
//! of its own memory control group: a hostile peer could have its victim killed that way. So no
//! page is touched that the file does not have ([`Mapping::prepare`]); and pages of a file that is
//! sealed against writers stay there, for the same seal refuses holes. Where peers may write, the
//! owner can make holes at any time: there each copy that it asks for looks anew
//! ([`Mapping::prepare_copy`]), so that an owner which makes one in the midst of a chunk has that
//! chunk's memory of the copier, at most. When a part is first touched the kernel is asked to map
//! it, which fails where touching it would be a `SIGBUS`.
//!
//! In a forked child the mapping is absent, and another mapping may lie at its addresses.

use std::{
    io,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use pinfold_sys::{
    fork::ForkMark,
    mem::{
        mapping::{ReadOnlyMapping, SharedMapping},
        memfd::{self, SealError},
    },
};

use super::committed::BLOCK_BYTES;
use crate::{Error, Result};

/// Bytes that are prepared at a time, as an exponent.
const PART_SHIFT: u32 = 18;
/// The time that 256 KiB may take to be read back from swap.
const SWAP_PATIENCE: Duration = Duration::from_secs(1);

/// A peer's extent.
pub(crate) struct Mapping {
    kind: ManuallyDrop<Kind>,
    mark: Arc<ForkMark>,
    /// True if nobody can write the file.
    frozen: bool,
    /// A bit for each part that was prepared. Relaxed: to prepare a part twice does no harm.
    prepared: Box<[AtomicU64]>,
}

enum Kind {
    ReadOnly(ReadOnlyMapping),
    Writable(SharedMapping),
}

impl Kind {
    fn is_resident(&self, range: Range<usize>) -> io::Result<bool> {
        match self {
            Kind::ReadOnly(mapping) => mapping.is_resident(range),
            Kind::Writable(mapping) => mapping.is_resident(range),
        }
    }

    fn fetch(&self, range: Range<usize>) -> io::Result<()> {
        match self {
            Kind::ReadOnly(mapping) => mapping.fetch(range),
            Kind::Writable(mapping) => mapping.fetch(range),
        }
    }
}

impl Mapping {
    /// Checks that the file a peer sent can be mapped. Returns its length in bytes.
    ///
    /// # Errors
    /// As for [`Mapping::map_readonly`], except errors of `mmap(2)` itself.
    pub(crate) fn check(fd: BorrowedFd<'_>, bytes_max: u64, writable: bool) -> Result<usize> {
        let refused = |error: SealError| match error {
            SealError::Os(failed) => Error::failed("the arena of a peer")(failed),
            error => mmap(io::Error::new(io::ErrorKind::InvalidInput, error)),
        };
        let wrong = SealError::Size { found: 0, wanted: bytes_max };
        let len = usize::try_from(bytes_max).ok().filter(|len| *len > 0);
        let len = len.ok_or(wrong).map_err(refused)?;
        memfd::check_sealed(fd, len).map_err(refused)?;
        if !writable && !memfd::refuses_writers(fd) {
            return Err(mmap(rustix::io::Errno::PERM.into()));
        }
        Ok(len)
    }

    /// Maps the file a peer sent, for reading. The kernel refuses to make the mapping writable.
    ///
    /// # Errors
    /// [`Error::Os`] if it is no memfd of exactly that size, could still shrink or be sealed
    /// further, or has no seal against writers; `ENOMEM` where the address space or the number
    /// of mappings is exhausted.
    pub(crate) fn map_readonly(
        fd: BorrowedFd<'_>,
        bytes_max: u64,
        mark: &Arc<ForkMark>,
    ) -> Result<Mapping> {
        let len = Mapping::check(fd, bytes_max, false)?;
        let frozen = memfd::has_no_writers(fd);
        let mapping = aligned(|align| match frozen {
            true => ReadOnlyMapping::map_private(fd, len, align),
            false => ReadOnlyMapping::map(fd, len, align),
        });
        Ok(Mapping::new(Kind::ReadOnly(mapping.map_err(mmap)?), len, frozen, mark))
    }

    /// Maps the file a peer sent, for reading and writing.
    ///
    /// # Errors
    /// As for [`Mapping::map_readonly`]; `EPERM` if the owner has it sealed for readers.
    pub(crate) fn map_writable(
        fd: BorrowedFd<'_>,
        bytes_max: u64,
        mark: &Arc<ForkMark>,
    ) -> Result<Mapping> {
        let len = Mapping::check(fd, bytes_max, true)?;
        let mapping = aligned(|align| SharedMapping::map_aligned(fd, len, align)).map_err(mmap)?;
        Ok(Mapping::new(Kind::Writable(mapping), len, false, mark))
    }

    fn new(kind: Kind, len: usize, frozen: bool, mark: &Arc<ForkMark>) -> Mapping {
        let words = (len >> PART_SHIFT) / 64 + 1;
        let prepared = (0..words).map(|_| AtomicU64::new(0)).collect();
        Mapping { kind: ManuallyDrop::new(kind), mark: Arc::clone(mark), frozen, prepared }
    }

    /// Returns whether nobody can write the file, its owner included, now or ever. Its bytes do not
    /// change then, and those that were [prepared](Mapping::prepare) stay there.
    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Returns whether its owner can take memory out of it again.
    pub(crate) fn is_fickle(&self) -> bool {
        matches!(&*self.kind, Kind::Writable(_))
    }

    /// Returns whether the file has memory for the `len` bytes at `offset`, of which as many as lie
    /// inside count. A load for 256 KiB that were prepared before and whose owner cannot take them
    /// away; else up to 50 ns a page. Memory that is swapped out does not count.
    #[inline]
    pub(crate) fn has_memory(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len).min(self.len());
        let fickle = self.is_fickle();
        let first = (offset >> PART_SHIFT..=end.saturating_sub(1) >> PART_SHIFT)
            .find(|part| offset < end && (fickle || !self.is_prepared(*part)));
        first.is_none_or(|part| self.is_resident(part << PART_SHIFT, end))
    }

    #[cold]
    fn is_resident(&self, start: u64, end: u64) -> bool {
        // By whole parts, since memory is prepared by these.
        let end = end.next_multiple_of(1 << PART_SHIFT).min(self.len());
        self.kind.is_resident(start as usize..end as usize).unwrap_or(false)
    }

    #[inline]
    fn is_prepared(&self, part: u64) -> bool {
        let word = self.prepared[part as usize / 64].load(Ordering::Relaxed);
        word & 1 << (part % 64) != 0
    }

    /// As [`Mapping::prepare`], for a copy that its owner has asked for; memory that the owner can
    /// take away is first checked to be there.
    ///
    /// # Errors
    /// As for [`Mapping::prepare`]; `ENODATA` if it is not.
    pub(crate) fn prepare_copy(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.is_fickle() && !self.has_memory(offset, len) {
            return Err(rustix::io::Errno::NODATA.into());
        }
        self.prepare(offset, len)
    }

    /// Makes sure that the `len` bytes at `offset`, which lie inside, can be touched. The first
    /// time that takes two system calls for 256 KiB, later a load.
    ///
    /// # Errors
    /// `ENODATA` where the file has no memory, `ENOMEM` or `EFAULT` where the kernel has none to
    /// map it; `EINVAL` if they do not lie inside.
    #[inline]
    pub(crate) fn prepare(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len());
        let end = end.ok_or(rustix::io::Errno::INVAL)?;
        let (mut part, last) = (offset >> PART_SHIFT, end.saturating_sub(1) >> PART_SHIFT);
        while part <= last && len > 0 {
            if !self.is_prepared(part) {
                self.populate(part)?;
                self.prepared[part as usize / 64].fetch_or(1 << (part % 64), Ordering::Relaxed);
            }
            part += 1;
        }
        Ok(())
    }

    #[cold]
    fn populate(&self, part: u64) -> io::Result<()> {
        let start = (part << PART_SHIFT) as usize;
        let range = start..(start + (1 << PART_SHIFT)).min(self.len() as usize);
        // Where the kernel does not tell, there is no other way to know.
        if !self.kind.is_resident(range.clone()).unwrap_or(true) {
            self.await_swap(range.clone())?;
        }
        match &*self.kind {
            Kind::ReadOnly(mapping) => mapping.populate(range),
            Kind::Writable(mapping) => mapping.populate(range),
        }
    }

    /// Returns when the missing pages of a range were read back from swap.
    fn await_swap(&self, range: Range<usize>) -> io::Result<()> {
        self.kind.fetch(range.clone())?;
        let end = Instant::now() + SWAP_PATIENCE;
        while !self.kind.is_resident(range.clone())? {
            if rustix::system::sysinfo().totalswap == 0 || Instant::now() >= end {
                return Err(rustix::io::Errno::NODATA.into());
            }
            pinfold_sys::cpu::clock::pause(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Returns whether this process is a child of the one that it is mapped in: then the mapping is
    /// not here.
    pub(crate) fn is_absent(&self) -> bool {
        self.mark.is_child()
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> u64 {
        match &*self.kind {
            Kind::ReadOnly(mapping) => mapping.len() as u64,
            Kind::Writable(mapping) => mapping.len() as u64,
        }
    }

    /// The `len` bytes at `offset`, if they lie inside. Valid for reads as long as the mapping is
    /// there, by raw copies and atomic loads only.
    #[inline]
    pub(crate) fn get(&self, offset: u64, len: u64) -> Option<*const u8> {
        let at = match &*self.kind {
            Kind::ReadOnly(mapping) => mapping.as_ptr(),
            Kind::Writable(mapping) => mapping.as_ptr().cast_const(),
        };
        // SAFETY: within the mapping by the check.
        self.has(offset, len).then(|| unsafe { at.add(offset as usize) })
    }

    /// As [`Mapping::get`], valid for writes, too. `None` also if the mapping is read-only.
    #[inline]
    pub(crate) fn get_mut(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let Kind::Writable(mapping) = &*self.kind else { return None };
        // SAFETY: within the mapping by the check.
        self.has(offset, len).then(|| unsafe { mapping.as_ptr().add(offset as usize) })
    }

    #[inline]
    fn has(&self, offset: u64, len: u64) -> bool {
        offset <= self.len() && len <= self.len() - offset
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.mark.is_child() {
            // SAFETY: used no more, and dropped here alone.
            unsafe { ManuallyDrop::drop(&mut self.kind) };
        }
    }
}

/// Maps aligned as at the owner, so that huge pages are mapped as such; where there is no address
/// space to choose from, anywhere: a file that was unmapped can be mapped again where just that
/// much is left.
fn aligned<T>(map: impl Fn(usize) -> io::Result<T>) -> io::Result<T> {
    map(BLOCK_BYTES).or_else(|error| match rustix::io::Errno::from_io_error(&error) {
        Some(rustix::io::Errno::NOMEM) => map(rustix::param::page_size()),
        _ => Err(error),
    })
}

fn mmap(error: std::io::Error) -> Error {
    Error::os("mmap", "the arena of a peer", error)
}
