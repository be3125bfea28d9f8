//! The atomics of everything that is shared, in one place, so that loom can stand in for them.

#[cfg(not(loom))]
pub(crate) mod biased;
pub(crate) mod seqlock;
mod wide;

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub(crate) use wide::store_words;

/// The way in which the cheap side of a store-then-load handshake keeps its store before its load.
///
/// A producer publishes and then looks whether the consumer sleeps; a consumer says that it will
/// sleep and then looks once more for something published. One of the two must see the other
/// (Dekker). The producer runs for every message, the consumer only before it sleeps, so the
/// consumer pays for both with `membarrier(2)` wherever both processes have it, and the
/// producer's half is then a mere instruction to the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LightFence {
    /// The other side issues a `membarrier` for both.
    Compiler,
    /// The other side cannot: a real fence.
    Full,
}

impl LightFence {
    #[inline(always)]
    pub(crate) fn issue(self) {
        #[cfg(not(loom))]
        match self {
            LightFence::Compiler => std::sync::atomic::compiler_fence(Ordering::SeqCst),
            LightFence::Full => fence(Ordering::SeqCst),
        }
        // Loom knows no membarrier; under it both sides fence, which has the same effect.
        #[cfg(loom)]
        fence(Ordering::SeqCst);
    }
}

/// The dear side of the handshake that [`LightFence`] describes.
#[cfg(not(loom))]
pub(crate) fn heavy_fence() {
    fence(Ordering::SeqCst);
    pinfold_sys::cpu::barrier::heavy_global();
}

#[cfg(loom)]
pub(crate) fn heavy_fence() {
    fence(Ordering::SeqCst);
}
