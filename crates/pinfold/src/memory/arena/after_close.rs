//! Memory that endpoints of this process had given away when they closed, and that receivers still look at.
//!
//! It stays as it is, whether or not its arena goes on, until whoever has it lets go of it or ends. Nobody
//! waits for that: it is looked for whenever an arena is about to take memory or is asked what it holds, and
//! when an endpoint looks around or closes.

use std::{
    any::Any,
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// Bytes that are left at most, in a process. Beyond that, what an endpoint gave is void once it has closed.
const BYTES_MAX: u64 = 1 << 30;

/// Who still has it.
pub(crate) trait Holder: Send {
    /// Whether it has none of it any more, and never will.
    fn has_let_go(&self) -> bool;
    /// Whether this process is a child of the one that gave the memory.
    fn is_forked(&self) -> bool;
}

struct Entry {
    holder: Box<dyn Holder>,
    /// Dropped when it may be used again.
    memory: Box<dyn Any + Send>,
    bytes: u64,
}

static ENTRIES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
/// How many there are, so that nobody takes the lock in vain.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Looks at the lock before it is given up, from one to the next of which other threads run.
const LOOKS: u32 = 10_000;

/// Never waits for ever: in a child of `fork(2)` the lock may be held by a thread that is not there.
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

/// Leaves `bytes` bytes of memory with who has them.
///
/// # Errors
/// So much is left already that this would be too much: here it is again.
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

/// Takes back what nobody has any more.
#[inline]
pub(crate) fn sweep() {
    if COUNT.load(Ordering::Relaxed) > 0 {
        sweep_now();
    }
}

#[cold]
fn sweep_now() {
    // A thread that is at it will do; and in a child of `fork(2)` the lock may never be free.
    let Ok(mut entries) = ENTRIES.try_lock() else { return };
    let mut free = Vec::new();
    let mut at = 0;
    while let Some(entry) = entries.get(at) {
        if entry.holder.is_forked() {
            // What it looks at is not in this process.
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
