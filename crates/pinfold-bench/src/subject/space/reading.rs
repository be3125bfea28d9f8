//! A message lies in the memory of the side that sends it, its last word a number. The other side
//! reads that word by its address until the number has changed, and then the message, all of it at
//! once. But for that word all messages of a run are the same; the bytes read last are checked.
//!
//! If the sender's agent reads, the sender stays until it is told that all has been read.

use std::sync::atomic::Ordering;

use super::{Space, WORD, last_word};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    subject::Subject,
};

/// The reading to and fro of one message.
pub(super) struct Reading<'a> {
    pub space: &'a mut Space,
    /// The bytes read last.
    pub into: Vec<u8>,
}

impl Subject for Reading<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        let space = &mut *self.space;
        space.sent += 1;
        space.own.word(last_word(self.into.len()))?.store(space.sent, Ordering::Release);
        space.serve_until_told()
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let space = &mut *self.space;
        space.received += 1;
        let at = last_word(self.into.len());
        let (there, number) = (&mut space.there, space.received.to_ne_bytes());
        let (mut word, mut failed) = ([0; WORD], None);
        space.watch.until(|| {
            failed = there.read(at, &mut word).err();
            failed.is_some() || word == number
        })?;
        if let Some(why) = failed {
            return Err(why);
        }
        // A message of a single word has been read by now.
        match at {
            0 => self.into.copy_from_slice(&word),
            _ => drop(there.read(0, &mut self.into)?),
        }
        if self.into[at..] == number {
            return space.tell_served();
        }
        Err(Fail::Said("what was read is older than what was read before".into()))
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("one side reads at a time".into()))
    }

    fn carries_bytes(&self) -> bool {
        // The messages of the stage are not used.
        false
    }
}
