//! Waiting: spin briefly, adapt to what was seen, then sleep.
//!
//! Of the threads that wait on one endpoint, one *leads*: when it has spun in vain it sleeps on
//! the endpoint's descriptor for all. The others *follow*: they park and are woken when anything
//! has happened. Whoever leaves the lead wakes the followers, and one of them takes it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::{clock, poll::Events};

use super::{engine::Engine, shared::Shared};
use crate::failpoint::{self, Point};

/// Spins at most this long, however often it paid.
const SPIN_MAX_NS: u64 = 50_000;
/// Spins at least this long, however often it was in vain.
const SPIN_MIN_NS: u64 = 1_000;
/// A sleep that ended so soon was mostly falling asleep and waking up, which can take 60 µs in a
/// virtual machine: what was waited for came early.
const SHORT_SLEEP_NS: u64 = 150_000;
/// Polls while holding the engine, before other threads get a chance.
const POLLS_A_TURN: u32 = 32;

/// How long to spin, learned from how waits ended.
///
/// A wait that ended while spinning asks for twice its length next time (smoothed); one that had to
/// sleep halves the time, unless it slept so briefly that spinning on would have been right.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    limit_ns: u64,
}

impl Default for SpinPolicy {
    fn default() -> SpinPolicy {
        SpinPolicy { limit_ns: SPIN_MAX_NS / 2 }
    }
}

impl SpinPolicy {
    /// How long to spin now, ns.
    pub(crate) fn limit_ns(&self) -> u64 {
        self.limit_ns
    }

    /// The wait ended after `ns` of spinning.
    pub(crate) fn came_while_spinning(&mut self, ns: u64) {
        let wish = (2 * ns).clamp(SPIN_MIN_NS, SPIN_MAX_NS);
        // Up at once, down slowly.
        self.limit_ns = self.limit_ns.max(wish) - self.limit_ns.saturating_sub(wish) / 16;
    }

    /// Spinning was in vain; the sleep after it lasted `ns`.
    pub(crate) fn slept(&mut self, ns: u64) {
        self.limit_ns = if ns < SHORT_SLEEP_NS {
            (self.limit_ns * 2).min(SPIN_MAX_NS)
        } else {
            (self.limit_ns / 2).max(SPIN_MIN_NS)
        };
    }
}

/// What to do after a turn of polling.
enum Next {
    Spin,
    Sleep { timeout: Option<Duration> },
    Follow,
}

impl Shared {
    /// Waits until `ready` has an answer. `None`: the deadline passed first.
    pub(crate) fn wait_for<T>(
        self: &Arc<Shared>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Option<T> {
        let mut started = 0;
        let mut turns = 0u32;
        loop {
            let mut engine = self.enter();
            for _ in 0..POLLS_A_TURN {
                if let Some(value) = ready(&mut engine) {
                    if started != 0 {
                        engine.spin.came_while_spinning(clock::now_ns() - started);
                    }
                    return Some(value);
                }
                if engine.progress() {
                    // Something is under way: there is nothing to sleep for yet.
                    started = 0;
                } else {
                    clock::relax();
                }
            }
            let now = clock::now_ns();
            if started == 0 {
                started = now;
            }
            turns += 1;
            // The last poll may have brought it; nothing may come between this look and the sleep.
            if let Some(value) = ready(&mut engine) {
                engine.spin.came_while_spinning(now - started);
                return Some(value);
            }
            let next = engine.next(now - started, deadline);
            drop(engine);
            match next {
                Next::Spin if turns.is_multiple_of(8) && self.is_crowded() => thread::yield_now(),
                Next::Spin => {}
                Next::Follow => {
                    // Woken by whoever leads; a time-out only for the deadline's sake.
                    match deadline.map(|end| end.saturating_duration_since(Instant::now())) {
                        Some(left) => thread::park_timeout(left),
                        None => thread::park(),
                    }
                }
                Next::Sleep { timeout } => {
                    self.sleep(timeout);
                    started = 0;
                }
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                let mut engine = self.enter();
                engine.progress();
                return ready(&mut engine);
            }
        }
    }

    /// Sleeps on the endpoint's descriptor, as its leader.
    pub(crate) fn sleep(self: &Arc<Shared>, timeout: Option<Duration>) {
        let slept = clock::now_ns();
        failpoint::hit(Point::BeforeSleep);
        // One event is enough to know that there is something; `handle_events` takes them all.
        let result = self.epoll.wait(&mut Events::with_capacity(1), timeout);
        failpoint::hit(Point::AfterSleep);
        let mut engine = self.enter();
        engine.spin.slept(clock::now_ns() - slept);
        engine.wake_up();
        if let Err(error) = result {
            tracing::warn!(%error, "epoll_wait");
        }
    }
}

impl Engine {
    /// Decides what a thread does that has polled for `spun_ns` in vain.
    fn next(&mut self, spun_ns: u64, deadline: Option<Instant>) -> Next {
        if self.led {
            // Another thread leads, perhaps asleep: this one need not poll for long.
            if spun_ns < self.spin.limit_ns() {
                return Next::Spin;
            }
            // What this thread leaves behind, the leader must not sleep over.
            self.kick_if_needed();
            let this = thread::current();
            if self.followers.iter().all(|thread| thread.id() != this.id()) {
                self.followers.push(this);
            }
            return Next::Follow;
        }
        if spun_ns < self.spin.limit_ns() || !self.ask_all() {
            return Next::Spin;
        }
        self.core.counters.sleeps += 1;
        self.led = true;
        self.asleep = true;
        self.kick = false;
        let mut timeout = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        if let Some(at) = self.links.deadline_ns() {
            let left = Duration::from_nanos(at.saturating_sub(clock::now_ns()));
            timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
        }
        Next::Sleep { timeout }
    }

    /// The leader is awake again: everybody looks anew.
    fn wake_up(&mut self) {
        self.asleep = false;
        self.led = false;
        self.unask_all();
        self.handle_events();
        self.core.wakes.any = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_follows_what_pays() {
        let mut spin = SpinPolicy::default();
        for _ in 0..20 {
            spin.slept(10_000_000);
        }
        assert_eq!(spin.limit_ns(), SPIN_MIN_NS, "long sleeps teach not to spin");
        for _ in 0..20 {
            spin.slept(80_000);
        }
        assert_eq!(spin.limit_ns(), SPIN_MAX_NS, "short sleeps teach to spin on");
        for _ in 0..200 {
            spin.came_while_spinning(500);
        }
        assert!(spin.limit_ns() < 2 * SPIN_MIN_NS, "{}", spin.limit_ns());
        spin.came_while_spinning(20_000);
        assert!(spin.limit_ns() >= 35_000, "one long wait that paid raises it at once");
    }
}
