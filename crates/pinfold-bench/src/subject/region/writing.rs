//! A message is written into the other side's region, its last word a number that the other side
//! polls there like a flag. It is not copied out. But for that word all messages of a run are the
//! same; the bytes that lie there in the end are checked.

use std::sync::atomic::Ordering;

use pinfold_sys::cpu::clock;

use super::{Region, WORD, last_word};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    subject::Subject,
};

/// The writing to and fro of one message.
pub(super) struct Writing<'a> {
    pub region: &'a mut Region,
    pub message: &'a mut [u8],
}

impl Subject for Writing<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        let region = &mut *self.region;
        region.sent += 1;
        let at = last_word(self.message.len());
        self.message[at..at + WORD].copy_from_slice(&region.sent.to_ne_bytes());
        region.theirs.write(0, self.message)?;
        Ok(())
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let region = &mut *self.region;
        region.received += 1;
        let word = region.own.word64(last_word(self.message.len())).ok_or(Fail::Gone)?;
        region.watch.until(|| {
            let here = word.load(Ordering::Acquire) == region.received;
            if !here {
                // Like any loop that polls a flag: between two looks the writer gets the line.
                clock::relax();
            }
            here
        })
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("one side writes at a time".into()))
    }

    fn carries_bytes(&self) -> bool {
        // The messages of the stage are not used.
        false
    }
}
