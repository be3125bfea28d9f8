#![allow(unsafe_code)]
//! A peer's region that is not mapped here: the kernel reads and writes it (`process_vm_readv(2)`,
//! `process_vm_writev(2)`).
//!
//! **Invariant.** On this side the kernel is given only memory that the caller has lent for the
//! call, for as long as it lasts. On the other it is given addresses inside the region that the
//! owner named, in a process that is known to be the owner's: if that is this one, the library
//! itself has named them, and keeps them while a [`Hazard`] lasts.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use pinfold_sys::process::{RemoteSegment, Segment, read_remote, read_remote_into, write_remote};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::flag::Flag;
use crate::{
    Error, Path, Receipt, Refusal, Result,
    error::inside,
    failpoint::{self, Point},
    memory::segments::{self, List},
    protocol::rma::way::Reached,
    transport::shm::hazards::Hazard,
    worker::shared::Shared,
};

/// Bytes of one call. A region that is revoked is noticed between calls, and until then its memory
/// is kept.
const BYTES_A_CALL: usize = 1 << 20;

pub(super) struct CmaRegion {
    reached: Reached,
    id: u64,
    shared: Arc<Shared>,
    /// The owner's count of withdrawals when the region was last seen to stand.
    known: AtomicU64,
    /// The word that says whether the region stands, if it is mapped here.
    flag: Option<Flag>,
}

/// A part of a transfer, in either direction.
struct Part {
    here: Segment,
    there: u64,
}

/// One of the two system calls.
type Call = unsafe fn(u32, &[Segment], &[RemoteSegment]) -> io::Result<usize>;

impl CmaRegion {
    pub(super) fn new(reached: Reached, id: u64, shared: Arc<Shared>) -> CmaRegion {
        // The region has not been seen to stand yet.
        CmaRegion { reached, id, shared, known: AtomicU64::new(u64::MAX), flag: None }
    }

    /// The same with a flag that is mapped here. Looking at it saves a system call each time.
    pub(super) fn with_flag(mut self, flag: Option<Flag>) -> CmaRegion {
        self.flag = flag;
        self
    }

    fn len(&self) -> u64 {
        self.reached.spot.len
    }

    fn is_writable(&self) -> bool {
        self.reached.spot.writable
    }

    pub(super) fn why_not_mapped(&self) -> Refusal {
        self.reached.why_not_mapped
    }

    pub(super) fn write(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        if !self.is_writable() {
            return Err(Error::ReadOnly);
        }
        let parts = parts.iter().map(|(at, data)| (*at, data.as_ptr().cast_mut(), data.len()));
        let parts = self.locate(parts)?;
        let hazard = self.hazard()?;
        // Its process id may be another process's by now.
        if !self.reached.cma_access.is_alive() {
            return Err(Error::Withdrawn);
        }
        // SAFETY: the parts are borrowed, and only read.
        unsafe { self.carry(&hazard, &parts, write_remote, "process_vm_writev")? };
        self.confirm()?;
        Ok(self.receipt(&parts))
    }

    pub(super) fn read(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let parts = parts.iter_mut().map(|(at, into)| (*at, into.as_mut_ptr(), into.len()));
        let parts = self.locate(parts)?;
        let hazard = self.hazard()?;
        // SAFETY: the parts are borrowed mutably.
        unsafe { self.carry(&hazard, &parts, read_remote, "process_vm_readv")? };
        // A flag found in its place also proves that this was the right process; a flag that is
        // mapped here does not.
        if self.flag.is_some() && !self.reached.cma_access.is_alive() {
            return Err(Error::Withdrawn);
        }
        self.confirm()?;
        Ok(self.receipt(&parts))
    }

    pub(super) fn flush(&self) -> Result<()> {
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        // A flag that is mapped here outlives its owner, and an owner that was killed tells nobody.
        if self.flag.is_some() && !self.reached.cma_access.is_alive() {
            return Err(Error::Withdrawn);
        }
        self.confirm()
    }

    /// The parts in the owner's memory. All of them lie inside the region.
    fn locate(
        &self,
        parts: impl Iterator<Item = (u64, *mut u8, usize)>,
    ) -> Result<SmallVec<[Part; 1]>> {
        let part = |(offset, ptr, len)| {
            inside(offset, len as u64, self.len())?;
            // No overflow: the end of the region has an address.
            Ok(Part { here: Segment { ptr, len }, there: self.reached.spot.memory + offset })
        };
        parts.map(part).collect()
    }

    /// Announces this thread to the owner.
    fn hazard(&self) -> Result<Hazard<'_>> {
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        let hazard = self.reached.cma_access.hazard(self.id)?;
        self.stay(hazard.withdrawals)?;
        Ok(hazard)
    }

    /// Checks that the region may be touched, now that the owner knows of this thread;
    /// `withdrawals` was seen after that.
    fn stay(&self, withdrawals: u64) -> Result<()> {
        if self.reached.cma_access.hazards.is_over() {
            return Err(Error::Withdrawn);
        }
        if withdrawals != self.known.load(Ordering::Relaxed) {
            self.confirm()?;
            self.known.store(withdrawals, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies all parts by the kernel, in order.
    ///
    /// # Safety
    /// The contract of `call` for their memory on this side.
    unsafe fn carry(
        &self,
        hazard: &Hazard<'_>,
        parts: &[Part],
        call: Call,
        name: &'static str,
    ) -> Result<()> {
        let cma_access = &self.reached.cma_access;
        failpoint::hit(Point::BeforeCarried);
        let (mut first, mut skip, mut is_first) = (0, 0, true);
        loop {
            let (here, there) = batch(&parts[first..], skip);
            if here.is_empty() {
                failpoint::hit(Point::AfterCarried);
                return Ok(());
            }
            if !is_first {
                let now = cma_access.hazards.withdrawals().load(Ordering::Acquire);
                if now != hazard.withdrawals {
                    self.stay(now)?;
                }
            }
            is_first = false;
            // SAFETY: for this side's memory by contract; the other side's lies in the region,
            // which the owner keeps while it sees the visit.
            let mut done = match unsafe { call(cma_access.pid, &here, &there) } {
                Ok(0) => return Err(self.failure(name, Errno::FAULT.into())),
                Ok(bytes) => bytes,
                Err(error) => return Err(self.failure(name, error)),
            };
            while let Some(part) = parts.get(first)
                && done >= part.here.len - skip
            {
                done -= part.here.len - skip;
                (first, skip) = (first + 1, 0);
            }
            skip += done;
        }
    }

    /// The error of a call that failed: the region is gone, or else the kernel's error.
    fn failure(&self, call: &'static str, error: io::Error) -> Error {
        // A flag that is mapped here outlives its owner.
        if Errno::from_io_error(&error) == Some(Errno::SRCH) || !self.reached.cma_access.is_alive()
        {
            return Error::Withdrawn;
        }
        self.confirm().err().unwrap_or_else(|| Error::os(call, "a peer's region", error))
    }

    /// Checks that the region still stood after the operations before.
    fn confirm(&self) -> Result<()> {
        let Reached { spot, cma_access, .. } = &self.reached;
        if let Some(flag) = &self.flag {
            return match flag.stands() {
                _ if cma_access.hazards.is_over() => Err(Error::Withdrawn),
                true => Ok(()),
                false => Err(Error::Revoked),
            };
        }
        // The other half is the owner's barrier, when it revokes the region.
        fence(Ordering::SeqCst);
        let mut word = [0; 8];
        let read = read_remote_into(cma_access.pid, spot.flag, &mut word);
        // An owner that has closed has given the flag's memory back after that.
        if cma_access.hazards.is_over()
            || !stands(&read, word, spot.stamp) && !cma_access.is_alive()
        {
            return Err(Error::Withdrawn);
        }
        match read {
            Ok(_) if stands(&read, word, spot.stamp) => Ok(()),
            Ok(_) => Err(Error::Revoked),
            Err(error) => match Errno::from_io_error(&error) {
                // The flag was the last in its part of memory.
                Some(Errno::FAULT) => Err(Error::Revoked),
                Some(Errno::SRCH) => Err(Error::Withdrawn),
                _ => Err(Error::os("process_vm_readv", "a peer's region", error)),
            },
        }
    }

    /// The receipt of a copy by the kernel.
    fn receipt(&self, parts: &[Part]) -> Receipt {
        let bytes = parts.iter().map(|part| part.here.len as u64).sum();
        let mut receipt = Receipt::new(Path::Cma, bytes);
        receipt.copied_kernel = bytes;
        receipt.refuse(Path::Mapped, self.why_not_mapped());
        receipt
    }
}

fn stands(read: &io::Result<usize>, word: [u8; 8], stamp: u64) -> bool {
    matches!(read, Ok(8)) && u64::from_ne_bytes(word) == stamp
}

/// The segments of one call: those of `parts`, less the first `skip` bytes. On each side adjacent
/// parts are one segment. Where there is no more room on that side, this one may have a part more:
/// the kernel copies the bytes that both have.
fn batch(parts: &[Part], skip: usize) -> (List<Segment>, List<RemoteSegment>) {
    let (mut here, mut there) = (List::new(), List::new());
    let (mut skip, mut left) = (skip, BYTES_A_CALL);
    for part in parts {
        let len = (part.here.len - skip).min(left);
        if len > 0 {
            let ptr = part.here.ptr.wrapping_add(skip);
            let addr = part.there + skip as u64;
            let room = segments::push(&mut here, Segment { ptr, len })
                && segments::push(&mut there, RemoteSegment { addr, len: len as u64 });
            if !room {
                break;
            }
        }
        left -= len;
        if left == 0 {
            break;
        }
        skip = 0;
    }
    (here, there)
}

impl Drop for CmaRegion {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            // The state that both sides share did not come along.
            std::mem::forget(Arc::clone(&self.reached.cma_access));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
