//! Memory that peers get to see: given away with a message, or there for one-sided operations.

use std::time::Duration;

use crate::{
    Error, PeerId, Result,
    endpoint::{
        DonatedBuf, Endpoint, Handoff, HandoffVectored, NotGiven, Region, RegionKey, RemoteRegion,
        RemoteSpace, Rights, Source, TagMatch, View, ViewRequest, give, handoff,
    },
    protocol::handoff::latest,
};

impl Endpoint {
    /// Gives memory away: the message is the memory itself. Never waits. The receiver gets a
    /// [`View`] of it by [`Endpoint::recv_view`], at the same cost for any size; any other receive
    /// copies it. When the receiver drops its view, or is gone, the memory goes back to its arena,
    /// or by [`Handoff::wait`] to the caller. If the pair cannot share memory, a copy is sent.
    ///
    /// When this endpoint closes, disconnects or dies, receivers keep the memory they have been
    /// given, also in messages that they have not received yet: they can receive them, and read
    /// views of them, as long as they want. The memory goes back to its arena when they are done
    /// with it or have ended, and is not used otherwise before; the handle gives the caller a
    /// [`DonatedBuf`] that cannot yet become a buffer ([`DonatedBuf::into_arena_buf`]). Beyond 1
    /// GiB of such memory in a process, and where a peer is cut off, views become void
    /// ([`Error::Withdrawn`]), and the memory goes back at once. To another host a copy is sent,
    /// for which closing waits a second at most; [`Endpoint::drain`] waits longer, and reports the
    /// rest.
    pub fn handoff(&self, peer: PeerId, tag: u64, donation: impl Into<DonatedBuf>) -> Handoff {
        Handoff::post(self.shared(), peer, tag, donation.into())
    }

    /// As [`Endpoint::handoff`], without a handle to its end: the cheapest way to give. Waits while
    /// the peer has as much unreturned memory as it may have
    /// ([`Builder::given_bytes_max`](crate::Builder::given_bytes_max)).
    ///
    /// # Errors
    /// As [`Endpoint::send`], as far as they show at once; the memory is then free again.
    #[inline]
    pub fn give(&self, peer: PeerId, tag: u64, donation: impl Into<DonatedBuf>) -> Result<()> {
        give::give(self.shared(), peer, tag, donation.into())
    }

    /// As [`Endpoint::give`], but never waits.
    ///
    /// # Errors
    /// [`NotGiven`], with the memory: [`Error::LimitReached`] if the peer has as much as it may
    /// have, and as [`Endpoint::give`].
    pub fn try_give(
        &self,
        peer: PeerId,
        tag: u64,
        donation: impl Into<DonatedBuf>,
    ) -> Result<(), NotGiven> {
        give::give_until(self.shared(), peer, tag, donation.into(), Some(Duration::ZERO))
    }

    /// As [`Endpoint::give`], but waits at most `patience`.
    ///
    /// # Errors
    /// As [`Endpoint::try_give`].
    pub fn give_timeout(
        &self,
        peer: PeerId,
        tag: u64,
        donation: impl Into<DonatedBuf>,
        patience: Duration,
    ) -> Result<(), NotGiven> {
        give::give_until(self.shared(), peer, tag, donation.into(), Some(patience))
    }

    /// As [`Endpoint::give`], for messages of which only the newest counts, such as pictures of a
    /// camera. Never waits: while the peer has two messages given in this way with this tag that
    /// are not back ([`Builder::frames_in_flight`](crate::Builder::frames_in_flight)), or all the
    /// memory that it [may have](crate::Builder::given_bytes_max), the newest one waits here, and
    /// goes as soon as one is back. The one that waited until then is not sent any more: it is
    /// returned, to be filled anew ([`DonatedBuf::into_arena_buf`]), and counted
    /// ([`Counters::replaced`](crate::Counters::replaced)).
    ///
    /// So the peer gets its messages in order, and the last one in any case. Memory that it has
    /// been given already is not touched. Other messages overtake one that waits, also those with
    /// the same tag that are sent otherwise. It goes when the endpoint makes progress, and at the
    /// latest when it closes.
    ///
    /// # Errors
    /// As [`Endpoint::give`].
    pub fn give_latest(
        &self,
        peer: PeerId,
        tag: u64,
        donation: impl Into<DonatedBuf>,
    ) -> Result<Option<DonatedBuf>> {
        latest::give_latest(&mut *self.shared().enter()?, peer, tag, donation.into())
    }

    /// As [`Endpoint::handoff`], of memory in several parts, as one message: a view of it is
    /// contiguous. Where that is cheaper than copying, the receiver maps the parts one behind the
    /// other; nothing is copied if each begins at a page, and each but the last ends at one
    /// ([`Arena::alloc_aligned`](crate::Arena::alloc_aligned)). Mapping takes some microseconds a
    /// part, in which some tens of KiB can be copied; [`View::folded`] says which it was, and why.
    ///
    /// A short message, one in more than 1,024 parts, and one that the pair cannot share, is copied
    /// as by [`Endpoint::send_vectored`]. An empty part is skipped.
    pub fn handoff_vectored<G: Into<DonatedBuf>>(
        &self,
        peer: PeerId,
        tag: u64,
        donations: impl IntoIterator<Item = G>,
    ) -> HandoffVectored {
        let donations = donations.into_iter().map(G::into).collect();
        HandoffVectored::post(self.shared(), peer, tag, donations)
    }

    /// As [`Endpoint::handoff_vectored`], without a handle to its end.
    ///
    /// # Errors
    /// As [`Endpoint::give`].
    pub fn give_vectored<G: Into<DonatedBuf>>(
        &self,
        peer: PeerId,
        tag: u64,
        donations: impl IntoIterator<Item = G>,
    ) -> Result<()> {
        let donations = donations.into_iter().map(G::into).collect();
        give::give_vectored(self.shared(), peer, tag, donations)
    }

    /// Waits for a matching message, which may stay where it is: if its sender gave its memory
    /// away ([`Endpoint::handoff`], [`Endpoint::handoff_vectored`]), the view is of that memory.
    ///
    /// # Errors
    /// As [`Endpoint::recv`].
    #[inline]
    pub fn recv_view(&self, from: impl Into<Source>, tag: impl Into<TagMatch>) -> Result<View<'_>> {
        handoff::recv_view(self.shared(), from.into(), tag.into())
    }

    /// As [`Endpoint::recv_view`], waiting at most `patience`. A message that has only begun to
    /// come by then goes to the next receive.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::recv`].
    pub fn recv_view_timeout(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
        patience: Duration,
    ) -> Result<View<'_>> {
        let mut request = self.recv_view_request(from, tag);
        request.wait_timeout(patience).unwrap_or(Err(Error::Timeout(patience)))
    }

    /// Posts a receive of a message that may stay where it is. Never waits.
    pub fn recv_view_request(
        &self,
        from: impl Into<Source>,
        tag: impl Into<TagMatch>,
    ) -> ViewRequest {
        ViewRequest::post(self.shared(), from.into(), tag.into())
    }

    /// Memory of `len` bytes, all zeros, for one-sided operations of peers that show its key.
    /// Memory is taken by 256 KiB.
    ///
    /// # Errors
    /// As for [`Arena::alloc`](crate::Arena::alloc); [`Error::Closed`], [`Error::Forked`].
    pub fn region(&self, len: usize, rights: Rights) -> Result<Region> {
        Region::new(self.shared(), len, rights)
    }

    /// Opens the memory of a peer that has this key, to be used by offsets: a region, a registered
    /// buffer, or addresses. Asks its owner, which answers while it makes progress.
    ///
    /// A region is mapped here. If it cannot be, by a limit or since one side has switched `mapped`
    /// off, the kernel reads and writes it where it is ([`RemoteRegion::path`] says which). Of
    /// other memory, the parts that lie in arenas are mapped, and the kernel reads and writes the
    /// rest, or the peer's agent where the kernel may not. A peer on another host performs each
    /// operation itself: its endpoint has to make progress, by a thread that waits in some call of
    /// it, or by [`Progress::Dedicated`](crate::Progress::Dedicated).
    ///
    /// # Errors
    /// [`Error::BadKey`]; [`Error::OutOfReach`] with both reasons if a region can neither be mapped
    /// nor reached by the kernel, or if too much that the peer has withdrawn is still in use by
    /// this process; [`Error::PathRefused`] if a region cannot be mapped although no side has
    /// switched that off, or the kernel denies the use of other memory, and the endpoint is
    /// [`strict`](crate::Builder::strict), or if its owner is on another host and one side has
    /// switched `eager` off; [`Error::PeerGone`], [`Error::UnknownPeer`], [`Error::Closed`],
    /// [`Error::Forked`].
    pub fn open_region(&self, peer: PeerId, key: &RegionKey) -> Result<RemoteRegion> {
        RemoteRegion::open(self.shared(), peer, key)
    }

    /// As [`Endpoint::open_region`], to be used by the addresses in the peer's process.
    ///
    /// # Errors
    /// As [`Endpoint::open_region`].
    pub fn open_space(&self, peer: PeerId, key: &RegionKey) -> Result<RemoteSpace> {
        RemoteSpace::open(self.shared(), peer, key)
    }

    /// Bytes of address space, with or without memory, of regions that were revoked or dropped
    /// while peers used them through the kernel. They are kept until those have left or ended: for
    /// peers that keep to the rules, as long as a copy of 1 MiB takes. In a forked child: 0.
    pub fn region_bytes_kept(&self) -> u64 {
        let Ok(mut engine) = self.shared().enter() else { return 0 };
        engine.core.registry.deferred_free.look();
        engine.core.registry.deferred_free.bytes()
    }
}
