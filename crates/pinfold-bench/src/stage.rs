//! The stage of a process, for any run: the other side to keep step with, and memory.

use std::{rc::Rc, time::Duration};

use pinfold_sys::cpu::clock;

use super::{
    fail::Fail,
    payload::Messages,
    sync::Sync,
    terms::{Side, Spec},
    verify::Mismatch,
};

/// The things that a process needs for any run.
pub(crate) struct Stage {
    pub(crate) sync: Sync,
    pub(crate) out: Messages,
    pub(crate) into: Messages,
    /// The name of the subject in errors.
    pub(crate) label: Rc<str>,
    /// The time at which the first process ends a run that takes longer than planned, in
    /// [`clock::ticks`].
    pub(crate) deadline: u64,
}

impl Stage {
    /// With no memory yet.
    pub(crate) fn new(sync: Sync) -> Stage {
        let label = "".into();
        Stage { sync, out: Messages::new(), into: Messages::new(), label, deadline: u64::MAX }
    }

    /// Makes runs end soon after `time` from now.
    pub(crate) fn allow(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.deadline = clock::ticks().saturating_add(us.saturating_mul(clock::ticks_per_us()));
    }

    /// Returns whether a run has taken as long as it may.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        clock::ticks() >= self.deadline
    }

    /// A message was wrong.
    #[cold]
    pub(crate) fn wrong(&self, spec: &Spec, source: Mismatch) -> Fail {
        Fail::Wrong { subject: self.label.to_string(), size: spec.size, source }
    }

    /// Returns whether this is the first process.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.sync.side == Side::First
    }
}
