//! The subjects that are measured: Pinfold, its alternatives, and the floors.
//!
//! Every subject moves messages of an agreed size between the same two processes, from and into
//! memory of the same kind, and is set up once, before anything is timed. The place of messages
//! makes a difference to Pinfold; all other subjects have them in ordinary memory, but for
//! `mapping`, which arenas are measured against.

pub(super) mod active;
mod bytes;
pub(super) mod cma;
mod fabric;
pub(super) mod handoff;
pub(super) mod line;
pub(super) mod many;
pub(super) mod mapping;
pub(super) mod memcpy;
mod offers;
pub(super) mod pinfold;
pub(super) mod pipe;
pub(super) mod region;
pub(super) mod ring;
pub(super) mod space;
pub(super) mod tcp;
pub(super) mod unix;

pub(super) use self::{bytes::Bytes, fabric::Fabric, pinfold::Pinfold};
use super::{
    fail::Result,
    payload::Messages,
    stage::Stage,
    terms::{Outcome, Setting, Spec},
};

/// The way in which a subject waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It looks again at once: the least latency, a whole core.
    Spin,
    /// It sleeps in the kernel, as programs do that save processor time.
    Sleep,
}

/// One side's end of a subject that moves messages between the two processes.
///
/// Both sides know the size of the next message. Messages arrive in order.
pub(crate) trait Subject {
    /// Sends `message`. It may still be read until the other side has received it.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Receives the next message, which is as long as `into`.
    fn recv(&mut self, into: &mut [u8]) -> Result<()>;

    /// Sends `count` messages, as many at a time as suits the subject.
    fn stream_out(&mut self, messages: &Messages, count: usize) -> Result<()> {
        (0..count).try_for_each(|number| self.send(messages.get(number)))
    }

    /// Receives `count` messages.
    fn stream_in(&mut self, into: &mut Messages, count: usize) -> Result<()> {
        (0..count).try_for_each(|number| self.recv(into.get_mut(number)))
    }

    /// Sends and receives `count` messages at once, while the other side does the same.
    fn exchange(&mut self, out: &Messages, into: &mut Messages, count: usize) -> Result<()>;

    /// Sets the way of waiting from now on.
    fn set_waiting(&mut self, _waiting: Waiting) -> Result<()> {
        Ok(())
    }

    /// Sets the circumstances of messages from now on, as far as they concern it.
    fn set_setting(&mut self, _setting: Setting) -> Result<()> {
        Ok(())
    }

    /// Returns whether messages carry bytes that can be checked.
    fn carries_bytes(&self) -> bool {
        true
    }

    /// The path that the last message took, if there is a choice.
    fn path_taken(&self) -> Option<&'static str> {
        None
    }

    /// The provider that carries the messages, where it has found that out for itself.
    fn provider(&self) -> Option<String> {
        None
    }
}

/// A subject as the runner sees it: it does its part of one run.
pub(crate) trait Bench {
    /// Does this side's part.
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome>;

    /// The provider that carries the messages, where it has found that out for itself.
    fn provider(&self) -> Option<String> {
        None
    }
}
