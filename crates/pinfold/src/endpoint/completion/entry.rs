//! One completion.

use std::{any::Any, fmt};

use super::taker::Held;
use crate::{Message, Receipt, Received, Result};

/// The end of an operation whose result went to a [`CompletionQueue`](crate::CompletionQueue).
pub struct Completion {
    /// The number that was given with the operation.
    pub context: u64,
    /// Its result; the errors are those that the request's own call would have returned. A message
    /// that was longer than its buffer is [`Error::Truncated`](crate::Error::Truncated): the buffer
    /// holds its beginning.
    pub result: Result<Completed>,
    pub(super) buffer: Option<Box<dyn Any + Send>>,
}

/// The result of an operation that went well.
#[derive(Debug)]
#[non_exhaustive]
pub enum Completed {
    /// A message was sent, or a handler called: its memory is the caller's again.
    Sent(Receipt),
    /// A message came into the buffer.
    Received(Received),
    /// A message came, or the answer of a handler.
    Message(Message),
    /// Bytes of a region were written, or read into the buffer.
    Copied(Receipt),
    /// An atomic operation was done: the old value of the word, whose upper bits are 0 if it is
    /// shorter.
    Was(u64),
}

impl Completion {
    /// The buffer of the operation, if it brought one of this type, and it was not taken before.
    pub fn take_buffer<B: Send + 'static>(&mut self) -> Option<B> {
        let buffer = self.buffer.take()?;
        match buffer.downcast::<Held<B>>() {
            Ok(held) => Some(held.into_inner()),
            Err(other) => {
                self.buffer = Some(other);
                None
            }
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("context", &self.context)
            .field("result", &self.result)
            .finish_non_exhaustive()
    }
}
