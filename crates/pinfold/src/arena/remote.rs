#![allow(unsafe_code)]
//! Extents of peers, mapped here.
//!
//! **Invariant.** No reference to bytes of a mapping ever exists: its owner can write them at any
//! time. [`Mapping::get`] hands out raw pointers, bounded, to copy out of.

use std::os::fd::BorrowedFd;

use pinfold_sys::{
    mapping::{ReadOnlyMapping, SharedMapping},
    memfd::{self, SealError},
};

use super::committed::BLOCK_BYTES;
use crate::{Error, Result};

/// A peer's extent.
pub(crate) struct Mapping {
    kind: Kind,
}

enum Kind {
    ReadOnly(ReadOnlyMapping),
    Writable(SharedMapping),
}

impl Mapping {
    /// Maps what a peer sent, to be read. The kernel refuses to make the mapping writable.
    ///
    /// # Errors
    /// [`Error::Os`] if it is no memfd of exactly that size, or could still shrink or be sealed
    /// further; `ENOMEM` where the address space or the number of mappings is exhausted.
    pub(crate) fn map_readonly(fd: BorrowedFd<'_>, bytes_max: u64) -> Result<Mapping> {
        let len = check(fd, bytes_max)?;
        // Aligned as at its owner, so that huge pages are mapped as such.
        let mapping = ReadOnlyMapping::map(fd, len, BLOCK_BYTES).map_err(mmap)?;
        Ok(Mapping { kind: Kind::ReadOnly(mapping) })
    }

    /// Maps what a peer sent, to be read and written.
    ///
    /// # Errors
    /// As for [`Mapping::map_readonly`]; `EPERM` if the owner has it sealed for readers.
    pub(crate) fn map_writable(fd: BorrowedFd<'_>, bytes_max: u64) -> Result<Mapping> {
        let len = check(fd, bytes_max)?;
        let mapping = SharedMapping::map_aligned(fd, len, BLOCK_BYTES).map_err(mmap)?;
        Ok(Mapping { kind: Kind::Writable(mapping) })
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
