//! Keeping pages where they are, so that a device or the kernel can be given them: the pin-down and
//! release calls of Tezuka, O'Carroll, Hori and Ishikawa (Pin-down Cache, section 3), as two back
//! ends of one trait.
//!
//! - [`Registered`]: buffers registered with an io_uring. The pages are pinned for real (`VmPin` in
//!   `/proc/self/status`): reclaim, migration, `MADV_FREE` and `UFFDIO_MOVE` leave them alone, and
//!   a child of `fork(2)` gets copies. The kernel writes and reads them by slot.
//! - [`Locked`]: `mlock(2)`. The pages stay in memory (`VmLck`), but may move to other frames, and
//!   nothing is known by slot. While they are locked the program cannot discard them: `madvise(2)`
//!   with `MADV_DONTNEED` or `MADV_FREE` says `EINVAL`.
//!
//! Neither notices that the program unmaps pinned memory: a pin then keeps the old pages, a lock
//! ends. [`userfault`](crate::mem::userfault) notices.
//!
//! Both count against `RLIMIT_MEMLOCK`, 8 MiB for an ordinary user unless somebody raised it, and
//! by accounts of their own: registered memory counts over all rings of a user, locked memory by
//! process. A huge page counts whole as soon as a ring has a part of it, once for each ring.

mod counts;
mod error;
mod locked;
mod registered;
mod slots;
#[cfg(test)]
pub(crate) mod tests;
mod transfer;

use std::ops::Range;

pub(crate) use self::registered::{ENTRIES, SAYS};
pub use self::{
    counts::Counts,
    error::{Error, Reason},
    locked::Locked,
    registered::Registered,
    transfer::write_mapped,
};

/// Something that keeps pages in place.
pub trait Pin: Send + Sync {
    /// Pins the pages that `range`, addresses of any alignment, has bytes of, until it is unpinned
    /// or `self` dropped. Pages that are missing are made, and none is shared with a child any
    /// more.
    ///
    /// The memory does not have to stay mapped; pinned pages stay pinned then, though nothing else
    /// has them.
    ///
    /// # Errors
    /// See [`Reason`]. Nothing of the range is pinned by this call then.
    fn pin(&self, range: Range<usize>) -> Result<Slot, Error>;

    /// Ends a pin.
    ///
    /// # Errors
    /// [`Reason::Stranger`] for a slot of another owner, [`Reason::Child`].
    fn unpin(&self, slot: Slot) -> Result<(), Error>;

    /// Costs on the reference machine; a place to start from.
    fn cost(&self) -> Cost;

    /// Pins at a time.
    fn room(&self) -> usize;
}

/// A pin. It does not end when this is dropped, but when it is given to [`Pin::unpin`], or its
/// owner is dropped.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "only with this it can be unpinned"]
pub struct Slot {
    owner: u32,
    index: u32,
    range: Range<usize>,
}

impl Slot {
    /// Its number, below [`Pin::room`]. For [`Registered`] the `buf_index` of the ring's
    /// operations.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The slot's name.
    pub fn id(&self) -> SlotId {
        SlotId { owner: self.owner, index: self.index }
    }

    /// The range that was asked for.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// The name of a slot. It may be kept when the pin has ended: its owner then says that the slot is
/// free, or checks an order against the range that the slot has by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId {
    owner: u32,
    index: u32,
}

impl SlotId {
    /// Its number, as [`Slot::index`].
    pub fn index(self) -> u32 {
        self.index
    }

    /// As a number, for [`SlotId::of_bits`].
    pub fn bits(self) -> u64 {
        u64::from(self.owner) << 32 | u64::from(self.index)
    }

    /// The name that [`SlotId::bits`] made a number of. Other numbers name nobody's slot, or
    /// another: see [`SlotId`].
    pub fn of_bits(bits: u64) -> SlotId {
        SlotId { owner: (bits >> 32) as u32, index: bits as u32 }
    }
}

/// Costs of pins, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// One pin, of any size.
    pub pin_ns: f64,
    /// Each 4 KiB page of it that is there already.
    pub page_ns: f64,
    /// The end of one pin.
    pub unpin_ns: f64,
    /// Each 4 KiB page of that pin.
    pub unpin_page_ns: f64,
}

/// Tells owners apart, so that a slot cannot be given to the wrong one.
pub(crate) fn next_owner() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
