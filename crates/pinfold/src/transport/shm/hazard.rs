//! Who is at memory of the other side, through the kernel: a word for each thread, and a count.
//!
//! One that goes to a region of the other side by `process_vm_*` writes the region's number into a
//! word first, and takes it out afterwards. The owner, to withdraw a region, counts that, and then
//! looks at the words. Whoever was not yet seen there sees the new count before it goes, and looks
//! whether its region still stands (Dekker, as with [`doorbell`](super::doorbell); but here each
//! side is about to make system calls, so both use a real fence).
//!
//! Both words are the other side's to trust as far as it trusts that side with its memory: what may
//! write there by the kernel may do so without a word, too.

use crate::sync::{AtomicU64, Ordering, fence};

/// A thread goes to region `region`, never 0. Returns the count of withdrawals that it has to know.
pub(crate) fn begin(word: &AtomicU64, region: u64, withdrawals: &AtomicU64) -> u64 {
    word.store(region, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    withdrawals.load(Ordering::Acquire)
}

/// It is back.
pub(crate) fn end(word: &AtomicU64) {
    word.store(0, Ordering::Release);
}

/// A region stands no more, which can be seen already; `count` have been withdrawn by now.
pub(crate) fn withdraw(withdrawals: &AtomicU64, count: u64) {
    withdrawals.store(count, Ordering::Release);
}

/// Whether a thread is at `region`, which was withdrawn, or the whole connection with it.
pub(crate) fn is_protected<'a>(
    words: impl IntoIterator<Item = &'a AtomicU64>,
    region: u64,
) -> bool {
    fence(Ordering::SeqCst);
    words.into_iter().any(|word| word.load(Ordering::Acquire) == region)
}
