#![allow(unsafe_code)]
//! Bulk copies that threads make outside the endpoint's lock: by one-sided operations, out of
//! views, of payloads that are kept.
//!
//! **Invariant.** Nothing but the blocks that the caller named is touched.

use super::shared::Shared;
pub(crate) use super::unlocked_copier::Purpose;
use crate::copy::{BULK, Largest};

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
