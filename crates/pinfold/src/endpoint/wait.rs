//! Waiting: spin briefly, as long as the [policy](super::spin) says, then sleep.
//!
//! Of the threads that wait on one endpoint, one *leads*: when it has spun in vain it sleeps on
//! the endpoint's descriptor for all. The others *follow*: they park and are woken when anything
//! has happened. Whoever leaves the lead wakes the followers, and one of them takes it.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::clock;

use super::{
    engine::{Engine, ready::Step},
    shared::Shared,
};
use crate::{
    Result,
    failpoint::{self, Point},
    status::{Tally, state},
};

/// Polls while holding the engine, before other threads get a chance.
const POLLS_A_TURN: u32 = 32;

/// What to do after a turn of polling.
enum Next {
    Spin,
    Sleep { timeout: Option<Duration> },
    Follow,
}

impl Shared {
    /// Waits until `ready` has an answer. `None`: the deadline passed first.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    pub(crate) fn wait_for<T>(
        self: &Arc<Shared>,
        deadline: Option<Instant>,
        mut ready: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut started = 0;
        let mut turns = 0u32;
        loop {
            let mut engine = self.enter()?;
            let mut moved = false;
            for _ in 0..POLLS_A_TURN {
                if let Some(value) = ready(&mut engine) {
                    if started != 0 {
                        engine.spin.came_while_spinning(clock::now_ns() - started);
                    }
                    return Ok(Some(value));
                }
                moved = engine.progress();
                if moved {
                    // Something is under way: there is nothing to sleep for yet.
                    started = 0;
                    if self.has_handling(&engine) {
                        // That is when handlers run.
                        drop(engine);
                        engine = self.enter()?;
                    }
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
                return Ok(Some(value));
            }
            let step = if moved { None } else { engine.next_unready() };
            let next = match self.has_handling(&engine) || step.is_some() {
                true => Next::Spin,
                false => engine.next(now - started, deadline),
            };
            drop(engine);
            if let Some(step) = step {
                self.make_ready(&step)?;
            }
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
                    self.sleep(timeout)?;
                    started = 0;
                }
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                let mut engine = self.enter()?;
                engine.progress();
                return Ok(ready(&mut engine));
            }
        }
    }

    /// Puts pages where a message may be copied to.
    #[cold]
    pub(super) fn make_ready(&self, step: &Step) -> Result<()> {
        let outcome = self.preparer.put(step);
        let mut engine = self.enter()?;
        let core = &mut engine.core;
        core.ready.did(&mut core.ops, step, outcome);
        Ok(())
    }

    /// Sleeps on the endpoint's descriptor, as its leader.
    pub(crate) fn sleep(self: &Arc<Shared>, timeout: Option<Duration>) -> Result<()> {
        let slept = clock::now_ns();
        failpoint::hit(Point::BeforeSleep);
        // What there is it leaves to `handle_events`: some of it is told only once.
        let result = self.epoll.sleep(timeout);
        failpoint::hit(Point::AfterSleep);
        let mut engine = self.enter()?;
        engine.spin.slept(clock::now_ns() - slept);
        engine.wake_up();
        if let Err(error) = result {
            tracing::warn!(%error, "poll");
        }
        Ok(())
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
        self.core.status.sleeps.add(1);
        self.note_sleep(state::ASLEEP);
        self.led = true;
        self.asleep = true;
        self.kick = false;
        let mut timeout = deadline.map(|end| end.saturating_duration_since(Instant::now()));
        if let Some(at) = self.due_ns() {
            let left = Duration::from_nanos(at.saturating_sub(clock::now_ns()));
            timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
        }
        Next::Sleep { timeout }
    }

    /// The leader is awake again: everybody looks anew.
    fn wake_up(&mut self) {
        self.asleep = false;
        self.core.status.state.set(state::AWAKE);
        self.led = false;
        self.unask_all();
        self.handle_events();
        self.core.wakes.any = true;
    }
}
