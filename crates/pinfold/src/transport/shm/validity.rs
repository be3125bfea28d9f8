//! The flag of a region: the word that says whether the region stands.
//!
//! A thread that uses a region reads the word after each operation. The owner takes the word down,
//! and then moves the contents of the region. One of the two sees the other (Dekker,
//! [`LightFence`]): an operation that found the region standing has had its effect before the
//! contents are moved.

use crate::sync::{AtomicU64, LightFence, Ordering, heavy_fence};

/// Returns whether the region with this `stamp` still stood after all operations of this thread on
/// it. `fence` goes with the owner's barrier.
#[inline(always)]
pub(crate) fn stands(word: &AtomicU64, stamp: u64, fence: LightFence) -> bool {
    fence.issue();
    word.load(Ordering::Acquire) == stamp
}

/// Takes the region down. Effects of operations that found it standing are visible afterwards.
pub(crate) fn take_down(word: &AtomicU64) {
    word.store(0, Ordering::SeqCst);
    heavy_fence();
}
