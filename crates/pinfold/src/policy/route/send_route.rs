//! The send modes of long messages to one peer on another host: by what they cost here
//! ([`SendCosts`]), as long as the route does what is asked of it. No I/O.
//!
//! The kernel may copy a message that was to be sent from where it lies: a route to the same host
//! always does that, and so does a device that cannot gather. So now and then a message is a
//! *trial*. If the kernel reports that it copied, or that it cannot, or if the send took longer
//! than a copy would have, the route *rests* for a number of messages that doubles each time; all
//! of these are copied outright.

use super::{Outgoing, SendMode, send_costs::SendCosts, send_modes::SendMemory};

/// Long messages before the first trial: a sender of fewer has no need to know.
const REST_FIRST: u64 = 16;
/// Messages between trials that fail: at first, and at most.
const REST: u64 = 64;
const REST_MAX: u64 = 1 << 16;
/// One message in so many is copied although that is not needed, to learn the cost of a copy.
const LOOK_EVERY: u64 = 64;
/// How messages to one peer are sent.
#[derive(Debug)]
pub(crate) struct SendRoute {
    /// The mode that the program insists on.
    insisted: Option<SendMode>,
    costs: SendCosts,
    /// Messages that are copied before the next trial.
    rest: u64,
    /// Messages that are copied after the next trial if that fails.
    pause: u64,
    state: State,
    /// Messages since one was copied.
    uncopied: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No trial has succeeded, or the last one failed.
    Copying,
    /// A trial is out, and the kernel has yet to report how it was sent.
    Trying,
    /// The last trial was not copied.
    Proven,
}

impl SendRoute {
    pub(crate) fn new(insisted: Option<SendMode>) -> SendRoute {
        SendRoute {
            insisted,
            costs: SendCosts::new(),
            rest: REST_FIRST,
            pause: REST,
            state: State::Copying,
            uncopied: 0,
        }
    }

    /// Returns whether it is worth having memory pinned for longer than a send.
    pub(crate) fn wants_cache(&self) -> bool {
        match self.insisted {
            Some(mode) => matches!(mode, SendMode::Cached | SendMode::Aligned),
            None => self.state == State::Proven,
        }
    }

    /// How a message is to be sent. Some tens of ns.
    pub(crate) fn choose(&mut self, it: &Outgoing) -> SendMode {
        if let Some(mode) = self.insisted {
            return as_far_as_possible(mode, it.memory);
        }
        if self.state == State::Trying {
            return SendMode::Plain;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return SendMode::Plain;
        }
        let mode = self.costs.cheapest(it);
        if mode.copies() {
            // The mode copies by nature, or since the other was found to be slower: then that gets
            // another chance some time.
            if !self.costs.cheapest_elsewhere(it).copies() {
                self.failed();
            }
            return SendMode::Plain;
        }
        if self.state == State::Copying {
            self.state = State::Trying;
            return mode;
        }
        self.uncopied += 1;
        if self.uncopied.is_multiple_of(LOOK_EVERY) {
            return SendMode::Plain;
        }
        mode
    }

    /// A call has sent `bytes` bytes in `ns` nanoseconds.
    pub(crate) fn took(&mut self, mode: SendMode, bytes: usize, ns: u64) {
        self.costs.took(mode, bytes, ns);
    }

    /// A message that was not to be copied has been sent, and the kernel is done with it.
    pub(crate) fn landed(&mut self, copied: bool) {
        if copied {
            self.failed();
        } else {
            self.state = State::Proven;
            (self.rest, self.pause) = (0, REST);
        }
    }

    /// A message that was not to be copied could not be sent that way.
    pub(crate) fn failed(&mut self) {
        self.state = State::Copying;
        self.rest = self.pause;
        self.pause = (self.pause * 2).min(REST_MAX);
        self.costs.forget_uncopied();
    }
}

/// The mode, or the next one that can send such memory.
fn as_far_as_possible(mode: SendMode, memory: SendMemory) -> SendMode {
    match (mode, memory) {
        (SendMode::Aligned | SendMode::Cached, SendMemory::Unregistered) => SendMode::PerSend,
        // Messages are sent from where they lie: none is placed.
        (SendMode::Aligned, _) => SendMode::Cached,
        (mode, _) => mode,
    }
}

#[cfg(test)]
mod tests;
