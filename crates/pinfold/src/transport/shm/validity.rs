//! The word that says whether a region stands.
//!
//! Whoever is at a region looks at the word after each operation. The owner takes it down, and then
//! moves what lies in the region. One of the two sees the other (Dekker, [`LightFence`]): an operation
//! that found the region standing has had its effect before the contents are moved.

use crate::sync::{AtomicU64, LightFence, Ordering, heavy_fence};

/// Whether the region that `stamp` stands for still stood after all that this thread has done to it.
/// `fence` is what goes with the owner's barrier.
#[inline(always)]
pub(crate) fn stands(word: &AtomicU64, stamp: u64, fence: LightFence) -> bool {
    fence.issue();
    word.load(Ordering::Acquire) == stamp
}

/// Takes the region down. What those did who found it standing is seen afterwards.
pub(crate) fn take_down(word: &AtomicU64) {
    word.store(0, Ordering::SeqCst);
    heavy_fence();
}
