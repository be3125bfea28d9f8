//! Putting pages where messages will be copied to, as [`ready`](super::engine::ready) says.

use std::sync::OnceLock;

use pinfold_sys::{
    ahead::{Ahead, Unput},
    trial,
};

use super::engine::ready::{Outcome, Step};

/// What an endpoint does it with.
///
/// To know that no userfaultfd has the memory takes one. As a filter on system calls may end who asks for it, nothing
/// is done where one is in force, unless the program says that it has no such memory.
pub(crate) struct Preparer {
    /// What the program has said.
    wanted: Option<bool>,
    ahead: OnceLock<Ahead>,
}

impl Preparer {
    pub(crate) fn new(wanted: Option<bool>) -> Preparer {
        Preparer { wanted, ahead: OnceLock::new() }
    }

    /// Takes a step: some microseconds.
    pub(crate) fn put(&self, step: &Step) -> Outcome {
        // Looked at each time: a filter may come later.
        let is_unfiltered = trial::is_unfiltered();
        if !is_unfiltered && self.wanted != Some(true) {
            tracing::debug!("the memory of a receive was not made ready: there is a filter");
            return Outcome::NotNow;
        }
        let ahead = match self.ahead.get() {
            Some(ahead) => ahead,
            None => match Ahead::open(is_unfiltered) {
                Ok(ahead) => self.ahead.get_or_init(|| ahead),
                Err(error) => {
                    tracing::debug!(%error, "the memory of a receive was not made ready");
                    return Outcome::NotNow;
                }
            },
        };
        match ahead.put(step.address, step.len, step.most) {
            Ok(put) => Outcome::Saw { seen: put.seen, made: put.made },
            Err(Unput::NotOurs) => Outcome::NotOurs,
            Err(Unput::NotNow(error)) => {
                tracing::debug!(%error, "the memory of a receive was not made ready");
                Outcome::NotNow
            }
            Err(Unput::Never(error)) => {
                tracing::debug!(%error, "no memory of receives is made ready");
                Outcome::Never
            }
        }
    }
}
