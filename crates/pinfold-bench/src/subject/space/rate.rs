//! The first process writes words to one address of the second, or reads them from it, each after
//! the one before has returned. The second does nothing for it, unless its agent copies.

use super::{Space, WORD};
use crate::{
    fail::{Fail, Result},
    payload::Messages,
    subject::Subject,
};

/// Many operations of one word.
pub(super) struct Rate<'a> {
    pub space: &'a mut Space,
    /// The word read last.
    pub word: [u8; WORD],
}

impl Subject for Rate<'_> {
    fn stream_out(&mut self, _messages: &Messages, count: usize) -> Result<()> {
        let space = &mut *self.space;
        for _ in 0..count {
            if space.reads {
                space.there.read(0, &mut self.word)?;
            } else {
                space.streamed += 1;
                space.there.write(0, &space.streamed.to_ne_bytes())?;
            }
        }
        space.tell_served()
    }

    fn stream_in(&mut self, _into: &mut Messages, _count: usize) -> Result<()> {
        self.space.serve_until_told()
    }

    fn send(&mut self, _message: &[u8]) -> Result<()> {
        Err(Fail::Said("one of many words is no message".into()))
    }

    fn recv(&mut self, _into: &mut [u8]) -> Result<()> {
        Err(Fail::Said("one of many words is no message".into()))
    }

    fn exchange(&mut self, _: &Messages, _: &mut Messages, _: usize) -> Result<()> {
        Err(Fail::Said("one side works at a time".into()))
    }

    fn carries_bytes(&self) -> bool {
        // The messages of the stage are not used.
        false
    }
}
