//! The handle that programs hold.

use std::{
    fmt,
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    Builder, Envelope, Gift, Handoff, Message, MessageRequest, OwnedBuf, OwnedBufMut, PeerInfo,
    Progress, Received, RecvRequest, Region, RegionKey, RemoteRegion, Rights, Scope, SendRequest,
    Source, TagMatch, View, ViewRequest, borrowed, config::Config, handoff, scope, shared::Shared,
};
use crate::{Counters, Error, Path, PeerId, Receipt, Result, link::local::Address};

/// Between two looks for a name that is not there yet.
const NAME_AGAIN: Duration = Duration::from_millis(20);

/// One party to the exchange of messages: it connects to others, others connect to it if it
/// listens, and messages go both ways between connected peers.
///
/// A handle; clones are handles of the same endpoint, which closes when the last is dropped. It
/// can be used from several threads at once. The thread that made it is served faster as long as
/// no other uses it.
///
/// A child made by `fork(2)` has no part in it: there its operations fail at once with
/// [`Error::Forked`], whatever other threads were doing at that moment, and dropping it takes
/// nothing from the parent. An endpoint made in the child works.
///
/// ```
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-{}", std::process::id());
/// use pinfold::Endpoint;
///
/// let server = Endpoint::listen(&name)?;
/// std::thread::scope(|threads| -> pinfold::Result<()> {
///     let client = threads.spawn(|| -> pinfold::Result<()> {
///         let client = Endpoint::new()?;
///         let peer = client.connect(&name)?;
///         client.send(peer, 7, b"how now")?;
///         Ok(())
///     });
///     let client_id = server.accept()?;
///     let message = server.recv(client_id, 7)?;
///     assert_eq!(&*message, b"how now");
///     client.join().unwrap()
/// })
/// # }
/// ```
#[derive(Clone)]
pub struct Endpoint {
    owner: Arc<Owner>,
}

/// Closes the endpoint with the last handle. Requests and the driving thread hold [`Shared`].
pub(super) struct Owner {
    shared: Arc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // In a forked child it stays the parent's.
        let _ = self.shared.close();
    }
}

impl Endpoint {
    /// The settings of an endpoint to be made.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// An endpoint that connects to others.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Endpoint> {
        Endpoint::builder().build()
    }

    /// An endpoint that listens at `address`, `local:NAME`.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn listen(address: &str) -> Result<Endpoint> {
        Endpoint::builder().listen(address).build()
    }

    pub(crate) fn from_config(config: Config) -> Result<Endpoint> {
        config.check()?;
        let dedicated = config.progress == Progress::Dedicated;
        let shared = Shared::new(config)?;
        let endpoint = Endpoint { owner: Arc::new(Owner { shared }) };
        endpoint.shared().owned_by(Arc::downgrade(&endpoint.owner));
        if dedicated {
            endpoint.shared().start_driver()?;
        }
        Ok(endpoint)
    }

    /// A handle, as long as the program has one.
    pub(super) fn of(owner: &Weak<Owner>) -> Option<Endpoint> {
        Some(Endpoint { owner: owner.upgrade()? })
    }

    #[inline(always)]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// Connects to the endpoint that listens at `address`: `local:NAME`, or `local:USER/NAME` for
    /// another user's that admits this one. Takes three crossings of a socket and, where allowed,
    /// the trial of the paths; some 100 µs if the other side is in a call of its endpoint.
    ///
    /// # Errors
    /// [`Error::NameGone`] if nobody listens there, [`Error::NotAllowed`],
    /// [`Error::VersionMismatch`], [`Error::LimitReached`], [`Error::BadAddress`];
    /// [`Error::NoAnswer`] if the other side does not answer in the endpoint's connect time-out;
    /// [`Error::Os`] if a process has no descriptors left, this one or the one listening.
    pub fn connect(&self, address: &str) -> Result<PeerId> {
        let address = address.parse::<Address>()?;
        self.dial(&address)
    }

    fn dial(&self, address: &Address) -> Result<PeerId> {
        let call = {
            let mut engine = self.shared().enter()?;
            engine.check()?;
            let patience = engine.config.connect_timeout;
            engine.call(address, patience)?
        };
        self.shared()
            .wait_for(None, |engine| match engine.links.take_connected(call) {
                None => engine.check().err().map(Err),
                connected => connected,
            })?
            .unwrap_or(Err(Error::Closed))
    }

    /// As [`Endpoint::connect`], but if nobody listens yet, waits up to `patience` for somebody to.
    ///
    /// # Errors
    /// As [`Endpoint::connect`]; [`Error::NameGone`] after `patience`.
    pub fn connect_wait(&self, address: &str, patience: Duration) -> Result<PeerId> {
        let address = address.parse::<Address>()?;
        let end = Instant::now().checked_add(patience);
        loop {
            match self.dial(&address) {
                Err(Error::NameGone { .. }) if end.is_none_or(|end| Instant::now() < end) => {
                    self.shared().enter()?.progress();
                    thread::sleep(NAME_AGAIN);
                }
                result => return result,
            }
        }
    }

    /// Waits for the next peer to connect. Peers that this endpoint connected to are not among
    /// them: [`Endpoint::connect`] returned those.
    ///
    /// # Errors
    /// [`Error::NotListening`] if the endpoint does not listen, [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn accept(&self) -> Result<PeerId> {
        self.accept_until(None)?.unwrap_or(Err(Error::Closed))
    }

    /// Waits at most `patience` for the next peer to connect.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::accept`].
    pub fn accept_timeout(&self, patience: Duration) -> Result<PeerId> {
        let end = Instant::now().checked_add(patience);
        self.accept_until(end)?.unwrap_or(Err(Error::Timeout(patience)))
    }

    fn accept_until(&self, end: Option<Instant>) -> Result<Option<Result<PeerId>>> {
        self.shared().wait_for(end, |engine| match engine.check() {
            Err(error) => Some(Err(error)),
            Ok(()) if engine.links.listens() => engine.newcomers.pop_front().map(Ok),
            Ok(()) => Some(Err(Error::NotListening)),
        })
    }

    /// The connected peers. In a forked child: none.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.shared().enter().map(|engine| engine.infos()).unwrap_or_default()
    }

    /// Facts about a connected peer.
    pub fn peer(&self, peer: PeerId) -> Option<PeerInfo> {
        let engine = self.shared().enter().ok()?;
        engine.present(peer).ok()?;
        engine.peers.get(peer).map(|peer| peer.info.clone())
    }

    /// Ends the connection with a peer; operations with it end with an error. A message of ours
    /// that the peer is reading at that moment ends with an error there, too.
    pub fn disconnect(&self, peer: PeerId) {
        if let Ok(mut engine) = self.shared().enter() {
            engine.remove_peer(peer, crate::Gone::Disconnected);
        }
    }

    /// Sends `data` and returns when the memory is the caller's again: at once if it went into
    /// the ring, else when the receiver has it. Up to 56 bytes cost some 30 ns and the cache line.
    ///
    /// # Errors
    /// [`Error::PeerGone`], [`Error::UnknownPeer`], [`Error::PathRefused`] in strict mode,
    /// [`Error::Transfer`], [`Error::Closed`], [`Error::Forked`].
    #[inline]
    pub fn send(&self, peer: PeerId, tag: u64, data: &[u8]) -> Result<Receipt> {
        borrowed::send(self.shared(), peer, tag, data)
    }

    /// As [`Endpoint::send`], by `path` and no other.
    ///
    /// # Errors
    /// [`Error::PathRefused`] if the pair cannot take it, and as [`Endpoint::send`].
    pub fn send_by(&self, path: Path, peer: PeerId, tag: u64, data: &[u8]) -> Result<Receipt> {
        borrowed::send_by(self.shared(), path, peer, tag, data)
    }

    /// As [`Endpoint::send`], of memory in several parts, as one message.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    pub fn send_vectored(&self, peer: PeerId, tag: u64, parts: &[IoSlice<'_>]) -> Result<Receipt> {
        borrowed::send_vectored(self.shared(), peer, tag, parts)
    }

    /// Waits for a matching message and receives it into `buf`.
    ///
    /// From any source it also waits while the endpoint has had no peer yet: another thread may
    /// be about to connect. In a program that connects nowhere else it would wait for ever.
    ///
    /// # Errors
    /// [`Error::Truncated`] with the true length if the message is longer; `buf` then holds its
    /// beginning. [`Error::PeerGone`] if the named peer is gone and has left no such message,
    /// [`Error::NobodyLeft`] if any peer would do and none is left; [`Error::Transfer`],
    /// [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`].
    #[inline]
    pub fn recv_into(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buf: &mut [u8],
    ) -> Result<Received> {
        borrowed::recv_into(self.shared(), from.into(), tag.into(), buf)
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
        borrowed::recv_vectored(self.shared(), from.into(), tag.into(), parts)
    }

    /// Waits for a matching message, whatever its length; for whom, see [`Endpoint::recv_into`].
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`], but for `Truncated`; [`Error::LimitReached`] if there is no
    /// memory for it.
    pub fn recv(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> Result<Message> {
        let arrived = borrowed::recv(self.shared(), from.into(), tag.into(), None)?;
        arrived.map(Message::new).ok_or(Error::Closed)
    }

    /// As [`Endpoint::recv`], waiting at most `patience`.
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
        let arrived = borrowed::recv(self.shared(), from.into(), tag.into(), end)?;
        arrived.map(Message::new).ok_or(Error::Timeout(patience))
    }

    /// Posts a send that owns its buffer. Never waits.
    pub fn send_owned<B: OwnedBuf>(&self, peer: PeerId, tag: u64, buffer: B) -> SendRequest<B> {
        SendRequest::post(self.shared(), peer, tag, buffer)
    }

    /// Posts a receive that owns its buffer. Never waits.
    ///
    /// Into a [`SharedBuf`](crate::SharedBuf) a long message is copied by its sender, too, which is
    /// handed the arena for that: the fastest way from ordinary memory, and one that takes none of the
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
    pub fn recv_message(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> MessageRequest {
        MessageRequest::post(self.shared(), from.into(), tag.into())
    }

    /// Gives memory away: the message is the memory itself. Never waits. The receiver gets a
    /// [`View`] of it by [`Endpoint::recv_view`], whatever its size at the same cost; any other
    /// receive copies it. When the receiver drops its view, or is gone, the memory goes back to its
    /// arena, or by [`Handoff::wait`] to the caller. If the pair cannot share memory, a copy goes.
    ///
    /// When this endpoint closes or disconnects, receivers' views become void
    /// ([`Error::Withdrawn`]), and the memory goes back at once.
    pub fn handoff(&self, peer: PeerId, tag: u64, gift: impl Into<Gift>) -> Handoff {
        Handoff::post(self.shared(), peer, tag, gift.into())
    }

    /// As [`Endpoint::handoff`], without a handle to its end: the cheapest way to give.
    ///
    /// # Errors
    /// As [`Endpoint::send`], as far as they show at once; the memory is then free again.
    #[inline]
    pub fn give(&self, peer: PeerId, tag: u64, gift: impl Into<Gift>) -> Result<()> {
        handoff::give(self.shared(), peer, tag, gift.into())
    }

    /// Waits for a matching message, which may stay where it is: if its sender gave its memory
    /// away ([`Endpoint::handoff`]), the view is of that memory.
    ///
    /// # Errors
    /// As [`Endpoint::recv`].
    #[inline]
    pub fn recv_view(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> Result<View<'_>> {
        handoff::recv_view(self.shared(), from.into(), tag.into())
    }

    /// As [`Endpoint::recv_view`], waiting at most `patience`.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::recv`].
    pub fn recv_view_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        patience: Duration,
    ) -> Result<View<'_>> {
        let mut request = self.view_request(from, tag);
        match request.wait_timeout(patience) {
            Some(result) => result,
            None if request.cancel() => Err(Error::Timeout(patience)),
            // A message that is already coming in must not be lost.
            None => request.wait(),
        }
    }

    /// Posts a receive of a message that may stay where it is. Never waits.
    pub fn view_request(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> ViewRequest {
        ViewRequest::post(self.shared(), from.into(), tag.into())
    }

    /// Memory of `len` bytes, all zeros, that peers can use by one-sided operations if they show its
    /// key. Memory is taken by 256 KiB.
    ///
    /// # Errors
    /// As for [`Arena::alloc`](crate::Arena::alloc); [`Error::Closed`], [`Error::Forked`].
    pub fn region(&self, len: usize, rights: Rights) -> Result<Region> {
        Region::new(self.shared(), len, rights)
    }

    /// The region of a peer that has this key. Asks its owner, which answers while it makes progress.
    ///
    /// It is mapped here. If it cannot be, by a limit or since one side has switched `mapped` off, the
    /// kernel reads and writes it where it is ([`RemoteRegion::path`] says which).
    ///
    /// # Errors
    /// [`Error::BadKey`]; [`Error::OutOfReach`] with both reasons if neither is possible;
    /// [`Error::PathRefused`] if it cannot be mapped although no side has switched that off, and the
    /// endpoint is [`strict`](crate::Builder::strict); [`Error::PeerGone`], [`Error::UnknownPeer`],
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn open_region(&self, peer: PeerId, key: &RegionKey) -> Result<RemoteRegion> {
        RemoteRegion::open(self.shared(), peer, key)
    }

    /// Bytes of address space, with or without memory, of regions that were revoked or dropped while
    /// peers were at them through the kernel. They are kept until those have left or ended: for
    /// peers that keep to the rules, as long as a copy of 1 MiB takes. In a forked child: 0.
    pub fn region_bytes_kept(&self) -> u64 {
        let Ok(mut engine) = self.shared().enter() else { return 0 };
        engine.core.regions.parked.look();
        engine.core.regions.parked.bytes()
    }

    /// The message that a receive would take now, left where it is. Never waits.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`].
    pub fn probe(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> Result<Option<Envelope>> {
        let (from, tag) = (from.into(), tag.into());
        let mut engine = self.shared().enter()?;
        engine.progress();
        engine.turn();
        engine.probe(from, tag)
    }

    /// Waits until a receive would take a message at once.
    ///
    /// # Errors
    /// As [`Endpoint::recv_into`].
    pub fn probe_wait(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> Result<Envelope> {
        let (from, tag) = (from.into(), tag.into());
        let found = self.shared().wait_for(None, |engine| engine.probe(from, tag).transpose())?;
        found.unwrap_or(Err(Error::Closed))
    }

    /// Runs `f` with a scope in which operations in flight may borrow memory from outside. All of
    /// them have ended when this returns: sends are waited for, receives that nothing has
    /// matched are withdrawn.
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

    /// Does what can be done now without waiting. Whether anything was.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn progress(&self) -> Result<bool> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        engine.turn();
        Ok(engine.progress())
    }

    /// Prepares for waiting on the endpoint's descriptor ([`AsFd`]) with `poll(2)` or an event loop:
    /// asks all peers to ring. `false`: something is there already, or has happened since this was
    /// last asked; make progress, look at your requests, and ask again.
    /// The descriptor becomes readable when there is something to do; the next call of the
    /// endpoint takes the request back.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn arm(&self) -> Result<bool> {
        let mut engine = self.shared().enter()?;
        engine.check()?;
        if std::mem::take(&mut engine.news) {
            return Ok(false);
        }
        if self.shared().has_handling(&engine) {
            return Ok(false);
        }
        engine.armed = true;
        if engine.driven {
            // The endpoint's own thread takes what comes, and rings.
            return engine
                .links
                .bell
                .clear()
                .map(|_| true)
                .map_err(|error| Error::os("read", "the endpoint's bell", error));
        }
        if engine.asleep || engine.ask_all() {
            engine.note_armed();
            return Ok(true);
        }
        engine.armed = false;
        Ok(false)
    }

    /// What the endpoint has done so far. In a forked child: nothing.
    pub fn counters(&self) -> Counters {
        let counters = |engine: super::shared::Inside<'_>| {
            engine.core.note_copies();
            engine.core.status.counters()
        };
        self.shared().enter().map(counters).unwrap_or_default()
    }

    /// Its copies at user level of 2 KiB and more, by algorithm and by size: of messages, by one-sided
    /// operations on regions of peers, and out of views. In a forked child: none.
    ///
    /// Memory that other threads of this process may reach at the same time is copied word by word,
    /// and not counted: its own regions, buffers of shared arenas.
    pub fn copies(&self) -> crate::blockmem::Counts {
        self.shared().enter().map(|engine| engine.core.copies()).unwrap_or_default()
    }

    /// Closes the endpoint now; all that waits on it ends with [`Error::Closed`]. In a forked
    /// child it does nothing: the endpoint is the parent's.
    pub fn close(&self) {
        let _ = self.shared().close();
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared().pollable.as_fd()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").finish_non_exhaustive()
    }
}
