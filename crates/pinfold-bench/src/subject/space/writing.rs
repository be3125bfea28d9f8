//! A message is written to an address of the other side's, its last word a number that the other
//! side polls there. It is not copied out. But for that word all messages of a run are the same;
//! the bytes that lie there in the end are checked.

use std::sync::atomic::Ordering;

use pinfold_sys::cpu::clock;

use super::{Space, WORD, last_word};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    subject::Subject,
};

/// The writing to and fro of one message.
pub(super) struct Writing<'a> {
    pub space: &'a mut Space,
    pub message: &'a mut [u8],
}

impl Subject for Writing<'_> {
    #[inline]
    fn send(&mut self, _message: &[u8]) -> Result<()> {
        let space = &mut *self.space;
        space.sent += 1;
        let at = last_word(self.message.len());
        self.message[at..at + WORD].copy_from_slice(&space.sent.to_ne_bytes());
        space.there.write(0, self.message)
    }

    #[inline]
    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        let space = &mut *self.space;
        space.received += 1;
        let word = space.own.word(last_word(self.message.len()))?;
        space.talk.until(&space.watch, space.there.needs_agent(), || {
            let here = word.load(Ordering::Acquire) == space.received;
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
