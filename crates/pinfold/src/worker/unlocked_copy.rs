#![allow(unsafe_code)]
//! Bulk copies that threads make outside the endpoint's lock: by one-sided operations, out of
//! views, of payloads that are kept. Each thread learns for itself; the endpoint
//! [counts](super::unlocked_counts).
//!
//! **Invariant.** Nothing but the blocks that the caller named is touched.

use super::{shared::Shared, unlocked_counts::UnlockedCopies};
use crate::copy::{self, BULK, Caller, Largest, Reader};

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
}

impl UnlockedCopies {
    /// Copies `len` bytes, and counts them.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap. Threads of
    /// this process write neither meanwhile.
    #[inline(never)]
    unsafe fn copy(&self, what: Purpose, from: *const u8, to: *mut u8, len: usize) -> Largest {
        // SAFETY: as the caller promised.
        let done = unsafe { copy::copy_for(what.caller, what.reader, from, to, len) };
        self.count(done.algorithm, len);
        Largest::of(done.algorithm, len)
    }
}

impl Shared {
    /// Copies `len` bytes outside the engine; counts them if they are many. Returns the algorithm
    /// that was used.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap. Threads of
    /// this process write neither meanwhile.
    #[inline]
    pub(crate) unsafe fn copy_unlocked(
        &self,
        what: Purpose,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Largest {
        // A child of the process lacks the words to count in.
        if len < BULK || self.is_forked() {
            // SAFETY: as the caller promised.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            return Largest::NONE;
        }
        // SAFETY: as the caller promised.
        unsafe { self.unlocked.copy(what, from, to, len) }
    }
}
