//! Memory that endpoints of this process had given away when they closed, and that receivers still
//! use.
//!
//! The memory stays as it is, whether or not its arena goes on, until its receiver lets go of it or
//! ends. No thread waits for that: [`sweep`] runs whenever an arena is about to take memory or is
//! asked for its statistics, and when an endpoint makes progress or closes.

use std::{
    any::Any,
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Bytes that are left at most, in a process. Beyond that, memory that an endpoint gave is void
/// once it has closed.
const BYTES_MAX: u64 = 1 << 30;

/// The receiver that still has the memory.
pub(crate) trait Holder: Send {
    /// Returns whether the receiver has none of the memory any more, and never will.
    fn has_let_go(&self) -> bool;
    /// Returns whether this process is a child of the one that gave the memory.
    fn is_forked(&self) -> bool;
}

struct Entry {
    holder: Box<dyn Holder>,
    /// Dropped when it may be used again.
    memory: Box<dyn Any + Send>,
    bytes: u64,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// Number of entries, so that no thread takes the lock in vain.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Attempts to take the lock before it is given up; between two of them other threads run.
const LOOKS: u32 = 10_000;

/// Takes the lock, or gives up: in a child of `fork(2)` it may be held by a thread that is not
/// there.
fn entries() -> Option<MutexGuard<'static, Vec<Entry>>> {
    for _ in 0..LOOKS {
        match ENTRIES.try_lock() {
            Ok(entries) => return Some(entries),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

/// Leaves `bytes` bytes of memory with their receiver.
///
/// # Errors
/// The limit would be exceeded by this memory: it is handed back.
pub(crate) fn leave<M: Any + Send>(
    holder: impl Holder + 'static,
    memory: M,
    bytes: u64,
) -> Result<(), M> {
    sweep();
    let Some(mut entries) = entries() else { return Err(memory) };
    let left: u64 = entries.iter().map(|entry| entry.bytes).sum();
    if bytes > BYTES_MAX.saturating_sub(left) {
        return Err(memory);
    }
    entries.push(Entry { holder: Box::new(holder), memory: Box::new(memory), bytes });
    COUNT.store(entries.len(), Ordering::Relaxed);
    Ok(())
}

/// Takes back memory that no receiver has any more.
#[inline]
pub(crate) fn sweep() {
    if COUNT.load(Ordering::Relaxed) > 0 {
        sweep_now();
    }
}

#[cold]
fn sweep_now() {
    // A thread that holds the lock sweeps already; and in a child of `fork(2)` the lock may never
    // be free.
    let Ok(mut entries) = ENTRIES.try_lock() else { return };
    let mut free = Vec::new();
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        if entry.holder.is_forked() {
            // The memory that it refers to is not in this process.
            std::mem::forget(entries.swap_remove(at));
        } else if entry.holder.has_let_go() {
            free.push(entries.swap_remove(at));
        } else {
            at += 1;
        }
    }
    COUNT.store(entries.len(), Ordering::Relaxed);
    drop(entries);
    // Arenas have locks of their own.
    free.into_iter().for_each(|entry| drop(entry.memory));
}
