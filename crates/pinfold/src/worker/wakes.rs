//! Work that has to run once the engine is left: user code never runs inside it.

use std::{any::Any, task::Waker};

use super::followers::{Awaited, Followers, Unpark};

/// A result to be handed on.
pub(crate) trait Deliver: Send {
    /// Hands it on.
    fn deliver(self: Box<Self>);
}

#[derive(Default)]
pub(crate) struct Wakes {
    /// Results of operations that have a [`Taker`](super::op::Taker).
    pub results: Vec<Box<dyn Deliver>>,
    pub wakers: Vec<Waker>,
    pub drops: Vec<Box<dyn Any + Send>>,
    /// The numbers of waits for operations that have ended.
    pub ended: Vec<u64>,
    /// Threads that are to be woken already.
    pub unpark: Unpark,
    /// True if something happened that a waiting thread may want to know. Where an operation has
    /// ended, the thread that waits for that is told, too.
    pub any: bool,
    /// True if every thread that waits is to look again.
    pub all: bool,
    /// True if the endpoint's own thread is to look again.
    pub driver: bool,
    /// True if an event that a sleeping leader is to be woken by may have been taken from it.
    pub leader: bool,
}

impl Wakes {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any && !self.leader && !self.has_users() && self.unpark.is_empty()
    }

    /// Returns whether there is code of the program's to run.
    #[inline(always)]
    pub(crate) fn has_users(&self) -> bool {
        !self.wakers.is_empty() || !self.drops.is_empty()
    }

    /// Takes the followers off that are to hear of this.
    pub(super) fn wake(&mut self, followers: &mut Followers) {
        let Wakes { ended, unpark, any, all, driver, .. } = self;
        let (any, all, driver) = (*any, *all, *driver);
        let is_told = |number, awaited| match awaited {
            _ if all => true,
            Awaited::Op(_) => ended.contains(&number),
            Awaited::Anything => any,
            Awaited::Close => driver,
        };
        followers.wake(unpark, is_told);
    }

    /// Returns whether the leader's operation is among those that have ended.
    pub(super) fn has_ended_leader(&self, followers: &Followers) -> bool {
        self.ended.contains(&followers.leader())
    }

    /// The operation has ended for which wait `number` waits; 0: none.
    pub(crate) fn note_end(&mut self, number: u64) {
        self.any = true;
        if number != 0 {
            self.ended.push(number);
        }
    }
}
