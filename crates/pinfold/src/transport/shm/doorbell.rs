//! A bell: one word by which a side that is about to sleep asks to be rung.
//!
//! The waiter sets the word, issues the heavy fence, looks once more for the event it waits for,
//! and sleeps. The ringer makes the event happen, issues its light fence, and reads the word. By
//! [`LightFence`]'s argument one of them sees the other, so no wake-up is lost. The ringer takes
//! the word back as it rings: one ring a sleep, however much it publishes.
//!
//! A waiter that comes back soon may leave the heavy fence to its last look: a ringer that missed
//! the word had made the event happen before, and its store arrives in its own time, which no
//! architecture bounds and every processor keeps short. Such a waiter is late at worst.

use crate::sync::{AtomicU32, LightFence, Ordering};

/// Asks for a ring. From the next [`crate::sync::heavy_fence`] on none is missed.
pub(crate) fn ask(word: &AtomicU32) {
    word.store(1, Ordering::Relaxed);
}

/// Takes the request back.
pub(crate) fn unask(word: &AtomicU32) {
    word.store(0, Ordering::Relaxed);
}

/// Returns whether the waiter asked; at most one call returns true for each request.
#[inline(always)]
pub(crate) fn must_ring(word: &AtomicU32, fence: LightFence) -> bool {
    fence.issue();
    word.load(Ordering::Relaxed) != 0 && word.swap(0, Ordering::Relaxed) != 0
}
