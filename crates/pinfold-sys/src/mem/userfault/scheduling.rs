//! Scheduling of the threads that read a watch, which share their processor with others.
#![allow(unsafe_code)]
// The unsafe calls get and set how the calling thread is scheduled.

use std::mem::MaybeUninit;

/// The shortest slice that the kernel gives, ns.
const SLICE_NS: u64 = 100_000;

/// Returns whether the calling thread lets no ordinary one run beside it.
pub(super) fn is_realtime() -> bool {
    matches!(policy(), libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
}

/// Has the calling thread run only where nobody else wants to (`SCHED_IDLE`, `sched(7)`), and
/// returns whether it does. There is no way back without privileges. A thread that is not an
/// ordinary one does not change.
pub(super) fn step_back() -> bool {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: it is read during the call.
    let set = || unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const none) };
    policy() == libc::SCHED_OTHER && set() == 0
}

/// Has the calling thread run soon when it wakes, if it is an ordinary one.
pub(super) fn ask_for_short_slices() {
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

fn policy() -> i32 {
    // SAFETY: it takes a number and gives one.
    unsafe { libc::sched_getscheduler(0) & !libc::SCHED_RESET_ON_FORK }
}
