//! On which processor the thread that reads a watch runs.
//!
//! Who unmaps sleeps until the event was read. With the reader on the same processor those are two switches
//! of threads, some 3 µs. With the reader on another one, which is asleep, they are two wake-ups across
//! processors, in a virtual machine 50 µs; and what any thread of the process unmaps, watched or not, has to
//! be flushed over there as well, another 20. So the reader is bound to the processor of who pinned last.
//!
//! Nobody waits long for that processor: a short slice lets the reader run at once where somebody else is
//! busy there (`sched_setattr(2)`, since Linux 6.12; before, within the other's slice). It does not go where a
//! realtime thread has asked, which would not let it run at all.
#![allow(unsafe_code)]
// The unsafe calls get and set how the calling thread is scheduled.

use std::{
    mem::MaybeUninit,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::thread::{CpuSet, Pid, gettid, sched_getcpu, sched_setaffinity};

use crate::clock;

/// It is not moved more often, ns: threads on different processors may take turns.
const REST_NS: u64 = 1_000_000;
/// The shortest slice that the kernel gives, ns.
const SLICE_NS: u64 = 100_000;
/// No processor.
const NONE: usize = usize::MAX;

/// Where the reader is.
#[derive(Debug)]
pub(super) struct Nearby {
    /// Its thread, while that runs.
    thread: Mutex<Option<Pid>>,
    /// The processor that it is bound to.
    cpu: AtomicUsize,
    /// When it was moved last.
    moved_ns: AtomicU64,
}

impl Nearby {
    pub(super) fn new() -> Nearby {
        let (thread, moved_ns) = (Mutex::default(), AtomicU64::new(0));
        Nearby { thread, cpu: AtomicUsize::new(NONE), moved_ns }
    }

    /// The calling thread is the reader.
    pub(super) fn begin(&self) {
        ask_for_short_slices();
        self.set(Some(gettid()));
    }

    /// The reader ends: its number may be another thread's soon.
    pub(super) fn end(&self) {
        self.set(None);
    }

    fn set(&self, thread: Option<Pid>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = thread;
    }

    /// The reader comes to the processor of the calling thread, unless it has just been moved. Some
    /// nanoseconds if it is there.
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
        // Whoever has it does the same.
        let Ok(thread) = self.thread.try_lock() else { return };
        let Some(thread) = *thread else { return };
        let mut set = CpuSet::new();
        set.set(cpu);
        // Where it may not run there, it stays where it is.
        let _ = sched_setaffinity(Some(thread), &set);
        self.cpu.store(cpu, Ordering::Relaxed);
        self.moved_ns.store(now.max(1), Ordering::Relaxed);
    }

    /// The reader's thread.
    #[cfg(test)]
    pub(super) fn thread(&self) -> Option<Pid> {
        *self.thread.lock().unwrap()
    }
}

/// Whether the calling thread lets no ordinary one run beside it.
fn is_realtime() -> bool {
    // SAFETY: it takes a number and gives one.
    let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
    matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

/// Has the calling thread run soon when it wakes, if it is an ordinary one.
fn ask_for_short_slices() {
    let mut attr = MaybeUninit::<libc::sched_attr>::zeroed();
    let size = size_of::<libc::sched_attr>();
    // SAFETY: there is room for so many bytes.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), size, 0) };
    // SAFETY: whole numbers, zero or as the kernel wrote them.
    let mut attr = unsafe { attr.assume_init() };
    if got != 0 || attr.sched_policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.sched_runtime = SLICE_NS;
    // An older kernel does not mind, or says that it cannot.
    // SAFETY: it is read during the call.
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}
