//! An entry of a TLB.

use super::Gone;
use crate::memory::translate::{Rights, SpaceId};

/// Tells the entries apart that one page has had while transfers used the older ones.
pub(super) type EntryId = u32;

/// A translation of a page; 32 bytes for a `T` of 8, so that two share a cache line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<T> {
    pub(super) space: SpaceId,
    /// The number of the page, and below it the rights; all ones for an entry that is none. Pages
    /// have more bytes than that takes bits, so no page has that number.
    tag: u64,
    pub(super) value: T,
    pub(super) id: EntryId,
    /// Transfers in flight; a number at its maximum stays there, and the entry with it.
    transfers: u32,
}

const VACANT: u64 = u64::MAX;

impl<T: Copy> Entry<T> {
    pub(super) fn new(
        space: SpaceId,
        page: u64,
        rights: Rights,
        value: T,
        id: EntryId,
    ) -> Entry<T> {
        Entry { space, tag: page << Rights::BITS | rights.bits(), value, id, transfers: 0 }
    }

    /// No entry. Its value is only a filler.
    pub(super) fn vacant(value: T) -> Entry<T> {
        Entry { space: SpaceId(0), tag: VACANT, value, id: 0, transfers: 0 }
    }

    pub(super) fn is_there(&self) -> bool {
        self.tag != VACANT
    }

    /// Returns whether this is the entry of this page.
    #[inline(always)]
    pub(super) fn is(&self, space: SpaceId, page: u64) -> bool {
        self.tag >> Rights::BITS == page && self.space == space
    }

    /// Returns whether this is an entry of one of these pages.
    pub(super) fn is_within(&self, space: SpaceId, first: u64, last: u64) -> bool {
        self.is_there() && self.space == space && (first..=last).contains(&self.page())
    }

    #[inline(always)]
    pub(super) fn page(&self) -> u64 {
        self.tag >> Rights::BITS
    }

    #[inline(always)]
    pub(super) fn rights(&self) -> Rights {
        Rights::of_bits(self.tag)
    }

    #[inline(always)]
    pub(super) fn transfers(&self) -> u32 {
        self.transfers
    }

    #[inline(always)]
    pub(super) fn hold(&mut self) {
        self.transfers = self.transfers.saturating_add(1);
    }

    /// Ends a transfer. Returns whether the entry is idle now.
    pub(super) fn release(&mut self) -> bool {
        if self.transfers != u32::MAX {
            self.transfers = self.transfers.saturating_sub(1);
        }
        self.transfers == 0
    }

    pub(super) fn gone(&self, page_shift: u32) -> Gone<T> {
        Gone {
            space: self.space,
            address: self.page() << page_shift,
            value: self.value,
            transfers: self.transfers,
        }
    }
}
