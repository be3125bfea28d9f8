//! Messages that are copied: sends, receives, probes.

use std::{
    io::{IoSlice, IoSliceMut},
    time::{Duration, Instant},
};

use crate::{
    Error, Path, PeerId, Receipt, Result,
    endpoint::{
        Endpoint, Envelope, Message, MessageRequest, MultiRecv, OwnedBuf, OwnedBufMut,
        ProbeRequest, Received, RecvRequest, Scope, SendRequest, Source, TagMatch, blocking, scope,
        send_timeout,
    },
    worker::{claims, followers::Awaited, progress},
};

impl Endpoint {
    /// Sends `data` and returns when the memory is the caller's again: at once if it went into the
    /// ring, else when the receiver has it. Up to 56 bytes cost some 30 ns and the transfer of the
    /// cache line.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::UnknownPeer`], [`Error::PathRefused`] in strict mode,
    /// [`Error::Transfer`], [`Error::Closed`], [`Error::Forked`].
    #[inline]
    pub fn send(&self, peer: PeerId, tag: u64, data: &[u8]) -> Result<Receipt> {
        blocking::send(self.shared(), peer, tag, data)
    }

    /// As [`Endpoint::send`], waiting at most `patience` for the receiver to take the message, and
    /// then a moment (0.1 s) for it to confirm that the message is taken back. A message that has
    /// begun to move within that time goes on; up to 1 MiB that come through the ring are copied
    /// for that, longer ones are waited for.
    ///
    /// A long message stays in this memory until it has moved. The receiver is told where it lies:
    /// if it does not call Pinfold when the time is up, its answer is waited for however long that
    /// takes. A caller that cannot wait should post a message that owns its buffer
    /// ([`Endpoint::send_owned`]).
    ///
    /// # Errors
    /// [`Error::NotTaken`] with the reason; nothing was sent then, except for
    /// [`Untaken::Unsure`](crate::Untaken::Unsure). And as [`Endpoint::send`].
    pub fn send_timeout(
        &self,
        peer: PeerId,
        tag: u64,
        data: &[u8],
        patience: Duration,
    ) -> Result<Receipt> {
        send_timeout::send(self.shared(), peer, tag, data, patience)
    }

    /// As [`Endpoint::send`], by `path` and no other.
    ///
    /// # Errors
    /// [`Error::PathRefused`] if the pair cannot take it, and as [`Endpoint::send`].
    pub fn send_by(&self, path: Path, peer: PeerId, tag: u64, data: &[u8]) -> Result<Receipt> {
        blocking::send_by(self.shared(), path, peer, tag, data)
    }

    /// As [`Endpoint::send`], of memory in several parts, as one message.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn send_vectored(&self, peer: PeerId, tag: u64, parts: &[IoSlice<'_>]) -> Result<Receipt> {
        blocking::send_vectored(self.shared(), peer, tag, parts)
    }

    /// Waits for a matching message and receives it into `buf`.
    ///
    /// From any source it also waits while the endpoint has had no peer yet: another thread may be
    /// about to connect. A program that connects nowhere else would wait for ever.
    ///
    /// # Errors
    /// [`Error::Truncated`] with the true length if the message is longer; `buf` then holds its
    /// beginning. [`Error::PeerGone`] if the named peer is gone and has left no such message,
    /// [`Error::NobodyLeft`] for a receive from any source if no peer is left; [`Error::Transfer`],
    /// [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`].
    #[inline]
    pub fn recv_into(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buf: &mut [u8],
    ) -> Result<Received> {
        blocking::recv_into(self.shared(), from.into(), tag.into(), buf)
    }

    /// As [`Endpoint::recv_into`], into memory in several parts.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`].
    pub fn recv_vectored(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        parts: &mut [IoSliceMut<'_>],
    ) -> Result<Received> {
        blocking::recv_vectored(self.shared(), from.into(), tag.into(), parts)
    }

    /// Waits for a matching message of any length; as to its source, see [`Endpoint::recv_into`].
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`], except for `Truncated`; [`Error::LimitReached`] if there is no
    /// memory for it.
    pub fn recv(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> Result<Message> {
        let arrived = blocking::recv(self.shared(), from.into(), tag.into(), None)?;
        arrived.map(Message::new).ok_or(Error::Closed)
    }

    /// As [`Endpoint::recv`], waiting at most `patience`. A message that has only begun to come by
    /// then goes to the next receive.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::recv`].
    pub fn recv_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        patience: Duration,
    ) -> Result<Message> {
        let end = Instant::now().checked_add(patience);
        let arrived = blocking::recv(self.shared(), from.into(), tag.into(), end)?;
        arrived.map(Message::new).ok_or(Error::Timeout(patience))
    }

    /// Posts a send that owns its buffer. Never waits.
    pub fn send_owned<B: OwnedBuf>(&self, peer: PeerId, tag: u64, buffer: B) -> SendRequest<B> {
        SendRequest::post(self.shared(), peer, tag, buffer)
    }

    /// Posts a receive that owns its buffer. Never waits.
    ///
    /// Into a [`SharedBuf`](crate::SharedBuf) the sender helps to copy a long message, since it is
    /// handed the arena for that: the fastest way from ordinary memory, and one without the system
    /// calls that containers deny.
    pub fn recv_owned<B: OwnedBufMut>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: B,
    ) -> RecvRequest<B> {
        RecvRequest::post(self.shared(), from.into(), tag.into(), buffer)
    }

    /// Posts a receive of a message of any length. Never waits.
    pub fn recv_request(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> MessageRequest {
        MessageRequest::post(self.shared(), from.into(), tag.into())
    }

    /// Posts a receive of many messages, which are placed one behind the other in the buffer, in
    /// the order in which they matched, each at a multiple of 8 bytes. Never waits.
    ///
    /// It takes messages until less than `min_free` bytes are left (at least 1 and at most all of
    /// the buffer); each takes at least 8. A message that is longer than the room left is
    /// [truncated](Error::Truncated): none of up to `min_free` bytes is. As long as it is posted,
    /// receives that are posted later do not overtake it.
    ///
    /// It costs an allocation when it is posted, and a message little more than one of a posted
    /// receive.
    ///
    /// ```
    /// # fn main() -> pinfold::Result<()> {
    /// use pinfold::{Endpoint, TagMatch};
    ///
    /// let name = format!("local:doc-multi-{}", std::process::id());
    /// let (server, client) = (Endpoint::listen(&name)?, Endpoint::new()?);
    /// let (to_client, to_server) = std::thread::scope(|threads| {
    ///     let to_client = threads.spawn(|| server.accept());
    ///     let to_server = client.connect(&name)?;
    ///     Ok::<_, pinfold::Error>((to_client.join().unwrap()?, to_server))
    /// })?;
    ///
    /// let mut requests = server.multi_recv(to_client, TagMatch::any(), vec![0; 100], 60);
    /// for (tag, text) in ["one", "two", "a somewhat longer third one"].iter().enumerate() {
    ///     client.send(to_server, tag as u64, text.as_bytes())?;
    /// }
    /// let mut texts = Vec::new();
    /// while let Some(message) = requests.next() {
    ///     let message = message?;
    ///     message.result.as_ref().unwrap();
    ///     texts.push((message.range.start, requests.bytes(&message).unwrap().to_vec()));
    /// }
    /// // Less than 60 bytes are left behind the third, so that was the last.
    /// assert_eq!(texts[1], (8, b"two".to_vec()));
    /// assert_eq!(texts[2], (16, b"a somewhat longer third one".to_vec()));
    /// let buffer = requests.take_buffer().unwrap();
    /// assert_eq!(&buffer[..3], b"one");
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_recv<B: OwnedBufMut>(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: B,
        min_free: usize,
    ) -> MultiRecv<B> {
        MultiRecv::post(self.shared(), from.into(), tag.into(), buffer, min_free)
    }

    /// The message that a receive would take now, left where it is. Never waits.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`].
    pub fn try_probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> Result<Option<Envelope>> {
        let (from, tag) = (from.into(), tag.into());
        let mut engine = self.shared().enter()?;
        progress::progress(&mut engine);
        progress::turn(&mut engine);
        claims::probe(&mut engine, from, tag)
    }

    /// Waits until a receive would take a message at once.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`].
    pub fn probe(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> Result<Envelope> {
        let (from, tag) = (from.into(), tag.into());
        let found = self.shared().wait_for(None, Awaited::Anything, |engine| {
            claims::probe(engine, from, tag).transpose()
        })?;
        found.unwrap_or(Err(Error::Closed))
    }

    /// As [`Endpoint::probe`], waiting at most `patience`.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::probe`].
    pub fn probe_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        patience: Duration,
    ) -> Result<Envelope> {
        let found = self.probe_request(from, tag).wait_timeout(patience);
        found.unwrap_or(Err(Error::Timeout(patience)))
    }

    /// As [`Endpoint::probe`], but does not wait: the [request](ProbeRequest) ends once there is a
    /// message that a receive would take. It takes none: by the time that is looked at, a receive
    /// may have.
    pub fn probe_request(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> ProbeRequest {
        ProbeRequest::post(self.shared(), from.into(), tag.into())
    }

    /// Runs `f` with a scope in which operations in flight may borrow memory from outside. All of
    /// them have ended when this returns: sends are waited for, receives that no message has
    /// matched are withdrawn, and the messages of receives that were not waited for are left to the
    /// next ones.
    ///
    /// ```
    /// # fn exchange(endpoint: &pinfold::Endpoint, peer: pinfold::PeerId) -> pinfold::Result<()> {
    /// let ours = [1u8; 4096];
    /// let mut theirs = [0u8; 4096];
    /// endpoint.scope(|s| {
    ///     let sent = s.send(peer, 1, &ours)?;
    ///     let (received, bytes) = s.recv_into(peer, 1, &mut theirs)?.wait();
    ///     assert_eq!(bytes.len() as u64, received?.len);
    ///     sent.wait()?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> R {
        scope::run(self.shared(), f)
    }
}
