//! Work that has to run once the engine is left: user code never runs inside it.

use std::{any::Any, task::Waker};

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
    /// True if something happened that a waiting thread may want to know.
    pub any: bool,
    /// True if an event that a sleeping leader is to be woken by may have been taken from it.
    pub leader: bool,
}

impl Wakes {
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any && !self.leader && self.wakers.is_empty() && self.drops.is_empty()
    }
}
