//! Memory that may still lose its contents after an event has told so.
//!
//! The kernel tells of a discard (`MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE`) *before* it takes
//! place, and the caller of `madvise` goes on to it at any time after the event was read. Memory
//! pinned in between is stale afterwards, and no event would tell. So after such an event its range
//! is in *quarantine*: nothing there stays pinned after its transfer, until the call is known to be
//! over.
//!
//! # When it is over
//! Every other thread was seen outside of such calls once, at a look that began after the event was
//! noted. The argument:
//! 1. The discard belongs to a system call of one thread, and that call began before its event was
//!    noted: the event is sent from within it.
//! 2. A thread is in one system call at a time. If at a moment after the noting it is in none, or
//!    in another one, the call that sent the event has ended, discard and all.
//! 3. A look finds this only for a thread that sleeps, and of which the kernel made sure that it
//!    slept at the same place all through the look. The place of a running thread is not known; the
//!    next look may tell.
//! 4. A thread that was not there at a look was in no call at that moment. So a thread that is new
//!    since, or has exited, is outside. Identifiers of threads that are used again make it wait
//!    longer, never shorter.
//! 5. The thread that looks is in no such call.
//! 6. Workers of an io_uring discard for others (`IORING_OP_MADVISE`), and the kernel's report of
//!    their calls is a copy of another thread's. They count as outside when they sleep in a way
//!    that signals interrupt: from the event to the discard the kernel waits in other ways alone.
//!
//! Not covered is a process that shares this one's memory and is not one of its threads (`CLONE_VM`
//! without `CLONE_THREAD`), such as a child of `vfork(2)` that discards memory before its `exec`.
//! Memory that it takes away is found by the look of the next hit.
//!
//! No I/O: looks are made by [`Places`], times are given.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

/// Sees where threads are.
pub(super) trait Places {
    /// All threads but the calling one. `None`: not known just now.
    fn threads(&self) -> Option<Vec<u32>>;

    /// Returns whether the thread is, at a moment within this call, surely not in a call that
    /// discards.
    fn is_outside(&self, thread: u32) -> bool;
}

/// Ranges at a time. With more, everything is in quarantine.
pub(super) const RANGES_MAX: usize = 64;

/// From the beginning of a look to that of the next, at least.
const LOOK_EVERY_NS: u64 = 1_000_000;

/// Of all time, looks take no more than one part of so many.
const LOOK_SHARE: u64 = 20;

/// A range, and the look before which it was noted last.
#[derive(Debug)]
struct Noted {
    start: u64,
    end: u64,
    before: u64,
}

/// The memory that may still be discarded. All ranges are addresses, from the first to behind the
/// last.
///
/// Looks are numbered. Invariant: `seen` has a number for a thread only if the thread was outside,
/// or was not there, at a moment of the look with this number.
#[derive(Debug, Default)]
pub(super) struct Quarantine {
    noted: Vec<Noted>,
    /// Everything is in quarantine, noted before this look.
    all: Option<u64>,
    /// The number of the next look.
    next: u64,
    /// The last look that found out which threads there were.
    last: Option<u64>,
    /// The threads of that look, each with the last one at which it was outside or not there.
    seen: HashMap<u32, Option<u64>>,
    /// The earliest moment of the next look.
    due_ns: u64,
    is_looking: bool,
}

/// A look that has begun; to be handed to [`Quarantine::end`].
#[derive(Debug)]
pub(super) struct Look {
    number: u64,
    began_ns: u64,
    /// Threads that have been outside since everything was noted.
    settled: HashSet<u32>,
}

impl Quarantine {
    /// Puts a range into quarantine, from now on.
    pub(super) fn note(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        self.noted.retain(|old| old.start < start || end < old.end);
        if self.noted.len() == RANGES_MAX {
            return self.note_all();
        }
        self.noted.push(Noted { start, end, before: self.next });
    }

    /// Puts everything into quarantine.
    pub(super) fn note_all(&mut self) {
        self.noted.clear();
        self.all = Some(self.next);
    }

    /// Returns whether some byte of this range is in quarantine.
    pub(super) fn concerns(&self, start: u64, end: u64) -> bool {
        self.all.is_some() || self.noted.iter().any(|noted| noted.start < end && start < noted.end)
    }

    /// Begins a look, if one is due. Ranges noted from now on are not ended by it.
    pub(super) fn begin(&mut self, now_ns: u64) -> Option<Look> {
        let newest = self.noted.iter().map(|noted| noted.before).chain(self.all).max()?;
        if now_ns < self.due_ns || self.is_looking {
            return None;
        }
        self.is_looking = true;
        let number = self.next;
        self.next += 1;
        let settled = self.seen.iter().filter(|(_, at)| at.is_some_and(|at| at >= newest));
        let settled = settled.map(|(thread, _)| *thread).collect();
        Some(Look { number, began_ns: now_ns, settled })
    }

    /// Ends a look at `now_ns`, and the quarantine of all ranges that it has shown to be safe.
    /// `found` lists the threads, and whether each was outside; `None` if the look failed.
    pub(super) fn end(&mut self, look: Look, found: Option<Vec<(u32, bool)>>, now_ns: u64) {
        self.is_looking = false;
        let took_ns = now_ns.saturating_sub(look.began_ns);
        self.due_ns = look.began_ns + LOOK_EVERY_NS.max(took_ns.saturating_mul(LOOK_SHARE));
        let Some(found) = found else { return };
        let seen = found.into_iter().map(|(thread, is_outside)| {
            // A new thread was not there at the last look that knew.
            let before = || self.seen.get(&thread).copied().unwrap_or(self.last);
            (thread, if is_outside { Some(look.number) } else { before() })
        });
        self.seen = seen.collect();
        self.last = Some(look.number);
        // `None` is less than any.
        let all_outside = self.seen.values().copied().min().unwrap_or(Some(look.number));
        let is_over = |before: u64| all_outside.is_some_and(|at| before <= at);
        self.noted.retain(|noted| !is_over(noted.before));
        self.all = self.all.filter(|before| !is_over(*before));
    }
}

/// Looks, if a look is due. Threads that note or ask meanwhile do not wait for it.
pub(super) fn look(quarantine: &Mutex<Quarantine>, places: &impl Places, now_ns: impl Fn() -> u64) {
    let Some(look) = quarantine.lock().begin(now_ns()) else { return };
    let found = places.threads().map(|threads| {
        // A settled thread need not be asked.
        let is_outside = |thread| !look.settled.contains(&thread) && places.is_outside(thread);
        threads.into_iter().map(|thread| (thread, is_outside(thread))).collect()
    });
    quarantine.lock().end(look, found, now_ns());
}
