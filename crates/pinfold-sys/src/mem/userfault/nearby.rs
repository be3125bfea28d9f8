//! The processor that the threads that read a watch run on.
//!
//! A thread that unmaps sleeps until the event was read. With the reader on the same processor
//! those are two switches of threads, some 3 µs. With the reader on another one, which is asleep,
//! they are two wake-ups across processors, in a virtual machine 50 µs; and all memory that any
//! thread of the process unmaps, watched or not, has to be flushed over there as well, another 20.
//! So both are bound to the processor of the thread that pinned last.
//!
//! They do not go to a realtime thread that asks, which would not let them run at all.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use rustix::thread::{CpuSet, Pid, gettid, sched_getcpu, sched_setaffinity};

use super::{duty::Who, scheduling::is_realtime};
use crate::cpu::clock;

/// The readers are not moved more often, ns: threads on different processors may take turns.
const REST_NS: u64 = 1_000_000;
/// No processor.
const NONE: usize = usize::MAX;

/// The place of the readers.
#[derive(Debug)]
pub(super) struct Nearby {
    /// Their threads, while those run.
    threads: Mutex<[Option<Pid>; 2]>,
    /// The processor that they are bound to.
    cpu: AtomicUsize,
    /// The time when they were moved last.
    moved_ns: AtomicU64,
}

impl Nearby {
    pub(super) fn new() -> Nearby {
        let (threads, moved_ns) = (Mutex::default(), AtomicU64::new(0));
        Nearby { threads, cpu: AtomicUsize::new(NONE), moved_ns }
    }

    /// The calling thread is this reader. It goes to the other one's processor.
    pub(super) fn begin(&self, who: Who) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads[who as usize] = Some(gettid());
        let cpu = self.cpu.load(Ordering::Relaxed);
        if cpu != NONE {
            bind(gettid(), cpu);
        }
    }

    /// This reader ends: its number may be another thread's soon.
    pub(super) fn end(&self, who: Who) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)[who as usize] = None;
    }

    /// The readers come to the processor of the calling thread, unless they have just been moved.
    /// Some nanoseconds if they are there.
    #[inline]
    pub(super) fn come(&self) {
        let cpu = sched_getcpu();
        if cpu != self.cpu.load(Ordering::Relaxed) {
            self.come_to(cpu);
        }
    }

    #[cold]
    fn come_to(&self, cpu: usize) {
        let (now, moved) = (clock::now_ns(), self.moved_ns.load(Ordering::Relaxed));
        let rests = moved != 0 && now.saturating_sub(moved) < REST_NS;
        if rests || cpu >= CpuSet::MAX_CPU || is_realtime() {
            return;
        }
        // The holder of the lock does the same, or begins.
        let Ok(threads) = self.threads.try_lock() else { return };
        threads.iter().flatten().for_each(|&thread| bind(thread, cpu));
        self.cpu.store(cpu, Ordering::Relaxed);
        self.moved_ns.store(now.max(1), Ordering::Relaxed);
    }

    /// The thread of this reader.
    #[cfg(test)]
    pub(super) fn thread(&self, who: Who) -> Option<Pid> {
        self.threads.lock().unwrap()[who as usize]
    }
}

/// A thread that may not run there stays where it is.
fn bind(thread: Pid, cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(Some(thread), &set);
}
