#![allow(unsafe_code)]
//! The maker of bulk copies outside the endpoint's lock, and their purposes. Each thread learns for
//! itself; the endpoint [counts](super::unlocked_counts).
//!
//! **Invariant.** Nothing but the blocks that the caller named is touched.

use super::unlocked_counts::UnlockedCopies;
use crate::copy::{self, BULK, Caller, CopyBytes, Largest, Reader};

/// The purpose of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    caller: Caller,
    reader: Reader,
}

impl Purpose {
    /// Written to a peer's region. When the peer reads it, and how much of it, is not known;
    /// meanwhile the writer waits, which stores past the caches make up to 2.5 times as long.
    pub(crate) const WRITE: Purpose =
        Purpose { caller: Caller::Named("one-sided write"), reader: Reader::Me };
    /// Read out of a peer's region.
    pub(crate) const READ: Purpose =
        Purpose { caller: Caller::Named("one-sided read"), reader: Reader::Me };
    /// Copied out of a message that stays where it is.
    pub(crate) const VIEW: Purpose = Purpose { caller: Caller::Named("view"), reader: Reader::Me };
    /// Kept until there is room in the ring, into which this core copies it then.
    pub(crate) const PAYLOAD: Purpose =
        Purpose { caller: Caller::Named("payload"), reader: Reader::Me };
    /// Copied out of a peer's arena.
    pub(crate) const GET: Purpose =
        Purpose { caller: Caller::Named("long message in"), reader: Reader::Me };
    /// Copied into a peer's arena.
    pub(crate) const PUT: Purpose =
        Purpose { caller: Caller::Named("long message out"), reader: Reader::OtherCore };
}

/// The copies of a part of a message.
pub(crate) struct PartCopier<'a> {
    copies: &'a UnlockedCopies,
    purpose: Purpose,
    /// The largest so far.
    pub by: Largest,
}

impl<'a> PartCopier<'a> {
    pub(crate) fn new(copies: &'a UnlockedCopies, purpose: Purpose) -> PartCopier<'a> {
        PartCopier { copies, purpose, by: Largest::NONE }
    }
}

impl CopyBytes for PartCopier<'_> {
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) {
        if len < BULK {
            // SAFETY: as the caller promised.
            return unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        }
        // SAFETY: as the caller promised.
        self.by = self.by.and(unsafe { self.copies.copy(self.purpose, from, to, len) });
    }
}

impl UnlockedCopies {
    /// Copies `len` bytes, and counts them.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap. Threads of
    /// this process write neither meanwhile.
    #[inline(never)]
    pub(super) unsafe fn copy(
        &self,
        what: Purpose,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Largest {
        // SAFETY: as the caller promised.
        let done = unsafe { copy::copy_for(what.caller, what.reader, from, to, len) };
        self.count(done.algorithm, len);
        Largest::of(done.algorithm, len)
    }
}
