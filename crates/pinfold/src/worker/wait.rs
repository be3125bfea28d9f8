//! Waiting: spin briefly, as long as the [policy](crate::policy::spin) says, then sleep.
//!
//! Of the threads that wait on one endpoint, one *leads*: when it has spun in vain it sleeps on the
//! endpoint's descriptor for all. The others [follow](super::followers).

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pinfold_sys::{
    cpu::{clock, scheduled},
    io::poll::Events,
};

use super::{
    connections::events,
    engine::Engine,
    followers::{Awaited, Slot},
    gauges,
    prefault::Step,
    prefaulter, progress,
    shared::{Inside, Shared},
    sleep,
    stand_by::Waits,
};
use crate::{
    Result,
    failpoint::{self, Point},
    status::{Tally, state},
};

/// Polls in vain while holding the engine, before other threads get a chance.
const POLLS_A_TURN: u32 = 32;

/// A thread that polls in vain and takes so long for it was not running, ns.
const HELD_UP_NS: u64 = 100_000;

/// Events that end a sleep, at most; the others are found after it.
const EVENTS_A_WAKE: usize = 4;

/// The next action after a turn of polling.
enum Next {
    Spin,
    Yield,
    Sleep(Sleep),
    Follow(Arc<Slot>),
    StandBy(Arc<Slot>, Waits),
}

/// How a leader sleeps.
pub(crate) struct Sleep {
    /// The time since when it has waited.
    since_ns: u64,
    until_ns: Option<u64>,
    /// The length of its first sleep; then it looks again.
    at_first: Option<Duration>,
}

/// How a thread's wait goes.
#[derive(Default)]
struct Pace {
    /// The time since when it has polled in vain, ns; 0 as long as it has not.
    started: u64,
    /// The end of the last turn, ns.
    looked: u64,
    turns: u32,
    /// True if the last poll did anything.
    moved: bool,
    /// The looks of calls that wait, at the last turn of the endpoint's own thread.
    waits: u32,
    /// True if a call has waited since the turn before.
    is_relieved: bool,
}

impl Pace {
    /// A turn has ended.
    fn note_turn(&mut self, engine: &mut Engine, shared: &Shared) {
        let now = clock::now_ns();
        if self.started == 0 {
            self.started = now;
        } else {
            let is_preempted = now - self.looked > HELD_UP_NS && scheduled::was_preempted();
            if is_preempted && shared.is_overcommitted().unwrap_or(true) {
                engine.spin.found_short(now);
            } else if !is_preempted && engine.spin.asks(now - self.started, now) {
                engine.spin.answered(shared.is_overcommitted().unwrap_or(false), now);
            }
        }
        self.looked = now;
        self.turns = self.turns.wrapping_add(1);
        let waits = engine.waits.count();
        self.is_relieved = std::mem::replace(&mut self.waits, waits) != waits;
    }

    /// The awaited result has come.
    fn end(&self, engine: &mut Engine) {
        if self.started != 0 {
            engine.spin.came_while_spinning(clock::now_ns() - self.started);
        }
    }
}

/// A thread's wait. Its end, however it comes, hands the lead over.
struct Waiting<'a> {
    shared: &'a Shared,
    awaited: Awaited,
    /// Its number among the followers; 0 as long as it neither led nor was parked.
    number: u64,
    slot: Option<Arc<Slot>>,
}

impl Waiting<'_> {
    fn new(shared: &Shared, awaited: Awaited) -> Waiting<'_> {
        Waiting { shared, awaited, number: 0, slot: None }
    }

    /// The number of the wait, by which its operation names it from now on.
    fn known(&mut self, engine: &mut Engine) -> u64 {
        if self.number == 0 {
            self.number = engine.followers.next_number();
        }
        if let Awaited::Op(key) = self.awaited
            && let Some(op) = engine.core.ops.get_mut(key)
        {
            op.waiting = self.number;
        }
        self.number
    }

    /// The place at which this thread is parked once it has left the engine.
    fn follow(&mut self, engine: &mut Engine) -> Arc<Slot> {
        let number = self.known(engine);
        let slot = self.slot.get_or_insert_with(Slot::here);
        engine.followers.follow(number, self.awaited, slot);
        Arc::clone(slot)
    }

    /// Ends the wait while the thread is in the engine.
    fn end(mut self, engine: &mut Engine) {
        self.leave(engine);
    }

    fn leave(&mut self, engine: &mut Engine) {
        let number = std::mem::take(&mut self.number);
        if number != 0 {
            engine.followers.leave(number, &mut engine.core.wakes.unpark);
        }
        // A sleeping leader must not sleep over the work that this thread leaves behind.
        engine.kick_if_needed();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.number != 0
            && let Ok(mut engine) = self.shared.enter()
        {
            self.leave(&mut engine);
        }
    }
}

impl Shared {
    /// Waits until `ready` has an answer, which comes with what is `awaited`. `None`: the deadline
    /// passed first.
    ///
    /// # Errors
    /// [`Error::Forked`](crate::Error::Forked).
    pub(crate) fn wait_for<T>(
        self: &Arc<Shared>,
        deadline: Option<Instant>,
        awaited: Awaited,
        mut ready: impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let mut pace = Pace::default();
        let mut waiting = Waiting::new(self, awaited);
        loop {
            let mut engine = self.enter()?;
            if awaited != Awaited::Close {
                engine.waits.note();
            }
            if let Some(value) = self.poll(&mut engine, &mut pace, &mut ready)? {
                waiting.end(&mut engine);
                return Ok(Some(value));
            }
            pace.note_turn(&mut engine, self);
            // The last poll may have brought the result; no message may come between this look and
            // the sleep.
            if let Some(value) = ready(&mut engine) {
                pace.end(&mut engine);
                waiting.end(&mut engine);
                return Ok(Some(value));
            }
            let next = self.decide(engine, &mut waiting, &pace, deadline)?;
            self.rest(next, &mut pace, deadline)?;
            if deadline.is_some_and(|end| Instant::now() >= end) {
                let mut engine = self.enter()?;
                progress::progress(&mut engine);
                let value = ready(&mut engine);
                waiting.end(&mut engine);
                return Ok(value);
            }
        }
    }

    // One function each: the stack that one needs is free again while another goes on.

    /// A turn of polling.
    fn poll<'a, T>(
        &'a self,
        engine: &mut Inside<'a>,
        pace: &mut Pace,
        ready: &mut impl FnMut(&mut Engine) -> Option<T>,
    ) -> Result<Option<T>> {
        let polls = if engine.core.may_hold_up_a_peer() { 1 } else { POLLS_A_TURN };
        for _ in 0..polls {
            if let Some(value) = ready(engine) {
                pace.end(engine);
                return Ok(Some(value));
            }
            pace.moved = progress::progress(engine);
            if pace.moved {
                // Something is under way: there is nothing to sleep for yet.
                pace.started = 0;
                let core = &engine.core;
                let has_work = !core.wakes.results.is_empty() || !core.lent.is_empty();
                if has_work || self.has_handling(engine) {
                    // That is when handlers run, results are delivered, and long parts copied.
                    engine.leave_and_enter()?;
                }
                // A peer may have this go on and on: other threads come first, and hear of messages
                // that came.
                if self.has_others() {
                    break;
                }
            } else {
                clock::relax();
            }
        }
        Ok(None)
    }

    /// The next action after a turn that brought nothing. Leaves the engine.
    fn decide(
        &self,
        mut engine: Inside<'_>,
        waiting: &mut Waiting<'_>,
        pace: &Pace,
        deadline: Option<Instant>,
    ) -> Result<Next> {
        let step = if pace.moved { None } else { prefaulter::next_to_prefault(&mut engine) };
        let next = match self.has_handling(&engine) || step.is_some() {
            true => Next::Spin,
            false => next(&mut engine, waiting, pace, deadline),
        };
        let next = match next {
            Next::Spin if std::mem::take(&mut engine.core.yields_once) => Next::Yield,
            next => next,
        };
        drop(engine);
        if let Some(step) = step {
            self.prefault_next(&step)?;
        }
        Ok(next)
    }

    fn rest(
        self: &Arc<Shared>,
        next: Next,
        pace: &mut Pace,
        deadline: Option<Instant>,
    ) -> Result<()> {
        match next {
            Next::Spin if pace.turns.is_multiple_of(8) && self.is_crowded() => thread::yield_now(),
            Next::Spin => {}
            // The kernel takes it that a thread that rings is about to sleep, and may have the peer
            // wait for this very processor.
            Next::Yield => thread::yield_now(),
            Next::Follow(slot) => drop(slot.park(deadline)),
            Next::StandBy(slot, waits) => {
                waits.stand_by(&slot);
                pace.started = 0;
            }
            Next::Sleep(sleep) => {
                self.sleep(sleep)?;
                pace.started = 0;
            }
        }
        Ok(())
    }

    /// Puts pages where a message may be copied to.
    #[cold]
    pub(crate) fn prefault_next(&self, step: &Step) -> Result<()> {
        let outcome = self.preparer.put(step);
        let mut engine = self.enter()?;
        let core = &mut engine.core;
        core.prefault.did(&mut core.ops, step, outcome);
        Ok(())
    }

    /// Sleeps on the endpoint's descriptor, as its leader: at most until `until_ns`, and `at_first`
    /// at first.
    pub(crate) fn sleep(self: &Arc<Shared>, sleep: Sleep) -> Result<()> {
        let Sleep { since_ns, until_ns, mut at_first } = sleep;
        let mut now = clock::now_ns();
        let mut woken_by = Events::with_capacity(EVENTS_A_WAKE);
        loop {
            let left = until_ns.map(|until| Duration::from_nanos(until.saturating_sub(now)));
            let longest = at_first.into_iter().chain(left).min();
            failpoint::hit(Point::BeforeSleep);
            let woken = self.epoll.wait(&mut woken_by, longest);
            failpoint::hit(Point::AfterSleep);
            let mut engine = self.enter()?;
            now = clock::now_ns();
            // A thread that copies a part does not sleep for the others.
            let is_over = !matches!(woken, Ok(0))
                || !engine.core.lent.is_empty()
                || until_ns.is_some_and(|end| now >= end);
            let sleeps_on = if is_over || sleep::has_come(&mut engine) {
                None
            } else {
                sleep::sleeps_for(&mut engine)
            };
            if let Some(longest) = sleeps_on {
                at_first = longest;
                gauges::update_sleep_gauge(&mut engine, state::ASLEEP);
                continue;
            }
            let rung = sleep::rung_ns(&mut engine, since_ns, now);
            engine.spin.slept(rung.unwrap_or(now) - since_ns, rung.map(|rung| now - rung));
            wake_up(&mut engine, &woken_by);
            if let Err(error) = woken {
                tracing::warn!(%error, "poll");
            }
            return Ok(());
        }
    }
}

/// The next action of a thread that has polled in vain.
fn next(
    engine: &mut Engine,
    waiting: &mut Waiting<'_>,
    pace: &Pace,
    deadline: Option<Instant>,
) -> Next {
    let Pace { started, looked: now, .. } = *pace;
    engine.core.is_short = engine.spin.is_short(now);
    let spins = now - started < engine.spin.limit_ns(now);
    // Code of the program's that runs next may wait for other threads.
    let has_users = engine.core.wakes.has_users();
    let spins = spins || has_users;
    let is_relieved = waiting.awaited == Awaited::Close && pace.is_relieved && !has_users;
    if is_relieved && engine.followers.are_none_beside(waiting.number) {
        engine.followers.leave(waiting.number, &mut engine.core.wakes.unpark);
        let slot = waiting.follow(engine);
        engine.followers.nap();
        return Next::StandBy(slot, engine.waits.clone());
    }
    if engine.followers.are_led_beside(waiting.number) {
        let is_told = engine.asleep || waiting.awaited != Awaited::Anything;
        if spins || !is_told {
            return Next::Spin;
        }
        // The leader must not sleep over the work that this thread leaves behind.
        engine.kick_if_needed();
        return Next::Follow(waiting.follow(engine));
    }
    if spins || !sleep::ask_all(engine) {
        return Next::Spin;
    }
    let Some(at_first) = sleep::sleeps_for(engine) else {
        sleep::unask_all(engine);
        return Next::Spin;
    };
    engine.core.status.sleeps.add(1);
    // The other gauges can wait until the first sleep has passed.
    engine.core.status.state.set(state::ASLEEP);
    let number = waiting.known(engine);
    engine.followers.lead(number);
    engine.asleep = true;
    engine.kick = false;
    let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
    let end_ns = left.map(|left| clock::now_ns() + left.as_nanos() as u64);
    let until_ns = end_ns.into_iter().chain(sleep::due_ns(engine)).min();
    Next::Sleep(Sleep { since_ns: started, until_ns, at_first })
}

/// The leader is awake again.
fn wake_up(engine: &mut Engine, by: &Events) {
    engine.asleep = false;
    engine.core.status.state.set(state::AWAKE);
    sleep::unask_all(engine);
    events::handle_events_of_sleep(engine, by);
    engine.core.wakes.any = true;
    engine.core.yields_once = true;
}
