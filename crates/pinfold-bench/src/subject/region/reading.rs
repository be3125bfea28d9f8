//! A message lies in the region of the side that sends it, its last word a number. The other side
//! reads that word until the number has changed, and then the message, all of it at once. But for
//! that word all messages of a run are the same; the bytes read last are checked.

use std::sync::atomic::Ordering;

use super::{Region, WORD, last_word};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    subject::Subject,
};

/// The reading to and fro of one message.
pub(super) struct Reading<'a> {
    pub region: &'a mut Region,
    /// The bytes read last.
    pub into: Vec<u8>,
}

impl Subject for Reading<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        let region = &mut *self.region;
        region.sent += 1;
        let word = region.own.word64(last_word(self.into.len())).ok_or(Fail::Gone)?;
        word.store(region.sent, Ordering::Release);
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let region = &mut *self.region;
        region.received += 1;
        let at = last_word(self.into.len());
        let (theirs, number) = (&region.theirs, region.received.to_ne_bytes());
        let (mut word, mut failed) = ([0; WORD], None);
        region.watch.until(|| {
            failed = theirs.read(at as u64, &mut word).err();
            failed.is_some() || word == number
        })?;
        if let Some(why) = failed {
            return Err(why.into());
        }
        // A message of a single word has been read by now.
        match at {
            0 => self.into.copy_from_slice(&word),
            _ => drop(theirs.read(0, &mut self.into)?),
        }
        if self.into[at..] == number {
            return Ok(());
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
