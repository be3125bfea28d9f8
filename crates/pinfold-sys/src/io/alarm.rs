//! A descriptor that becomes readable at a time.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::{failed::Failed, io::poll::take_count};

/// A timer that becomes readable at a time, and stays so until it is cleared. See
/// `timerfd_create(2)`.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// Set to no time; closed on exec, non-blocking.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE` or `ENOMEM`.
    pub fn new() -> Result<Alarm, Failed> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let made = timerfd_create(TimerfdClockId::Monotonic, flags);
        Ok(Alarm(made.map_err(Failed::of("timerfd_create"))?))
    }

    /// Sets it to a time of [`now_ns`](crate::cpu::clock::now_ns)'s, which may have passed, or to
    /// none. Until then it is not readable. Less than 1 µs.
    ///
    /// # Errors
    /// The error of `timerfd_settime(2)`.
    pub fn set(&self, at_ns: Option<u64>) -> Result<(), Failed> {
        // All zero would be no time.
        let ns = at_ns.map_or(0, |at| at.max(1));
        let seconds = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: (ns % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let set = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &once);
        set.map_err(Failed::of("timerfd_settime"))?;
        Ok(())
    }

    /// Makes it unreadable, and returns whether its time had come.
    ///
    /// # Errors
    /// The error of `read(2)`.
    pub fn clear(&self) -> io::Result<bool> {
        take_count(&self.0)
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        cpu::clock,
        io::poll::{Epoll, Events, Interest},
    };

    #[test]
    fn it_goes_off_once_and_when_it_was_set_last() {
        let (alarm, epoll) = (Alarm::new().unwrap(), Epoll::new().unwrap());
        epoll.add(&alarm, 7, Interest::Read).unwrap();
        let mut events = Events::with_capacity(1);
        let mut has_gone_off = |patience| epoll.wait(&mut events, Some(patience)).unwrap() == 1;
        assert!(!has_gone_off(Duration::ZERO) && !alarm.clear().unwrap());
        for at in [0, clock::now_ns(), clock::now_ns() + 5_000_000] {
            alarm.set(Some(clock::now_ns() + 3_600_000_000_000)).unwrap();
            assert!(!has_gone_off(Duration::ZERO));
            alarm.set(Some(at)).unwrap();
            assert!(has_gone_off(Duration::from_secs(20)));
            assert!(clock::now_ns() >= at);
            assert!(alarm.clear().unwrap() && !alarm.clear().unwrap());
            assert!(!has_gone_off(Duration::ZERO));
        }
        alarm.set(Some(0)).unwrap();
        alarm.set(None).unwrap();
        assert!(!has_gone_off(Duration::from_millis(5)));
        alarm.set(Some(u64::MAX)).unwrap();
        assert!(!has_gone_off(Duration::ZERO));
    }
}
