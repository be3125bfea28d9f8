//! Time, and the pause between two looks at a changing word.
#![allow(unsafe_code)]
// Invariant: the one unsafe call is an instruction that every x86-64 processor has and that
// touches no memory.

use std::{
    sync::{
        OnceLock,
        atomic::{Ordering, fence},
    },
    time::Duration,
};

use rustix::{
    thread::{NanosleepRelativeResult, clock_nanosleep_relative},
    time::{ClockId, Timespec, clock_gettime},
};

use crate::io::poll;

/// Nanoseconds on `CLOCK_MONOTONIC`. About 20 to 50 ns.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds since the machine was started, those it slept included (`CLOCK_BOOTTIME`): the start
/// times of processes in `proc_pid_stat(5)` count by this clock.
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The processor's own counter: 7 to 20 ns to read, in units of [`ticks_per_us`].
///
/// Not ordered against other instructions, and not comparable across machines. On other processors
/// than x86-64 this is [`now_ns`]: AArch64's counter, which that reads as well, may go by 40 ns a
/// tick, of which there would be no whole number in a microsecond.
#[inline]
pub fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: RDTSC is part of x86-64, and Linux lets user mode execute it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        now_ns()
    }
}

/// The [`ticks`] that `what` takes, with all its stores.
#[inline]
pub fn timed(what: impl FnOnce()) -> u64 {
    fence(Ordering::SeqCst);
    let start = ticks();
    what();
    // The thread that made stores pays for those still on their way.
    fence(Ordering::SeqCst);
    ticks().wrapping_sub(start)
}

/// [`ticks`] that pass in a microsecond; at least 1. The first call measures it, which takes 2 ms;
/// later ones cost nothing.
pub fn ticks_per_us() -> u64 {
    static RATE: OnceLock<u64> = OnceLock::new();
    *RATE.get_or_init(|| {
        if cfg!(not(all(target_arch = "x86_64", not(miri)))) {
            return 1000;
        }
        let (start_ticks, start_ns) = reading();
        while now_ns() - start_ns < 2_000_000 {
            relax();
        }
        let (end_ticks, end_ns) = reading();
        let ticks = u128::from(end_ticks.wrapping_sub(start_ticks));
        let ns = u128::from(end_ns - start_ns).max(1);
        u64::try_from(ticks * 1000 / ns).unwrap_or(u64::MAX).max(1)
    })
}

/// Nanoseconds in so many [`ticks`].
#[inline]
pub fn ns_of(ticks: u64) -> u64 {
    ticks * 1000 / ticks_per_us()
}

/// Sleeps for so long, or a little longer. (The standard library's function ends the program where
/// a filter denies `clock_nanosleep`.)
pub fn pause(duration: Duration) {
    let mut left = Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    };
    loop {
        match clock_nanosleep_relative(ClockId::Monotonic, &left) {
            NanosleepRelativeResult::Ok => return,
            NanosleepRelativeResult::Interrupted(rest) => left = rest,
            NanosleepRelativeResult::Err(_) => break,
        }
    }
    let _ = poll::ready(&mut [], Some(duration));
}

/// Tells the processor that the thread is spinning. 10 to 50 ns.
#[inline]
pub fn relax() {
    std::hint::spin_loop();
}

/// Both clocks at one moment: the tightest of a few tries, so that an interrupt between the
/// two readings does not count.
fn reading() -> (u64, u64) {
    let once = || {
        let before = ticks();
        let ns = now_ns();
        let width = ticks().wrapping_sub(before);
        (width, before.wrapping_add(width / 2), ns)
    };
    let (_, ticks, ns) = (0..8).map(|_| once()).min().unwrap_or_else(once);
    (ticks, ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_advance() {
        let (ns, tick) = (now_ns(), ticks());
        let rate = ticks_per_us();
        assert!((1..100_000).contains(&rate));
        assert_eq!(rate, ticks_per_us());
        assert_eq!((ns_of(0), ns_of(7 * rate)), (0, 7000));
        relax();
        assert!(now_ns() > ns);
        assert!(ticks() != tick);
    }
}
