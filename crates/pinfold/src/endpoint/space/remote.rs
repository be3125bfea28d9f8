//! Exposed memory as a peer of its owner uses it.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{Ordering, fence},
    },
};

use parking_lot::Mutex;

use super::{
    Flag,
    lookaside::Lookaside,
    served::{self, Served},
    ways::{Inner, Knowledge},
};
use crate::{
    Endpoint, Error, Path, PeerId, Receipt, Refusal, RegionKey, Result, Rights,
    endpoint::region::cma::CmaRegion,
    failpoint::{self, Point},
    protocol::rma::regions::Reached,
    wire::{
        region::Spot,
        space::{Answered, Ask, Claim, Exposure, Refused},
    },
    worker::shared::Shared,
};

/// Memory of a peer that it has [exposed](Endpoint::expose), by its addresses there. A handle:
/// clones are the same memory, and can be used from many threads.
///
/// Reads and writes go the cheapest way that there is to an address; receipts say which
/// ([module](crate) documentation of paths): [`Path::Mapped`] for memory in an arena of the peer's,
/// some 50 ns; [`Path::Cma`] for all else, 1 to 2 µs; [`Path::Eager`] where the kernel denies that:
/// then the peer's endpoint has to make progress. Words that are not mapped the peer's endpoint
/// changes in any case ([`RemoteSpace::fetch_add`]).
///
/// An operation that succeeds came before the exposure ended, and used the memory that was at the
/// address then, however often the peer has mapped something else there before.
#[derive(Clone)]
pub struct RemoteSpace(pub(super) Arc<Inner>);

impl Endpoint {
    /// Opens the memory that a peer exposes by this key. Asks its owner, which answers while it
    /// makes progress.
    ///
    /// # Errors
    /// [`Error::BadKey`]; [`Error::PathRefused`] if the kernel denies reading or writing it and the
    /// endpoint is [`strict`](crate::Builder::strict); [`Error::LimitReached`] if too much that the
    /// peer has withdrawn is still in use by this process; [`Error::PeerGone`],
    /// [`Error::UnknownPeer`], [`Error::Closed`], [`Error::Forked`].
    pub fn open_space(&self, peer: PeerId, key: &RegionKey) -> Result<RemoteSpace> {
        RemoteSpace::open(self.shared(), peer, key)
    }
}

impl RemoteSpace {
    fn open(shared: &Arc<Shared>, peer: PeerId, key: &RegionKey) -> Result<RemoteSpace> {
        let claim = Claim { id: key.id, secret: key.secret };
        failpoint::hit(Point::BeforeSpace);
        let reply = served::ask(shared, peer, claim, Ask::Open);
        failpoint::hit(Point::AfterSpace);
        let message = reply.wait().map_err(served::failed)?;
        let exposure = match Answered::read(&message) {
            Some(Answered::Exposed(exposure)) => exposure,
            Some(Answered::Refused(Refused::Full)) => {
                return Err(Error::LimitReached {
                    what: "what a peer has withdrawn and this process still uses",
                    limit: 16,
                    remedy: "let the operations on it end",
                });
            }
            _ => return Err(Error::BadKey),
        };
        let Exposure { start, len, writable, flag, exported, stamp, cma } = exposure;
        let fits =
            |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64);
        if !fits(start, len) || !fits(flag, 8) || stamp == 0 {
            return Err(Error::BadKey);
        }
        let mut engine = shared.enter()?;
        let strict = engine.core.strict;
        let (found, core) = engine.peer_mut(peer)?;
        let own = found.info.pid == std::process::id();
        let cma_access = Arc::clone(&found.cma_access);
        let why_not_mapped = found.permissions.refusal(Path::Mapped);
        let tallies = core.status.tallies(peer).ok_or(Error::UnknownPeer { peer })?;
        drop(engine);
        let denied = match Refusal::from_code(cma) {
            Some(why) if cma != 0 => Err(why.mirrored()),
            _ => cma_access.there(writable),
        };
        let why_denied = OnceLock::new();
        let kernel = match denied {
            Ok(()) => {
                let spot = Spot { memory: start, len, flag, stamp, writable };
                let why_not_mapped = why_not_mapped.unwrap_or(Refusal::NotShareable);
                let reached = Reached { spot, cma_access: Arc::clone(&cma_access), why_not_mapped };
                let flag = exported.and_then(|exported| Flag::new(shared, peer, exported, stamp));
                let kernel = CmaRegion::new(reached, key.id, peer, Arc::clone(shared));
                Some(kernel.with_flag(flag))
            }
            Err(why) => {
                let by_choice = [Refusal::SwitchedOff, Refusal::SwitchedOffByPeer].contains(&why);
                if strict && !by_choice {
                    return Err(Error::PathRefused { path: Path::Cma, why });
                }
                why_denied.get_or_init(|| why);
                None
            }
        };
        let mapped = Lookaside::new().map_err(|_| Error::BadKey)?;
        Ok(RemoteSpace(Arc::new(Inner {
            exposure,
            cma_access,
            kernel,
            denied: why_denied,
            agent: Served { shared: Arc::clone(shared), peer, claim },
            why_not_mapped,
            own,
            known: Mutex::new(Knowledge { mapped, asked: None }),
            tallies,
        })))
    }

    /// The peer that owns it.
    pub fn peer(&self) -> PeerId {
        self.0.agent.peer
    }

    /// The addresses, in the peer's process.
    pub fn addresses(&self) -> Range<u64> {
        let Exposure { start, len, .. } = self.0.exposure;
        start..start + len
    }

    /// The rights of this side.
    pub fn rights(&self) -> Rights {
        if self.0.exposure.writable { Rights::ReadWrite } else { Rights::Read }
    }

    /// The path to memory that is not mapped here: [`Path::Cma`], or [`Path::Eager`] where the
    /// kernel denies that, or comes to deny it.
    pub fn path(&self) -> Path {
        if self.0.kernel().is_some() { Path::Cma } else { Path::Eager }
    }

    /// Writes `data` at an address of the peer's.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]: nothing was written. [`Error::NotMapped`]:
    /// there is no memory, or it may not be written, at least at some of the addresses.
    /// [`Error::Revoked`], [`Error::Withdrawn`] or [`Error::PeerGone`] if the peer is gone: the
    /// bytes may or may not have been written. [`Error::PathRefused`] if the kernel now denies an
    /// access it allowed when the pair met and the endpoint is
    /// [`strict`](crate::Builder::strict); [`Error::Forked`].
    pub fn write(&self, address: u64, data: &[u8]) -> Result<Receipt> {
        match self.0.write_here(address, data)? {
            Some(receipt) => Ok(receipt),
            None => self.0.write_there(&[(address, data)]),
        }
    }

    /// Reads the bytes at an address of the peer's.
    ///
    /// # Errors
    /// As [`RemoteSpace::write`], except for `ReadOnly`; the bytes in `into` mean nothing then.
    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<Receipt> {
        match self.0.read_here(address, into)? {
            Some(receipt) => Ok(receipt),
            None => self.0.read_there(&mut [(address, into)]),
        }
    }

    /// Writes several parts, in order. The bounds of all of them are checked before the first is
    /// written. The kernel writes up to 64 adjacent parts that are not mapped in a call, and the
    /// agent is asked for several at a time. The receipt's path is that of the slowest part.
    ///
    /// # Errors
    /// As [`RemoteSpace::write`]; [`Error::NotMapped`] may name the first of several parts.
    pub fn write_vectored(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        for (address, data) in parts {
            self.0.check(*address, data.len() as u64, true)?;
        }
        self.0.write_all(parts)
    }

    /// Reads several parts, likewise.
    ///
    /// # Errors
    /// As [`RemoteSpace::write_vectored`], except for `ReadOnly`.
    pub fn read_vectored(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        for (address, into) in parts.iter() {
            self.0.check(*address, into.len() as u64, false)?;
        }
        self.0.read_all(parts)
    }

    /// Returns when all processors see this thread's writes, in this memory and others, and checks
    /// that the memory is still exposed: a hop between cores, where the kernel denies access a
    /// message to the agent and back.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Withdrawn`], [`Error::PeerGone`], [`Error::Forked`].
    pub fn flush(&self) -> Result<()> {
        if self.0.agent.shared.is_forked() {
            return Err(Error::Forked);
        }
        fence(Ordering::SeqCst);
        match self.0.kernel() {
            Some(kernel) => kernel.flush(),
            None => self.0.read_there(&mut []).map(drop),
        }
    }

    /// Orders the operations of this thread before it ahead of those after it, as every observer
    /// sees them: reads and writes of this and other memory. (Writes alone keep their order
    /// anyway.)
    #[inline]
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl fmt::Debug for RemoteSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSpace")
            .field("peer", &self.peer())
            .field("addresses", &self.addresses())
            .field("rights", &self.rights())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
