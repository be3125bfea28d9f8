//! A transfer's hold on pinned memory.

use std::ops::Range;

use pinfold_sys::mem::pin::SlotId;

use super::standing::{PinnedBy, Why};
use crate::memory::translate::{TranslationLevel, pincache::Hold};

/// Pinned memory of this process, for one transfer; to be handed to the
/// [`end`](super::OwnMemory::end) of its [`OwnMemory`](super::OwnMemory). If it is dropped instead,
/// its memory stays pinned for good.
#[must_use = "the memory stays pinned until this is handed to end"]
#[derive(Debug)]
pub struct OwnHold {
    pub(super) hold: Hold,
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) by: PinnedBy,
    pub(super) not_kept: Option<Why>,
    pub(super) level: TranslationLevel,
}

impl OwnHold {
    /// The addresses that were asked for.
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.len
    }

    /// The slot of the io_uring's table, where an io_uring has the memory.
    pub fn slot(&self) -> Option<SlotId> {
        (self.by == PinnedBy::Ring).then(|| SlotId::of_bits(self.hold.handle().0))
    }

    /// The level of the translation stack that had the memory.
    pub fn level(&self) -> TranslationLevel {
        self.level
    }

    /// Returns whether the memory stays pinned when this has ended, unless it changes before.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn kept(&self) -> Result<(), Why> {
        self.not_kept.map_or(Ok(()), Err)
    }
}
