#![allow(unsafe_code)]
//! A lock that is almost free for the thread that made it, until another thread comes.
//!
//! **Invariant.** The value is only reached between a successful entry and its exit; an entry is
//! either the owner's fast one while the lock is biased, or one that holds the mutex after the
//! bias was revoked. Both can never be inside at once:
//!
//! - The owner enters by storing `inside = true` and then loading `revoked`; it goes on only if
//!   that is `false`.
//! - A revoker holds the mutex, stores `revoked = true`, issues `membarrier(2)` on behalf of both,
//!   and then waits until it loads `inside == false`. After the barrier either the owner's load
//!   sees `revoked`, or its store of `inside` is visible here.
//!
//! - The bias comes back (Dice, Moir, Scherer, *Quickly Reacquirable Locks*, 2003, section 2) when
//!   the owner, leaving, has held the mutex many times in a row: it stores `revoked = false` with
//!   the mutex still held and nothing inside, and the next thread that takes the mutex revokes
//!   again.
//!
//! A lone thread pays two plain stores and one load an entry, no locked instruction: a locked
//! instruction would wait for the stores into the shared ring, a cache-line hop (40 to 165 ns) for
//! every message.
//!
//! - A forked child has the threads of its parent no more, but their entries: a value that a thread
//!   was in the middle of when the process forked is never reached again, not even dropped. The
//!   callers keep children from entering.
//!
//! Entering twice on one thread would alias the value. User code never runs inside (wakers,
//! drops of user buffers and user trait methods all run after the exit); the owner's second
//! entry is detected and panics all the same.

use std::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence},
};

use parking_lot::{RawMutex, lock_api::RawMutex as _};
use pinfold_sys::cpu::barrier;

thread_local! {
    static MARK: u8 = const { 0 };
}

/// An address no other living thread has.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark) as usize)
}

/// Entries in a row after which the owner has the bias back, at first: twice as many each time.
/// Revoking costs some microseconds, as much as some hundred entries through the mutex, and
/// interrupts other processors.
const BACK_AFTER: u32 = 4096;
/// The most of them: a second's entries, so that a thread that comes now and then has the bias
/// revoked once a second at most.
const BACK_AFTER_MAX: u32 = 1 << 24;

pub(crate) struct BiasedLock<T> {
    owner: usize,
    inside: AtomicBool,
    revoked: AtomicBool,
    /// True if the kernel can revoke the bias.
    revocable: bool,
    mutex: RawMutex,
    /// The owner's entries through the mutex since another thread came, and the number that brings
    /// the bias back. Guarded by the mutex.
    alone: AtomicU32,
    back_after: AtomicU32,
    value: UnsafeCell<ManuallyDrop<T>>,
}

// SAFETY: the lock gives out `&mut T` to one thread at a time (see the invariant above), which is
// what `Mutex<T>` needs `T: Send` for, too.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// A lock biased to the calling thread, if the kernel can revoke the bias.
    ///
    /// A thread that ends may leave its mark's address to a later thread, which then owns the
    /// bias. That is sound: the first owner is gone, so still one thread has the fast way.
    pub(crate) fn new(value: T) -> BiasedLock<T> {
        let revocable = barrier::private_available();
        BiasedLock {
            owner: this_thread(),
            inside: AtomicBool::new(false),
            revoked: AtomicBool::new(!revocable),
            revocable,
            mutex: RawMutex::INIT,
            alone: AtomicU32::new(0),
            back_after: AtomicU32::new(BACK_AFTER / 2),
            value: UnsafeCell::new(ManuallyDrop::new(value)),
        }
    }

    /// Enters at once if this is the owner's thread and no other has come lately.
    #[inline(always)]
    pub(crate) fn fast_path(&self) -> Option<Guard<'_, T>> {
        if this_thread() != self.owner || self.inside.load(Ordering::Relaxed) {
            return None;
        }
        self.inside.store(true, Ordering::Relaxed);
        // Pairs with the membarrier in `revoke`, which orders this store before the load.
        compiler_fence(Ordering::SeqCst);
        let fast_path = Guard { lock: self, held: 0 };
        // Dropping it takes the store back.
        if self.revoked.load(Ordering::Acquire) { None } else { Some(fast_path) }
    }

    /// True if more threads than its owner have come lately, or may have.
    #[inline(always)]
    pub(crate) fn has_others(&self) -> bool {
        self.revoked.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.fast_path().unwrap_or_else(|| self.lock_slow())
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self) -> Guard<'_, T> {
        let is_owner = this_thread() == self.owner;
        assert!(!(is_owner && self.inside.load(Ordering::Relaxed)), "pinfold: entered twice");
        self.mutex.lock();
        let guard = Guard { lock: self, held: 1 };
        if !self.revoked.load(Ordering::Relaxed) {
            self.revoke();
        }
        let alone = if is_owner { self.alone.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.alone.store(alone, Ordering::Relaxed);
        guard
    }

    #[cold]
    #[inline(never)]
    fn unlock_slow(&self) {
        let back_after = self.back_after.load(Ordering::Relaxed);
        if self.alone.load(Ordering::Relaxed) >= back_after && self.revocable {
            self.alone.store(0, Ordering::Relaxed);
            // Only the owner counts, so this is its thread; the others look with the mutex held.
            self.revoked.store(false, Ordering::Relaxed);
        }
        // SAFETY: called once, when the guard that `lock_slow` made goes.
        unsafe { self.mutex.unlock() };
    }

    /// The value, unless an entry never ended: one of a thread that was left behind at a fork.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        let entered = *self.inside.get_mut() || self.mutex.is_locked();
        (!entered).then(|| &mut **self.value.get_mut())
    }

    /// Takes the bias away. The caller holds the mutex.
    fn revoke(&self) {
        let back_after = self.back_after.load(Ordering::Relaxed);
        self.back_after.store((2 * back_after).min(BACK_AFTER_MAX), Ordering::Relaxed);
        self.revoked.store(true, Ordering::SeqCst);
        barrier::heavy_private();
        while self.inside.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}

impl<T> Drop for BiasedLock<T> {
    fn drop(&mut self) {
        if self.get_mut().is_some() {
            // SAFETY: no thread is inside, nor will be: this is the end of the lock.
            unsafe { ManuallyDrop::drop(self.value.get_mut()) };
        }
    }
}

/// An entry of either kind. Two words that stay in registers: to write an enum and read it back
/// at another width would wait for all stores before it, those to memory that peers look at among
/// them.
pub(crate) struct Guard<'a, T> {
    lock: &'a BiasedLock<T>,
    /// 1: it holds the mutex; 0: it is the owner's fast entry.
    held: usize,
}

impl<T> Guard<'_, T> {
    /// True if more threads than its owner have come lately, or may have.
    #[inline(always)]
    pub(crate) fn is_shared(&self) -> bool {
        self.held != 0
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.held != 0 {
            return self.lock.unlock_slow();
        }
        // Release: accesses inside come before those of a revoker that sees this.
        self.lock.inside.store(false, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: between entry and exit the value is this thread's; see the invariant above.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`; `&mut self` keeps it to one borrow at a time.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use super::*;

    #[test]
    fn counts_are_exact_when_the_bias_is_revoked_in_mid_run() {
        for round in 0..20 {
            let lock = Arc::new(BiasedLock::new(0u64));
            let mut others = Vec::new();
            for step in 0..200_000u64 {
                if step == 1000 * round {
                    for _ in 0..2 {
                        let lock = Arc::clone(&lock);
                        others.push(thread::spawn(move || {
                            for _ in 0..50_000 {
                                let mut value = lock.lock();
                                let seen = *value;
                                *value = std::hint::black_box(seen) + 1;
                            }
                        }));
                    }
                }
                let mut value = lock.lock();
                let seen = *value;
                *value = std::hint::black_box(seen) + 1;
            }
            for other in others {
                other.join().unwrap();
            }
            assert_eq!(*lock.lock(), 300_000);
        }
    }

    #[test]
    fn the_owner_has_it_back_once_the_others_are_gone() {
        if !barrier::private_available() {
            return;
        }
        let (lock, mut entries) = (BiasedLock::new(0u32), 0);
        for round in 0..3 {
            assert!(lock.fast_path().is_some());
            thread::scope(|s| {
                s.spawn(|| *lock.lock() += 1);
            });
            assert!(lock.fast_path().is_none(), "another thread has been in");
            for _ in 1..BACK_AFTER << round {
                *lock.lock() += 1;
                assert!(lock.fast_path().is_none(), "twice as long each time");
            }
            *lock.lock() += 1;
            entries += 1 + (BACK_AFTER << round);
        }
        assert_eq!(*lock.lock(), entries);
    }

    /// However often another thread comes, it seldom finds a bias to take away.
    #[test]
    fn a_bias_that_is_taken_away_all_the_time_does_not_come_back() {
        let lock = BiasedLock::new(0u32);
        let mut revoked = 0;
        for _ in 0..40 {
            revoked += u32::from(lock.fast_path().is_some());
            thread::scope(|s| {
                s.spawn(|| *lock.lock() += 1);
            });
            (0..2 * BACK_AFTER).for_each(|_| *lock.lock() += 1);
        }
        assert!(revoked <= 3, "{revoked}");
    }

    #[test]
    fn a_value_in_use_for_ever_is_not_dropped() {
        for (by_owner, dropped) in [(None, true), (Some(true), false), (Some(false), false)] {
            let alive = Arc::new(());
            let mut lock = BiasedLock::new(Arc::clone(&alive));
            match by_owner {
                None => {}
                Some(true) => std::mem::forget(lock.lock()),
                Some(false) => thread::scope(|s| {
                    s.spawn(|| std::mem::forget(lock.lock()));
                }),
            }
            assert_eq!(lock.get_mut().is_some(), dropped);
            drop(lock);
            assert_eq!(Arc::strong_count(&alive) == 1, dropped, "{by_owner:?}");
        }
    }

    #[test]
    #[should_panic(expected = "entered twice")]
    fn a_second_entry_is_caught() {
        let lock = BiasedLock::new(());
        if !barrier::private_available() {
            panic!("entered twice (no membarrier here: the mutex would block instead)");
        }
        let _outer = lock.lock();
        let _inner = lock.lock();
    }
}
