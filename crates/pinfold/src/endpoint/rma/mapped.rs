#![allow(unsafe_code)]
//! A peer's region that is mapped here: reads and writes.
//!
//! **Invariant.** Both loans, of the memory and of the word that says whether it stands, are given
//! back when the last clone is dropped, not before, and the endpoint is kept until then. So the
//! mappings are there; offsets are checked against the length that was lent, which lies inside. The
//! owner and other peers may write the memory at any time, so no reference to its bytes is formed.

use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use super::atomics::{AtomicChange, AtomicWord};
use crate::{
    Error, Path, Receipt, Result,
    copy::Largest,
    error::inside,
    failpoint::{self, Point},
    memory::{arena::Cells, imported_extents::Held},
    policy::route::Why,
    protocol::rma::{open, way::Lent},
    transport::shm::validity,
    worker::{shared::Shared, unlocked_copy::Purpose},
};

pub(crate) struct Mapped {
    pub lent: Lent,
    pub stamp: u64,
    pub shared: Arc<Shared>,
    /// True if the owner is this process, so that threads of it may use the memory, too.
    pub own: bool,
}

/// The receipt of one copy by this processor.
#[inline(always)]
pub(crate) fn receipt(len: usize, by: Largest) -> Receipt {
    Receipt::copied(Path::Mapped, len as u64, Why::NOT_ASKED, by)
}

impl Mapped {
    #[inline(always)]
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<Largest> {
        let at = self.writable(offset, data.len())?;
        let by = self.put(at, data);
        self.confirm()?;
        Ok(by)
    }

    #[inline(always)]
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<Largest> {
        let at = self.readable(offset, into.len())?;
        let by = self.get(at, into);
        // The read comes before the look.
        fence(Ordering::Acquire);
        self.confirm()?;
        Ok(by)
    }

    /// Returns the number of bytes, and how the largest part was copied.
    pub(crate) fn write_vectored(&self, parts: &[(u64, &[u8])]) -> Result<(usize, Largest)> {
        let (mut bytes, mut by) = (0, Largest::NONE);
        for (offset, data) in parts {
            self.writable(*offset, data.len())?;
            bytes += data.len();
        }
        for (offset, data) in parts {
            let at = self.writable(*offset, data.len())?;
            by = by.and(self.put(at, data));
        }
        self.confirm()?;
        Ok((bytes, by))
    }

    /// Returns the number of bytes, and how the largest part was copied.
    pub(crate) fn read_vectored(&self, parts: &mut [(u64, &mut [u8])]) -> Result<(usize, Largest)> {
        let (mut bytes, mut by) = (0, Largest::NONE);
        for (offset, into) in parts.iter() {
            self.readable(*offset, into.len())?;
            bytes += into.len();
        }
        for (offset, into) in parts {
            let at = self.readable(*offset, into.len())?;
            by = by.and(self.get(at, into));
        }
        fence(Ordering::Acquire);
        self.confirm()?;
        Ok((bytes, by))
    }

    pub(crate) fn flush(&self) -> Result<()> {
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        fence(Ordering::SeqCst);
        self.confirm()
    }

    fn memory(&self) -> &Held {
        // SAFETY: given back on drop only, and the engine is kept.
        unsafe { self.lent.memory.held() }
    }

    /// The offset of bytes in the mapping, ready to be touched.
    #[inline]
    fn readable(&self, offset: u64, len: usize) -> Result<u64> {
        let len = len as u64;
        inside(offset, len, self.lent.len)?;
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        let at = self.lent.memory.offset + offset;
        let prepared = self.memory().mapping.prepare(at, len);
        prepared.map_err(|error| Error::os("madvise", "a peer's region", error))?;
        Ok(at)
    }

    #[inline]
    fn writable(&self, offset: u64, len: usize) -> Result<u64> {
        if !self.lent.writable {
            return Err(Error::ReadOnly);
        }
        self.readable(offset, len)
    }

    /// The whole region as cells, and its offset in the mapping, from which `at` of
    /// [`Mapped::readable`] counts.
    fn cells(&self) -> Option<(Cells, u64)> {
        let from = self.lent.memory.offset;
        let at = self.memory().mapping.get(from, self.lent.len)?;
        let at = NonNull::new(at.cast_mut())?;
        // SAFETY: mapped as long as `self`; written only after `writable`. Within this process it
        // is reached atomically only: by this, or by its owner's cells. It lies at a multiple of
        // 64.
        Some((unsafe { Cells::new(at, self.lent.len as usize) }, from))
    }

    /// The address of `len` bytes at `offset`, for a copy by other code.
    pub(crate) fn to_write(&self, offset: u64, len: usize) -> Result<*mut u8> {
        let at = self.writable(offset, len)?;
        self.memory().mapping.get_mut(at, len as u64).ok_or(Error::ReadOnly)
    }

    /// As [`Mapped::to_write`], for reading.
    pub(crate) fn to_read(&self, offset: u64, len: usize) -> Result<*const u8> {
        let at = self.readable(offset, len)?;
        self.memory().mapping.get(at, len as u64).ok_or(Error::Withdrawn)
    }

    /// Writes bytes that were found to be [writable](Mapped::writable).
    #[inline]
    fn put(&self, at: u64, data: &[u8]) -> Largest {
        let mapping = &self.memory().mapping;
        if self.own || data.len() <= 64 {
            if let Some((cells, from)) = self.cells() {
                cells.write((at - from) as usize, data);
            }
        } else if let Some(to) = mapping.get_mut(at, data.len() as u64) {
            // SAFETY: writable for so many bytes; no thread of this process reaches them but in
            // the same way, as raw bytes of another process.
            let by =
                unsafe { self.shared.copy_unlocked(Purpose::WRITE, data.as_ptr(), to, data.len()) };
            return by;
        }
        Largest::NONE
    }

    /// Reads bytes that were found to be [readable](Mapped::readable).
    #[inline]
    fn get(&self, at: u64, into: &mut [u8]) -> Largest {
        let mapping = &self.memory().mapping;
        if self.own || into.len() <= 64 {
            if let Some((cells, from)) = self.cells() {
                cells.read((at - from) as usize, into);
            }
        } else if let Some(from) = mapping.get(at, into.len() as u64) {
            // SAFETY: as in `put`.
            let by = unsafe {
                self.shared.copy_unlocked(Purpose::READ, from, into.as_mut_ptr(), into.len())
            };
            return by;
        }
        Largest::NONE
    }

    /// The word at `offset` of the region, for atomic operations of `size` bytes.
    #[inline]
    pub(crate) fn word(&self, offset: u64, size: usize) -> Result<*mut u8> {
        if !offset.is_multiple_of(size as u64) {
            return Err(Error::Misaligned { offset, size: size as u64 });
        }
        let at = self.writable(offset, size)?;
        self.memory().mapping.get_mut(at, size as u64).ok_or(Error::ReadOnly)
    }

    /// Checks that the region still stood after the operations before.
    #[inline]
    pub(crate) fn confirm(&self) -> Result<()> {
        failpoint::hit(Point::InOperation);
        // SAFETY: as in `memory`.
        let flag = unsafe { self.lent.flag.held() };
        let stands = flag.mapping.get(self.lent.flag.offset, 8).is_some_and(|at| {
            // SAFETY: eight bytes of the mapping, at a multiple of 8, reached atomically.
            let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(at.cast_mut().cast()) };
            validity::stands(word, self.stamp, self.lent.fence)
        });
        let held = self.memory();
        if held.orphaned.load(Ordering::Relaxed) || held.tie.is_over() {
            return Err(Error::Withdrawn);
        }
        if stands { Ok(()) } else { Err(Error::Revoked) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Ok(mut engine) = self.shared.enter() {
            open::give_region_back(&mut engine.core.imported, &self.lent);
        }
    }
}

/// Changes the word at `offset` of mapped memory, which has to stand still.
#[inline]
pub(crate) fn on_mapped<W: AtomicWord>(
    mapped: &Mapped,
    offset: u64,
    change: AtomicChange<W>,
) -> Result<W> {
    let at = mapped.word(offset, size_of::<W>())?;
    // SAFETY: found to be a word just now.
    let was = unsafe { W::change(at, change) };
    mapped.confirm()?;
    Ok(was)
}
