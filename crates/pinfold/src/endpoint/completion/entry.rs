//! One completion.

use std::{any::Any, fmt};

use super::taker::Held;
use crate::{
    Message, MultiReceived, PeerId, Receipt, Received, Result, endpoint::connecting::Home,
    worker::connections::accepts,
};

/// The end of an operation whose result went to a [`CompletionQueue`](crate::CompletionQueue).
///
/// ```
/// use pinfold::{CompletionQueue, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-completion-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// let queue = CompletionQueue::new()?;
/// queue.add(77, endpoint.recv_owned(peer, 1, vec![0; 3]));
/// endpoint.send(itself, 1, b"yes")?;
/// let mut ended = Vec::new();
/// queue.wait(&mut ended, 1, None)?;
/// let mut completion = ended.remove(0);
/// assert_eq!(completion.context, 77);
/// assert!(completion.result.is_ok());
/// assert_eq!(completion.take_buffer(), Some(b"yes".to_vec()));
/// # Ok(())
/// # }
/// ```
pub struct Completion {
    /// The number that was given with the operation.
    pub context: u64,
    /// Its result; the errors are those that the request's own call would have returned. A message
    /// that was longer than its buffer is [`Error::Truncated`](crate::Error::Truncated): the
    /// buffer holds its beginning.
    pub result: Result<Completed>,
    pub(super) buffer: Option<Box<dyn Any + Send>>,
}

/// The result of an operation that went well.
///
/// ```
/// use pinfold::{Completed, CompletionQueue, Endpoint};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-completed-{}", std::process::id());
/// # let endpoint = Endpoint::listen(&name)?;
/// # let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// # let peer = endpoint.accept()?;
/// let queue = CompletionQueue::new()?;
/// queue.add(0, endpoint.recv_request(peer, 1));
/// queue.add(0, endpoint.send_owned(itself, 1, b"yes".to_vec()));
/// let mut ended = Vec::new();
/// while ended.len() < 2 {
///     queue.wait(&mut ended, 2, None)?;
/// }
/// for completion in ended {
///     match completion.result? {
///         Completed::Sent(receipt) => assert_eq!(receipt.bytes, 3),
///         Completed::Message(message) => assert_eq!(&*message, b"yes"),
///         other => panic!("no other operation was added: {other:?}"),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Completed {
    /// A message was sent, or a handler called: its memory is the caller's again.
    Sent(Receipt),
    /// A message came into the buffer.
    Received(Received),
    /// A message came into the buffer of a receive of many, or failed to. The last one, which
    /// [says so](MultiReceived::is_last), has the buffer; if there is no such one, an error has it.
    MultiReceived(MultiReceived),
    /// A message came, or the answer of a handler.
    Message(Message),
    /// Bytes of a region, or of other memory of a peer's, were written, or read into the buffer.
    Copied(Receipt),
    /// An atomic operation was done: the old value of the word, whose upper bits are 0 if it is
    /// shorter.
    Was(u64),
    /// The peer that was called is connected.
    Connected(PeerId),
    /// A peer has called, and is connected.
    Accepted(PeerId),
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

    /// Nobody takes the completion: a peer that it tells of is given up.
    pub(super) fn give_up(mut self) {
        let (peer, has_called) = match self.result {
            Ok(Completed::Connected(peer)) => (peer, false),
            Ok(Completed::Accepted(peer)) => (peer, true),
            _ => return,
        };
        // In a forked child it is the parent's.
        if let Some(shared) = self.take_buffer::<Home>().and_then(|home| home.upgrade())
            && let Ok(mut engine) = shared.enter()
        {
            accepts::decline(&mut engine, peer, has_called);
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
