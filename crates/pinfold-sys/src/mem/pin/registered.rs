//! Pins by buffers that are registered with an io_uring.
#![allow(unsafe_code)]
// Invariant: a slot of the ring's table is filled exactly while `slots` says that it is taken, so
// all pins end when the table is unregistered, on drop. The kernel is given addresses only: it pins
// the memory mapped there or refuses. `transfer.rs` reads and writes these pages.

use std::{
    io,
    mem::ManuallyDrop,
    ops::Range,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use io_uring::IoUring;
use rustix::io::Errno;

use super::{Cost, Error, Pin, Reason, Slot, SlotId, next_owner, slots::Slots};
use crate::fork::ForkMark;

/// Pins pages by registering them as buffers of a ring. See `io_uring_register(2)`; Linux 5.19.
///
/// A child of `fork(2)` has a copy of the ring's descriptor. Dropping this ends all pins all the
/// same; if this process dies instead, they last until the child has closed it.
#[derive(Debug)]
pub struct Registered {
    pub(crate) ring: ManuallyDrop<Ring>,
    slots: Mutex<Slots>,
    /// Held while the ring does something.
    pub(crate) transfer: Mutex<()>,
    /// True if the ring's completions go to a [`SendRing`](crate::io::send_ring::SendRing) alone.
    sends: AtomicBool,
    pub(super) owner: u32,
    mark: ForkMark,
}

pub(crate) struct Ring(pub(crate) IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("IoUring").field(&self.0.as_raw_fd()).finish()
    }
}

/// Entries of a ring's two queues, for orders and for completions: as many as fit into a page each,
/// for they count as locked memory, of which a user may have little.
pub(crate) const ENTRIES: u32 = 32;
pub(crate) const SAYS: u32 = 128;

const UPDATE: &str = "io_uring_register (IORING_REGISTER_BUFFERS_UPDATE)";

impl Registered {
    /// Slots that a ring can have.
    pub const SLOTS_MAX: u32 = 1 << 14;
    /// Bytes that a slot can have.
    pub const BYTES_MAX: usize = 1 << 30;

    /// A ring with `slots` slots, 1 to 16,384, all free. Some 30 µs, and some bytes of the kernel's
    /// memory a slot.
    ///
    /// # Errors
    /// [`Reason::Denied`] or [`Reason::Absent`] where there is no io_uring for this process, or one
    /// from before Linux 5.19; [`Reason::Length`]; [`Reason::Exhausted`].
    pub fn new(slots: u32) -> Result<Registered, Error> {
        const REGISTER: &str = "io_uring_register (IORING_REGISTER_BUFFERS2, sparse)";
        if !(1..=Registered::SLOTS_MAX).contains(&slots) {
            return Err(Error::new(REGISTER, Errno::INVAL).because(Reason::Length));
        }
        let mark = ForkMark::new().map_err(|error| Error::new("mmap", errno(&error)))?;
        let ring = set_up().map_err(|error| Error::new("io_uring_setup", errno(&error)))?;
        ring.submitter().register_buffers_sparse(slots).map_err(|error| {
            let error = Error::new(REGISTER, errno(&error));
            if error.errno() == Errno::INVAL { error.because(Reason::Absent) } else { error }
        })?;
        let slots = Mutex::new(Slots::new(slots));
        let ring = ManuallyDrop::new(Ring(ring));
        let (transfer, sends) = Default::default();
        Ok(Registered { ring, slots, transfer, sends, owner: next_owner(), mark })
    }

    /// Has the ring send from here on, and do nothing else; returns `false` if it does already.
    pub(crate) fn take_for_sends(&self) -> bool {
        !self.sends.swap(true, Ordering::AcqRel)
    }

    /// Ends the ring's use for sends.
    pub(crate) fn give_back(&self) {
        self.sends.store(false, Ordering::Release);
    }

    pub(crate) fn sends(&self) -> bool {
        self.sends.load(Ordering::Acquire)
    }

    /// Returns whether a slot is one of these.
    pub(crate) fn has(&self, slot: SlotId) -> bool {
        slot.owner == self.owner && slot.index < Registered::SLOTS_MAX
    }

    /// Fills a slot, or empties it if there is no range.
    fn update(&self, slot: u32, range: Range<usize>) -> Result<(), Errno> {
        let buffer = libc::iovec {
            iov_base: ptr::with_exposed_provenance_mut(range.start),
            iov_len: range.len(),
        };
        // SAFETY: the kernel pins the memory there, which changes no contents, or refuses. An
        // operation that names the slot keeps the pages that the slot had when it began.
        let done =
            unsafe { self.ring.0.submitter().register_buffers_update(slot, &[buffer], None) };
        done.map_err(|error| errno(&error))
    }

    pub(crate) fn here(&self) -> Result<(), Error> {
        if self.mark.is_child() {
            return Err(Error::new(UPDATE, Errno::SRCH).because(Reason::Child));
        }
        Ok(())
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ring; it reports completions when its thread is in the kernel anyway, where that can be (Linux
/// 5.19).
fn set_up() -> io::Result<IoUring> {
    let mut cheap = IoUring::builder();
    cheap.dontfork().setup_cqsize(SAYS);
    match cheap.setup_coop_taskrun().build(ENTRIES) {
        Err(error) if errno(&error) == Errno::INVAL => {
            IoUring::builder().dontfork().setup_cqsize(SAYS).build(ENTRIES)
        }
        made => made,
    }
}

impl Pin for Registered {
    fn pin(&self, range: Range<usize>) -> Result<Slot, Error> {
        self.here()?;
        let fail = |errno| Error::new(UPDATE, errno).over(&range);
        if range.is_empty() || range.len() > Registered::BYTES_MAX {
            return Err(fail(Errno::INVAL).because(Reason::Length));
        }
        let index = self.slots().take().ok_or_else(|| fail(Errno::NOSPC).because(Reason::Full))?;
        match self.update(index, range.clone()) {
            Ok(()) => Ok(Slot { owner: self.owner, index, range }),
            Err(errno) => {
                self.slots().put(index);
                Err(if errno == Errno::NOMEM { fail(errno).by_limit() } else { fail(errno) })
            }
        }
    }

    fn unpin(&self, slot: Slot) -> Result<(), Error> {
        self.here()?;
        if slot.owner != self.owner {
            return Err(Error::new(UPDATE, Errno::INVAL).because(Reason::Stranger));
        }
        self.update(slot.index, 0..0)
            .map_err(|errno| Error::new(UPDATE, errno).over(&slot.range))?;
        self.slots().put(slot.index);
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { pin_ns: 250.0, page_ns: 30.0, unpin_ns: 230.0, unpin_page_ns: 10.0 }
    }

    fn room(&self) -> usize {
        self.slots().room() as usize
    }
}

impl AsFd for Registered {
    /// The ring, for another one that wants its table (`IORING_REGISTER_CLONE_BUFFERS`).
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open as long as `self` is.
        unsafe { BorrowedFd::borrow_raw(self.ring.0.as_raw_fd()) }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // A child has the descriptor but not the mappings, whose place others may have by now.
        if self.mark.is_child() {
            return;
        }
        // Closing is not enough where a child has the descriptor, too.
        let _ = self.ring.0.submitter().unregister_buffers();
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
