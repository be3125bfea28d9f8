//! Bytes that the kernel reads from, or writes to, pinned pages.
#![allow(unsafe_code)]
// Invariant: an operation is awaited before its call returns, so the kernel reaches nothing later.
// The kernel checks that the bytes lie in the slot's range; only `read_in` writes there, and its
// caller answers for the bytes.

use std::{
    io,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
    sync::PoisonError,
};

use io_uring::{opcode, squeue, types::Fd};
use rustix::io::Errno;

use super::{Error, Locked, Reason, Registered, SlotId};

const PWRITE: &str = "pwrite(2)";

/// The direction of the bytes.
#[derive(Clone, Copy)]
enum Way {
    /// From the pinned pages to a file.
    Out,
    /// From a file to the pinned pages.
    In,
}

impl Way {
    fn call(self) -> &'static str {
        match self {
            Way::Out => "io_uring_enter (IORING_OP_WRITE_FIXED)",
            Way::In => "io_uring_enter (IORING_OP_READ_FIXED)",
        }
    }
}

impl Registered {
    /// Writes `bytes`, addresses within the range of `slot`, to a file from byte `offset` on, out
    /// of the pinned pages, even if another mapping is there by now; returns how many. Waits. One
    /// at a time, others wait. Some µs; 10 to 20 where the kernel has a worker do it, as for files
    /// in memory.
    ///
    /// # Errors
    /// [`Reason::Stranger`] for a slot of another owner; [`Reason::Unmapped`] if the slot is free,
    /// or does not have all of the bytes; [`Reason::Length`] for 4 GiB and more;
    /// [`Reason::Child`]; `EBUSY` while the ring is a
    /// [`SendRing`](crate::io::send_ring::SendRing)'s; the file's error.
    pub fn write_out(
        &self,
        slot: SlotId,
        bytes: Range<usize>,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Error> {
        // SAFETY: the kernel only reads these pages.
        unsafe { self.transfer(Way::Out, slot, bytes, fd, offset) }
    }

    /// Reads from a file, from byte `offset` on, into `bytes`: as
    /// [`write_out`](Registered::write_out) the other way.
    ///
    /// # Errors
    /// As for [`write_out`](Registered::write_out).
    ///
    /// # Safety
    /// The bytes that were pinned in `slot` are the caller's to change, and nobody has a reference
    /// to them.
    pub unsafe fn read_in(
        &self,
        slot: SlotId,
        bytes: Range<usize>,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Error> {
        // SAFETY: the caller may change these bytes.
        unsafe { self.transfer(Way::In, slot, bytes, fd, offset) }
    }

    /// Moves `bytes` of `slot` from or to a file.
    ///
    /// # Safety
    /// On the way in, as for [`read_in`](Registered::read_in).
    unsafe fn transfer(
        &self,
        way: Way,
        slot: SlotId,
        bytes: Range<usize>,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Error> {
        self.here()?;
        let call = way.call();
        let fail = |errno| Error::new(call, errno).over(&bytes);
        let refuse = |reason| fail(Errno::INVAL).because(reason);
        if slot.owner != self.owner {
            return Err(refuse(Reason::Stranger));
        }
        let index = u16::try_from(slot.index).map_err(|_| refuse(Reason::Stranger))?;
        let len = u32::try_from(bytes.len()).map_err(|_| refuse(Reason::Length))?;
        let (fd, at) = (Fd(fd.as_raw_fd()), ptr::with_exposed_provenance_mut(bytes.start));
        let order = match way {
            Way::Out => opcode::WriteFixed::new(fd, at, len, index).offset(offset).build(),
            Way::In => opcode::ReadFixed::new(fd, at, len, index).offset(offset).build(),
        };
        // SAFETY: on the way out the kernel only reads the pages, on the way in they are the
        // caller's.
        unsafe { self.perform(order) }.map_err(fail)
    }

    /// Has the ring do one thing, and waits for it.
    ///
    /// # Safety
    /// The order's effects on memory are allowed.
    unsafe fn perform(&self, order: squeue::Entry) -> Result<usize, Errno> {
        let _alone = self.transfer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.sends() {
            return Err(Errno::BUSY);
        }
        let ring = &self.ring.0;
        // SAFETY: both queues are used with the lock held alone, and the entry's memory lives until
        // it is done, by the caller's promise and since this waits for it.
        let (mut submissions, mut completions) =
            unsafe { (ring.submission_shared(), ring.completion_shared()) };
        // SAFETY: as above.
        if unsafe { submissions.push(&order) }.is_err() {
            return Err(Errno::AGAIN);
        }
        submissions.sync();
        loop {
            let done = ring.submitter().submit_and_wait(1);
            completions.sync();
            if let Some(done) = completions.next() {
                let result = done.result();
                return usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            }
            match done.map_err(|error| error.raw_os_error()) {
                // A signal, or a shortage that passes: a submitted entry has to be waited for.
                Ok(_) | Err(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => submissions.sync(),
                Err(errno) => return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))),
            }
        }
    }
}

impl Locked {
    /// As [`write_mapped`]: nothing is known by slot here.
    ///
    /// # Errors
    /// As for [`write_mapped`], and [`Reason::Child`].
    pub fn write_out(
        &self,
        bytes: Range<usize>,
        fd: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<usize, Error> {
        self.here()?;
        write_mapped(bytes, fd, offset)
    }
}

/// Writes the memory mapped at `bytes` now to a file from byte `offset` on, as `pwrite(2)` does;
/// returns how many.
///
/// # Errors
/// [`Reason::Unmapped`] if nothing readable is there; the file's error.
pub fn write_mapped(bytes: Range<usize>, fd: BorrowedFd<'_>, offset: u64) -> Result<usize, Error> {
    let at = ptr::with_exposed_provenance::<libc::c_void>(bytes.start);
    let fail = |errno| Error::new(PWRITE, errno).over(&bytes);
    let offset = i64::try_from(offset).map_err(|_| fail(Errno::INVAL))?;
    // SAFETY: the kernel reads the memory there, or says that there is none.
    let done = unsafe { libc::pwrite(fd.as_raw_fd(), at, bytes.len(), offset) };
    usize::try_from(done)
        .map_err(|_| fail(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)))
}
