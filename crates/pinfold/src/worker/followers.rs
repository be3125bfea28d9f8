//! Threads that wait on one endpoint: one leads, the others follow.
//!
//! The *leader* drives the endpoint: it polls, and once it has spun in vain it sleeps on the
//! endpoint's descriptor for all. A *follower* is parked on a [`Slot`] of its own, and it is known
//! what it [awaits](Awaited): the end of an operation wakes the thread that waits for that and no
//! other.
//!
//! **Invariant.** While a thread is parked, another leads: it is in its wait, and in no code of the
//! program's, or has been woken to go on there. So a leader that leaves, with its result, at its
//! deadline or unwinding, hands the lead to a follower; [`wait`](super::wait) has a guard for that.
//! A leader that is about to run code of the program's [steps down](Followers::step_down). The
//! endpoint's own thread alone may be parked without a leader, for the length of a
//! [nap](super::stand_by).

#[cfg(all(test, not(loom)))]
mod tests;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::op_key::OpKey;
use crate::sync::biased::this_thread;

/// The event that a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// The end of an operation, or a message of a receive of many.
    Op(OpKey),
    /// Anything that may happen at the endpoint. Such a thread is parked only while the leader
    /// sleeps.
    Anything,
    /// The end of the endpoint, which the thread drives until then.
    Close,
}

/// The place at which one thread is parked.
pub(crate) struct Slot {
    thread: Thread,
    /// True once the thread has been woken. The token of `unpark` alone says nothing: the
    /// program's own parking takes it as well.
    is_woken: AtomicBool,
}

impl Slot {
    pub(super) fn here() -> Arc<Slot> {
        Arc::new(Slot { thread: thread::current(), is_woken: AtomicBool::new(false) })
    }

    /// Parks the calling thread, whose slot this is, until it is woken or the deadline has passed.
    /// Returns whether it was woken.
    pub(super) fn park(&self, deadline: Option<Instant>) -> bool {
        // Acquire: pairs with the release in `wake`; all else is read under the lock.
        while !self.is_woken.swap(false, Ordering::Acquire) {
            match deadline.map(|end| end.saturating_duration_since(Instant::now())) {
                None => thread::park(),
                Some(Duration::ZERO) => return false,
                Some(left) => thread::park_timeout(left),
            }
        }
        true
    }

    fn wake(&self) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Threads to wake, which are woken when this is dropped.
#[derive(Default)]
pub(crate) struct Unpark(Vec<Arc<Slot>>);

impl Unpark {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Drop for Unpark {
    fn drop(&mut self) {
        self.0.iter().for_each(|slot| slot.wake());
    }
}

struct Follower {
    number: u64,
    /// The mark of its thread.
    mark: usize,
    awaited: Awaited,
    slot: Arc<Slot>,
    /// True if the thread looks again by itself after a [nap](super::stand_by).
    is_napping: bool,
}

/// The threads that wait at an endpoint, as far as one leads or is parked.
#[derive(Default)]
pub(crate) struct Followers {
    /// The number of the latest wait that led or was parked; 0 is none.
    last: u64,
    /// The wait that leads, and the mark of its thread.
    leader: Option<(u64, usize)>,
    parked: Vec<Follower>,
    /// Threads woken, ever.
    woken: u64,
}

impl Followers {
    /// Returns whether a wait other than `number` leads.
    pub(super) fn are_led_beside(&self, number: u64) -> bool {
        self.leader.is_some_and(|(leader, _)| leader != number)
    }

    /// The number of the wait that leads; 0: none does.
    pub(super) fn leader(&self) -> u64 {
        self.leader.map_or(0, |(leader, _)| leader)
    }

    /// Returns whether no wait other than `number` leads or is parked.
    pub(super) fn are_none_beside(&self, number: u64) -> bool {
        !self.are_led_beside(number) && self.parked.iter().all(|other| other.number == number)
    }

    /// A number for a wait that is about to lead or to be parked.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Wait `number`, of this thread, leads from now on.
    pub(super) fn lead(&mut self, number: u64) {
        self.parked.retain(|follower| follower.number != number);
        self.leader = Some((number, this_thread()));
    }

    /// This thread is parked in `slot` as soon as it has left the engine, by its wait `number`.
    pub(super) fn follow(&mut self, number: u64, awaited: Awaited, slot: &Arc<Slot>) {
        // It is still there if its time was up.
        self.parked.retain(|follower| follower.number != number);
        let (mark, slot) = (this_thread(), Arc::clone(slot));
        self.parked.push(Follower { number, mark, awaited, slot, is_napping: false });
    }

    /// The thread that was just [parked](Followers::follow) looks again by itself, soon.
    pub(super) fn nap(&mut self) {
        self.parked.last_mut().into_iter().for_each(|follower| follower.is_napping = true);
    }

    /// The lead of this thread, which is about to run code of the program's, goes to another.
    pub(super) fn step_down(&mut self, unpark: &mut Unpark) {
        if self.leader.is_some_and(|(_, thread)| thread == this_thread()) {
            self.hand_over(unpark);
        }
    }

    /// Wait `number` ends.
    pub(super) fn leave(&mut self, number: u64, unpark: &mut Unpark) {
        self.parked.retain(|follower| follower.number != number);
        if self.leader.is_some_and(|(leader, _)| leader == number) {
            self.hand_over(unpark);
        }
    }

    /// Makes a follower the leader: the endpoint's own thread, else the one that was parked first.
    /// A thread that is alone and naps is left to look by itself.
    fn hand_over(&mut self, unpark: &mut Unpark) {
        if let [Follower { is_napping: true, .. }] = self.parked[..] {
            self.leader = None;
            return;
        }
        let drives = |follower: &Follower| follower.awaited == Awaited::Close;
        let heir = match self.parked.iter().position(drives) {
            None if self.parked.is_empty() => None,
            at => Some(self.parked.remove(at.unwrap_or(0))),
        };
        self.leader = heir.as_ref().map(|heir| (heir.number, heir.mark));
        self.woken += u64::from(heir.is_some());
        unpark.0.extend(heir.map(|heir| heir.slot));
    }

    /// Has the endpoint believe that a thread leads which is none of the test's.
    #[cfg(test)]
    pub(crate) fn pretend(&mut self, is_led: bool) {
        self.leader = is_led.then_some((u64::MAX, 0));
    }

    /// Wakes the followers of which `is_told` says that, given their numbers.
    pub(super) fn wake(&mut self, unpark: &mut Unpark, is_told: impl Fn(u64, Awaited) -> bool) {
        let before = unpark.0.len();
        self.parked.retain(|follower| {
            let is_told = is_told(follower.number, follower.awaited);
            if is_told {
                unpark.0.push(Arc::clone(&follower.slot));
            }
            !is_told
        });
        self.woken += (unpark.0.len() - before) as u64;
    }
}
