//! Hazard words: a word for each thread that uses memory of the other side through the kernel, and
//! a count of withdrawals.
//!
//! A thread that accesses a region of the other side by `process_vm_*` writes the region's number
//! into a word first, and clears the word afterwards. The owner, to withdraw a region, raises the
//! count, and then reads the words. A thread that the owner did not see there sees the new count
//! before its access, and checks whether its region still stands (Dekker, as with
//! [`doorbell`](super::doorbell); but here each side is about to make system calls, so both use a
//! real fence).
//!
//! Each side trusts the other's words as far as it trusts the other with its memory: a process that
//! may write there through the kernel may do so without setting a word, too.

use crate::sync::{AtomicU64, Ordering, fence};

/// Sets a thread's word to `region`, never 0, before its access. Returns the count of withdrawals
/// that the thread has to know.
pub(crate) fn begin(word: &AtomicU64, region: u64, withdrawals: &AtomicU64) -> u64 {
    word.store(region, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    withdrawals.load(Ordering::Acquire)
}

/// Clears the word of a thread that has finished.
pub(crate) fn end(word: &AtomicU64) {
    word.store(0, Ordering::Release);
}

/// Notes that a region was withdrawn, which its flag says already; `count` have been withdrawn by
/// now.
pub(crate) fn withdraw(withdrawals: &AtomicU64, count: u64) {
    withdrawals.store(count, Ordering::Release);
}

/// Returns whether a thread is using `region`, which was withdrawn by itself or with the whole
/// connection.
pub(crate) fn is_protected<'a>(
    words: impl IntoIterator<Item = &'a AtomicU64>,
    region: u64,
) -> bool {
    fence(Ordering::SeqCst);
    words.into_iter().any(|word| word.load(Ordering::Acquire) == region)
}
