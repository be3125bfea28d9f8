#![allow(unsafe_code)]
//! Extents of peers, mapped here.
//!
//! **Invariant.** No reference to bytes of a mapping ever exists: its owner can write them at any
//! time. [`Mapping::get`] hands out raw pointers, bounded, to copy out of.
//!
//! A peer may send a file without memory in it. Before a part is first read the kernel is asked to
//! map it ([`Mapping::prepare`]), which fails, where touching it would be a `SIGBUS`; and what is
//! in a file that is sealed against writers stays there, for the same seal refuses holes.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use pinfold_sys::{
    mapping::{ReadOnlyMapping, SharedMapping},
    memfd::{self, SealError},
};

use super::committed::BLOCK_BYTES;
use crate::{Error, Result};

/// Bytes that are prepared at a time, as an exponent.
const PART_SHIFT: u32 = 18;

/// A peer's extent.
pub(crate) struct Mapping {
    kind: Kind,
    /// A bit for each part that was prepared. Relaxed: a part that is prepared twice is no harm.
    prepared: Box<[AtomicU64]>,
}

enum Kind {
    ReadOnly(ReadOnlyMapping),
    Writable(SharedMapping),
}

impl Mapping {
    /// Maps what a peer sent, to be read. The kernel refuses to make the mapping writable.
    ///
    /// # Errors
    /// [`Error::Os`] if it is no memfd of exactly that size, could still shrink or be sealed
    /// further, or has no seal against writers; `ENOMEM` where the address space or the number of mappings is exhausted.
    pub(crate) fn map_readonly(fd: BorrowedFd<'_>, bytes_max: u64) -> Result<Mapping> {
        let len = check(fd, bytes_max)?;
        if !memfd::refuses_writers(fd) {
            return Err(mmap(rustix::io::Errno::PERM.into()));
        }
        // Aligned as at its owner, so that huge pages are mapped as such.
        let mapping = ReadOnlyMapping::map(fd, len, BLOCK_BYTES).map_err(mmap)?;
        Ok(Mapping::new(Kind::ReadOnly(mapping), len))
    }

    /// Maps what a peer sent, to be read and written.
    ///
    /// # Errors
    /// As for [`Mapping::map_readonly`]; `EPERM` if the owner has it sealed for readers.
    pub(crate) fn map_writable(fd: BorrowedFd<'_>, bytes_max: u64) -> Result<Mapping> {
        let len = check(fd, bytes_max)?;
        let mapping = SharedMapping::map_aligned(fd, len, BLOCK_BYTES).map_err(mmap)?;
        Ok(Mapping::new(Kind::Writable(mapping), len))
    }

    fn new(kind: Kind, len: usize) -> Mapping {
        let words = (len >> PART_SHIFT) / 64 + 1;
        Mapping { kind, prepared: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Makes sure that the `len` bytes at `offset`, which lie inside, can be touched. The first
    /// time that takes a system call for 256 KiB, later a load.
    ///
    /// # Errors
    /// `ENOMEM` or `EFAULT` where memory ran out; `EINVAL` if they do not lie inside.
    #[inline]
    pub(crate) fn prepare(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len());
        let end = end.ok_or(rustix::io::Errno::INVAL)?;
        let (mut part, last) = (offset >> PART_SHIFT, end.saturating_sub(1) >> PART_SHIFT);
        while part <= last && len > 0 {
            let (word, bit) = (&self.prepared[part as usize / 64], 1 << (part % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                self.populate(part)?;
                word.fetch_or(bit, Ordering::Relaxed);
            }
            part += 1;
        }
        Ok(())
    }

    #[cold]
    fn populate(&self, part: u64) -> io::Result<()> {
        let start = (part << PART_SHIFT) as usize;
        let range = start..(start + (1 << PART_SHIFT)).min(self.len() as usize);
        match &self.kind {
            Kind::ReadOnly(mapping) => mapping.populate(range),
            Kind::Writable(mapping) => mapping.populate(range),
        }
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> u64 {
        match &self.kind {
            Kind::ReadOnly(mapping) => mapping.len() as u64,
            Kind::Writable(mapping) => mapping.len() as u64,
        }
    }

    /// The `len` bytes at `offset`, if they lie inside. Valid for reads as long as the mapping is
    /// there, by raw copies and atomic loads only.
    #[inline]
    pub(crate) fn get(&self, offset: u64, len: u64) -> Option<*const u8> {
        let at = match &self.kind {
            Kind::ReadOnly(mapping) => mapping.as_ptr(),
            Kind::Writable(mapping) => mapping.as_ptr().cast_const(),
        };
        // SAFETY: within the mapping by the check.
        self.has(offset, len).then(|| unsafe { at.add(offset as usize) })
    }

    /// As [`Mapping::get`], valid for writes, too. `None` also if the mapping is read-only.
    #[inline]
    pub(crate) fn get_mut(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let Kind::Writable(mapping) = &self.kind else { return None };
        // SAFETY: within the mapping by the check.
        self.has(offset, len).then(|| unsafe { mapping.as_ptr().add(offset as usize) })
    }

    #[inline]
    fn has(&self, offset: u64, len: u64) -> bool {
        offset <= self.len() && len <= self.len() - offset
    }
}

fn check(fd: BorrowedFd<'_>, bytes_max: u64) -> Result<usize> {
    let refused = |error: SealError| {
        let error = std::io::Error::new(std::io::ErrorKind::InvalidInput, error);
        Error::os("mmap", "the arena of a peer", error)
    };
    let wrong = SealError::Size { found: 0, wanted: bytes_max };
    let len = usize::try_from(bytes_max).ok().filter(|len| *len > 0);
    let len = len.ok_or(wrong).map_err(refused)?;
    memfd::check_sealed(fd, len).map_err(refused)?;
    Ok(len)
}

fn mmap(error: std::io::Error) -> Error {
    Error::os("mmap", "the arena of a peer", error)
}
