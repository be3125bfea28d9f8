//! Putting pages where messages will be copied to, as [`prefault`](super::prefault) says.

use std::sync::OnceLock;

use pinfold_sys::{
    mem::prefault::{Prefault, Unput},
    trial,
};

use super::{
    engine::Engine,
    peer::Peer,
    prefault::{Outcome, Step},
};

/// The prefaulter of an endpoint.
///
/// It opens a userfaultfd to know that no other one has the memory. A filter on system calls may
/// end a process that asks for one, so nothing is done where a filter is in force, unless the
/// program says that it has no such memory.
pub(crate) struct Prefaulter {
    /// The setting of the program.
    wanted: Option<bool>,
    prefault: OnceLock<Prefault>,
}

impl Prefaulter {
    pub(crate) fn new(wanted: Option<bool>) -> Prefaulter {
        Prefaulter { wanted, prefault: OnceLock::new() }
    }

    /// Takes a step: some microseconds.
    pub(crate) fn put(&self, step: &Step) -> Outcome {
        // Looked at each time: a filter may come later.
        let is_unfiltered = trial::is_unfiltered();
        if !is_unfiltered && self.wanted != Some(true) {
            tracing::debug!("the memory of a receive was not made ready: there is a filter");
            return Outcome::NotNow;
        }
        let prefault = match self.prefault.get() {
            Some(prefault) => prefault,
            None => match Prefault::open(is_unfiltered) {
                Ok(prefault) => self.prefault.get_or_init(|| prefault),
                Err(error) => {
                    tracing::debug!(%error, "the memory of a receive was not made ready");
                    return Outcome::NotNow;
                }
            },
        };
        match prefault.put(step.address, step.len, step.most) {
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

/// The next addresses at which pages should be put, if there is no other work.
#[inline]
pub(crate) fn next_to_prefault(engine: &mut Engine) -> Option<Step> {
    if engine.core.prefault.is_empty() || is_receiving(engine) {
        return None;
    }
    engine.core.prefault.next(&mut engine.core.ops)
}

/// Returns whether a message has begun to come.
fn is_receiving(engine: &mut Engine) -> bool {
    let comes = |peer: &mut Peer| !peer.inbound.is_empty() || peer.transport.brings_direct();
    !engine.core.gets.is_empty()
        || !engine.core.puts.is_empty()
        || engine.hot.iter().any(|&index| engine.peers.at_mut(index).is_some_and(comes))
}
