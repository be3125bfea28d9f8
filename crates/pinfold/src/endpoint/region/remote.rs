//! A region as a peer of its owner uses it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use super::{
    RegionKey, Rights,
    cma::CmaRegion,
    mapped::{self, Mapped},
    served::Served,
};
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    copy::{Algorithm, BULK, Largest},
    protocol::rma::regions::Way,
    status::Tallies,
    worker::{op::Done, shared::Shared},
};

/// A region of a peer. A handle: clones are the same region, and can be used from many threads. Its
/// operations take no lock, and the owner has no part in them.
///
/// If it is mapped here ([`RemoteRegion::path`] is [`Path::Mapped`]), they are loads and stores. If
/// it could not be, the kernel does them ([`Path::Cma`]): a write is three system calls, a read
/// two, about a microsecond in all for few bytes. Atomic operations are then impossible: have the
/// owner do them, by an active message.
///
/// With a peer on another host ([`Path::Eager`]) the owner's endpoint does them, while it makes
/// progress: a message there and one back, atomic operations included. Writes of up to 16 bytes,
/// and reads of up to 48, fit into those messages; from 16 KiB on the bytes go straight from the
/// one side's memory to the other's. Each is done once, or fails if the connection ends for good.
/// They wait for no credit and no receive.
///
/// A write, read or atomic operation that succeeds came before the region was revoked. When it
/// returns, the bytes have left the caller's memory, which is the caller's again (PM 1.2's
/// `WriteDone`); other processors see them in the region, in the order of the operations, some hops
/// between cores later. After [`RemoteRegion::flush`] they are stored there for all
/// (`SendDone`; Tezuka and others, *Pin-down Cache*, section 5); bytes that the kernel wrote are at
/// once. A message that is sent to the owner after a write is received after it.
#[derive(Clone)]
pub struct RemoteRegion(Arc<Inner>);

struct Inner {
    access: Access,
    tallies: Tallies,
}

enum Access {
    Mapped(Mapped),
    CmaRegion(CmaRegion),
    Served(Served),
}

use Access::{CmaRegion as Kernel, Mapped as Here, Served as There};

impl Inner {
    /// Counts a write through the mapping. The receipt is made last: a receipt that is moved is
    /// read again by loads wider than the stores that wrote it; the loads wait until the stores
    /// have left the processor, and those queue behind the bytes written to the peer.
    #[inline(always)]
    fn wrote(&self, bytes: usize, by: Largest) -> Receipt {
        self.tallies.wrote(bytes as u64);
        mapped::receipt(bytes, by)
    }

    /// Counts a read, as [`Inner::wrote`] does a write.
    #[inline(always)]
    fn read(&self, bytes: usize, by: Largest) -> Receipt {
        self.tallies.read(bytes as u64);
        mapped::receipt(bytes, by)
    }
}

impl RemoteRegion {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        peer: PeerId,
        key: &RegionKey,
    ) -> Result<RemoteRegion> {
        let mut engine = shared.enter()?;
        let op = engine.ask(peer, key)?;
        let own = engine.peers.get(peer).is_some_and(|peer| peer.info.pid == std::process::id());
        let tallies = engine.core.status.tallies(peer).ok_or(Error::UnknownPeer { peer })?;
        drop(engine);
        let way = match shared.wait_done(op, None) {
            Some(Ok(Done::Opened(way))) => *way,
            Some(Err(error)) => return Err(error),
            _ => return Err(Error::Closed),
        };
        let shared = Arc::clone(shared);
        let access = match way {
            Way::Mapped { lent, stamp } => Here(Mapped { lent, stamp, peer, shared, own }),
            Way::Owner(asking) => There(Served::new(asking, key, peer, shared)),
            Way::Kernel(reached) => Kernel(CmaRegion::new(reached, key.id, peer, shared)),
        };
        Ok(RemoteRegion(Arc::new(Inner { access, tallies })))
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match &self.0.access {
            Here(mapped) => mapped.lent.len,
            Kernel(region) => region.len(),
            There(region) => region.len(),
        }
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The peer that owns it.
    pub fn peer(&self) -> PeerId {
        match &self.0.access {
            Here(mapped) => mapped.peer,
            Kernel(region) => region.peer,
            There(region) => region.peer,
        }
    }

    /// The rights of this side.
    pub fn rights(&self) -> Rights {
        let writable = match &self.0.access {
            Here(mapped) => mapped.lent.writable,
            Kernel(region) => region.is_writable(),
            There(region) => region.is_writable(),
        };
        if writable { Rights::ReadWrite } else { Rights::Read }
    }

    /// The path of its operations: [`Path::Mapped`], [`Path::Cma`], or [`Path::Eager`] with a peer
    /// on another host.
    pub fn path(&self) -> Path {
        match &self.0.access {
            Here(_) => Path::Mapped,
            Kernel(_) => Path::Cma,
            There(_) => Path::Eager,
        }
    }

    /// The reason why it is not mapped; `None` if it is.
    pub fn why_not_mapped(&self) -> Option<Refusal> {
        match &self.0.access {
            Here(_) => None,
            Kernel(region) => Some(region.why_not_mapped()),
            There(region) => Some(region.why_not_mapped()),
        }
    }

    /// Writes `data` at `offset`. Eight aligned bytes are always written together, unless the
    /// kernel writes them. One copy; a write of 8 bytes takes some nanoseconds here and a hop
    /// between cores until it is seen.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]: nothing was written. [`Error::Revoked`],
    /// [`Error::Withdrawn`] if the owner is gone or either side has closed the connection: the
    /// bytes may or may not have been written. [`Error::Os`] if a hostile owner has no memory
    /// behind the region, or the kernel now denies an access it allowed when the pair met;
    /// [`Error::Forked`].
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<Receipt> {
        match &self.0.access {
            Here(mapped) => {
                let by = mapped.write(offset, data)?;
                Ok(self.0.wrote(data.len(), by))
            }
            Kernel(region) => self.count_write(region.write_one(offset, data)),
            There(region) => self.count_write(region.write(&[(offset, data)])),
        }
    }

    /// Reads the bytes at `offset`. Eight aligned bytes are always read together, unless the kernel
    /// reads them.
    ///
    /// # Errors
    /// As [`RemoteRegion::write`], except for `ReadOnly`; the bytes in `into` mean nothing then.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<Receipt> {
        match &self.0.access {
            Here(mapped) => {
                let by = mapped.read(offset, into)?;
                Ok(self.0.read(into.len(), by))
            }
            Kernel(region) => self.count_read(region.read_one(offset, into)),
            There(region) => self.count_read(region.read(&mut [(offset, into)])),
        }
    }

    /// Writes several parts, in order. All of them are checked before the first is written. The
    /// kernel writes up to 64 parts in a call.
    ///
    /// # Errors
    /// As [`RemoteRegion::write`].
    pub fn write_vectored(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        match &self.0.access {
            Here(mapped) => {
                let (bytes, by) = mapped.write_vectored(parts)?;
                Ok(self.0.wrote(bytes, by))
            }
            Kernel(region) => self.count_write(region.write(parts)),
            There(region) => self.count_write(region.write(parts)),
        }
    }

    /// Reads several parts, in order. All of them are checked before the first is read. The kernel
    /// reads up to 64 parts in a call.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`].
    pub fn read_vectored(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        match &self.0.access {
            Here(mapped) => {
                let (bytes, by) = mapped.read_vectored(parts)?;
                Ok(self.0.read(bytes, by))
            }
            Kernel(region) => self.count_read(region.read(parts)),
            There(region) => self.count_read(region.read(parts)),
        }
    }

    /// Returns when all processors see this thread's writes, in this region and others. A hop
    /// between cores; a system call where the kernel wrote, and only to see that the region stands.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Withdrawn`], [`Error::Forked`].
    pub fn flush(&self) -> Result<()> {
        match &self.0.access {
            Here(mapped) => mapped.flush(),
            Kernel(region) => region.flush(),
            There(region) => region.flush(),
        }
    }

    /// Orders the operations of this thread before it ahead of those after it, as every observer
    /// sees them: reads and writes of this and other regions. (Writes alone keep their order
    /// anyway.)
    #[inline]
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    /// A copy by a copy engine has ended, and the region stood.
    pub(super) fn started_has_ended(
        &self,
        writes: bool,
        bytes: usize,
        algorithm: Algorithm,
    ) -> Receipt {
        if let (Here(mapped), true) = (&self.0.access, bytes >= BULK) {
            mapped.shared.unlocked.count(algorithm, bytes);
        }
        let by = Largest::of(algorithm, bytes);
        if writes { self.0.wrote(bytes, by) } else { self.0.read(bytes, by) }
    }

    #[cold]
    fn count_write(&self, result: Result<Receipt>) -> Result<Receipt> {
        result.inspect(|receipt| {
            self.0.tallies.wrote(receipt.bytes);
            self.0.tallies.went_by(receipt.path);
        })
    }

    #[cold]
    fn count_read(&self, result: Result<Receipt>) -> Result<Receipt> {
        result.inspect(|receipt| {
            self.0.tallies.read(receipt.bytes);
            self.0.tallies.went_by(receipt.path);
        })
    }

    /// The region, if its owner performs the operations.
    #[inline]
    pub(super) fn served(&self) -> Option<&Served> {
        match &self.0.access {
            There(region) => Some(region),
            Here(_) | Kernel(_) => None,
        }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        match &self.0.access {
            Here(mapped) => &mapped.shared,
            Kernel(region) => region.shared(),
            There(region) => region.shared(),
        }
    }

    pub(super) fn tallies(&self) -> &Tallies {
        &self.0.tallies
    }

    /// The region as it is mapped.
    ///
    /// # Errors
    /// [`Error::PathRefused`] if it is not.
    #[inline]
    pub(super) fn mapped(&self) -> Result<&Mapped> {
        match &self.0.access {
            Here(mapped) => Ok(mapped),
            Kernel(region) => Err(region.not_mapped()),
            There(region) => Err(region.not_mapped()),
        }
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRegion")
            .field("peer", &self.peer())
            .field("len", &self.len())
            .field("rights", &self.rights())
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
