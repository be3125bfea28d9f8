//! A sequence lock: one thread changes some words now and then, any number of others copy them,
//! and none of them ever waits for a reader.
//!
//! **Invariant.** A copy that is reported good has words that were all there at one moment: while
//! they change the sequence number is odd, and after each change it is another one. This holds
//! against threads that keep the rules. A stranger may write any number: it makes a copy bad, or
//! nonsense, and never does any harm, for all of it are atomics.
//!
//! The fences are those of Boehm, *Can Seqlocks Get Along with Programming Language Memory
//! Models?*, MSPC 2012. All loads are relaxed: only these are sure to work on memory that is mapped
//! for reading alone (see `std::sync::atomic`).

use super::{AtomicU64, Ordering, fence};

/// Runs `change`, which stores the guarded words (relaxed). One thread at a time.
pub(crate) fn write<R>(seq: &AtomicU64, change: impl FnOnce() -> R) -> R {
    let odd = seq.load(Ordering::Relaxed).wrapping_add(1) | 1;
    seq.store(odd, Ordering::Relaxed);
    // Pairs with the second fence of `read`: a reader that has seen one of the new words sees that
    // the number is odd, or a later one.
    fence(Ordering::Release);
    let done = change();
    // Pairs with the first fence of `read`: a reader that has seen the even number sees all the new
    // words.
    seq.store(odd.wrapping_add(1), Ordering::Release);
    done
}

/// Runs `copy`, which loads the guarded words (relaxed), until nothing changed them meanwhile.
/// `None`: something always did, `tries` times.
pub(crate) fn read<T>(seq: &AtomicU64, tries: u32, mut copy: impl FnMut() -> T) -> Option<T> {
    for _ in 0..tries {
        let before = seq.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if before & 1 == 0 {
            let copied = copy();
            fence(Ordering::Acquire);
            if seq.load(Ordering::Relaxed) == before {
                return Some(copied);
            }
        }
        pause();
    }
    None
}

#[cfg(not(loom))]
use std::hint::spin_loop as pause;

#[cfg(loom)]
use loom::thread::yield_now as pause;
