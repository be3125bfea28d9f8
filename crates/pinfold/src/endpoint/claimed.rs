//! Messages that were claimed: looked at, and kept for one receive.

use std::{fmt, sync::Arc};

use super::{Envelope, MessageRequest, OwnedBufMut, RecvRequest, Source, TagMatch};
use crate::{
    Endpoint, Result,
    worker::{claims, matching::UnexpectedKey, progress, shared::Shared},
};

/// A message that has come before its receive and was [claimed](Endpoint::claim): no other receive
/// or probe finds it. MPI's matched probe.
///
/// Dropped it is found again, before all that came later. It uses its sender's credit meanwhile, as
/// every message without a receive does.
///
/// ```
/// use pinfold::Endpoint;
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-claimed-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let peer = endpoint.accept()?;
/// endpoint.send(itself, 1, b"a message")?;
/// endpoint.probe(peer, 1)?;
/// let claimed = endpoint.claim(peer, 1)?.expect("it has come");
/// assert!(endpoint.try_probe(peer, 1)?.is_none()); // Nobody else finds it.
/// let buffer = vec![0; claimed.envelope().len as usize]; // As long as the message is.
/// let (received, buffer) = claimed.recv_owned(buffer).wait();
/// assert_eq!(received?.tag, 1);
/// assert_eq!(buffer, b"a message");
/// # Ok(())
/// # }
/// ```
#[must_use = "dropped, the message is found by other receives again"]
pub struct Claimed {
    shared: Arc<Shared>,
    envelope: Envelope,
    /// `None` once it was received or discarded.
    key: Option<UnexpectedKey>,
}

impl Endpoint {
    /// Takes the earliest message that a receive would take now, so that only the result of this
    /// can receive it. Never waits. Any number of messages can be claimed at a time.
    ///
    /// # Errors
    /// As [`Endpoint::try_probe`].
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// use pinfold::{Endpoint, Source};
    ///
    /// let name = format!("local:doc-claim-{}", std::process::id());
    /// let (server, client) = (Endpoint::listen(&name)?, Endpoint::new()?);
    /// std::thread::scope(|threads| {
    ///     let server = threads.spawn(|| server.accept());
    ///     let peer = client.connect(&name)?;
    ///     server.join().unwrap()?;
    ///     client.send(peer, 1, b"one")?;
    ///     client.send(peer, 1, b"another")
    /// })?;
    ///
    /// server.probe(Source::Any, 1)?;
    /// let claimed = server.claim(Source::Any, 1)?.unwrap();
    /// assert_eq!(claimed.envelope().len, 3);
    /// assert_eq!(&*server.recv(Source::Any, 1)?, b"another");
    /// assert_eq!(&*claimed.recv_request().wait()?, b"one");
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> Result<Option<Claimed>> {
        let (from, tag) = (from.into(), tag.into());
        let mut engine = self.shared().enter()?;
        progress::progress(&mut engine);
        progress::turn(&mut engine);
        let claimed = claims::claim(&mut engine, from, tag)?;
        let shared = self.shared();
        Ok(claimed.map(|(key, envelope)| Claimed {
            shared: Arc::clone(shared),
            envelope,
            key: Some(key),
        }))
    }
}

impl Claimed {
    /// The message's sender, tag, length and first bytes.
    pub fn envelope(&self) -> Envelope {
        let mut envelope = self.envelope;
        if envelope.head.is_none()
            && let (Some(key), Ok(engine)) = (self.key, self.shared.enter())
        {
            envelope.head = claims::head_of_claimed(&engine, key);
        }
        envelope
    }

    /// Posts a receive of the message that owns its buffer. Never waits.
    ///
    /// # Errors
    /// The result's: as [`Endpoint::recv_into`].
    pub fn recv_owned<B: OwnedBufMut>(mut self, buffer: B) -> RecvRequest<B> {
        let (key, peer) = (self.key.take(), self.envelope.peer);
        RecvRequest::of_claimed(&self.shared, buffer, |memory| {
            let key = key.ok_or(crate::Error::Cancelled)?;
            claims::post_claimed(&mut *self.shared.enter()?, peer, key, Some(memory))
        })
    }

    /// Posts a receive of the message, which brings no buffer. Never waits.
    ///
    /// # Errors
    /// The result's: as [`Endpoint::recv`].
    pub fn recv_request(mut self) -> MessageRequest {
        let (key, peer) = (self.key.take(), self.envelope.peer);
        let posted = key.ok_or(crate::Error::Cancelled).and_then(|key| {
            let mut engine = self.shared.enter()?;
            claims::post_claimed(&mut engine, peer, key, None)
        });
        MessageRequest::of(&self.shared, posted)
    }

    /// Drops the message: its sender is told that it was received.
    pub fn discard(mut self) {
        if let (Some(key), Ok(mut engine)) = (self.key.take(), self.shared.enter()) {
            claims::discard_claimed(&mut engine, self.envelope.peer, key);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // In a forked child the message is the parent's.
        if let (Some(key), Ok(mut engine)) = (self.key.take(), self.shared.enter()) {
            claims::unclaim(&mut engine, key);
        }
    }
}

impl fmt::Debug for Claimed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}
