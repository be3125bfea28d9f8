//! Memory of a peer's behind one face, whatever the way to it. Places are offsets.

use std::sync::Arc;

use super::{
    atomics::{self, AtomicChange, AtomicWord},
    cma::CmaRegion,
    mapped::{self, Mapped},
    served::Served,
    transfer::Does,
    ways::Ways,
};
use crate::{
    Error, Path, PeerId, Receipt, Refusal, Result,
    copy::{Algorithm, BULK, Largest},
    endpoint::blocking::BlockingOp,
    protocol::rma::{
        open,
        way::{Opening, Way, withdrawn},
    },
    status::Tallies,
    wire::region::Extent,
    worker::{
        op::{Done, OpKey},
        shared::Shared,
    },
};

/// Opened memory.
pub(super) struct Inner {
    pub access: Access,
    /// Its place in the owner's process.
    pub extent: Extent,
    pub peer: PeerId,
    pub shared: Arc<Shared>,
    tallies: Tallies,
}

pub(super) enum Access {
    Mapped(Mapped),
    Kernel(CmaRegion),
    Served(Served),
    Addresses(Box<Ways>),
}

use Access::{Addresses, Kernel, Served as There};

/// The peer that was asked, as it was then: it may have gone once it has answered.
pub(super) struct Owner {
    peer: PeerId,
    /// True if it is of this process.
    own: bool,
    tallies: Tallies,
}

impl Inner {
    /// Asks the peer for the memory with this key.
    pub(super) fn open(
        shared: &Arc<Shared>,
        peer: PeerId,
        key: &super::RegionKey,
    ) -> Result<Inner> {
        let (op, owner) = Inner::ask(shared, peer, key)?;
        let opened = shared.wait_done(op, None).unwrap_or(Err(Error::Closed));
        Inner::opened(shared, owner, key, opened)
    }

    /// Asks for it without waiting for the answer.
    pub(super) fn ask(
        shared: &Shared,
        peer: PeerId,
        key: &super::RegionKey,
    ) -> Result<(OpKey, Owner)> {
        let mut engine = shared.enter()?;
        let op = open::ask(&mut engine, peer, key)?;
        let own = engine.peers.get(peer).is_some_and(|peer| peer.info.pid == std::process::id());
        let tallies = engine.core.status.tallies(peer).ok_or(Error::UnknownPeer { peer })?;
        Ok((op, Owner { peer, own, tallies }))
    }

    /// The memory that the peer was asked for, once it has answered.
    pub(super) fn opened(
        shared: &Arc<Shared>,
        owner: Owner,
        key: &super::RegionKey,
        opened: Result<Done>,
    ) -> Result<Inner> {
        let Done::Opened(opening) = opened? else { return Err(Error::Closed) };
        let Opening { extent, way } = *opening;
        let Owner { peer, own, tallies } = owner;
        let (claim, shared) = (key.claim(), Arc::clone(shared));
        let access = match way {
            Way::Mapped { lent, stamp } => {
                let shared = Arc::clone(&shared);
                Access::Mapped(Mapped { lent, stamp, shared, own })
            }
            Way::Kernel(reached) => Kernel(CmaRegion::new(reached, key.id, Arc::clone(&shared))),
            Way::Owner(why_not_mapped) => {
                let shared = Arc::clone(&shared);
                There(Served { extent, why_not_mapped, claim, peer, shared })
            }
            Way::Addresses(exposed) => {
                Addresses(Box::new(Ways::new(exposed, claim, peer, &shared, own)?))
            }
        };
        Ok(Inner { access, extent, peer, shared, tallies })
    }

    /// The path to memory that is not mapped piece by piece.
    pub(super) fn path(&self) -> Path {
        match &self.access {
            Access::Mapped(_) => Path::Mapped,
            Kernel(_) => Path::Cma,
            There(_) => Path::Eager,
            Addresses(ways) => ways.path(),
        }
    }

    pub(super) fn why_not_mapped(&self) -> Option<Refusal> {
        match &self.access {
            Access::Mapped(_) => None,
            Kernel(region) => Some(region.why_not_mapped()),
            There(region) => Some(region.why_not_mapped),
            Addresses(ways) => ways.why_not_mapped(),
        }
    }

    /// The memory, if all of it is mapped.
    ///
    /// # Errors
    /// [`Error::PathRefused`] if it is not.
    pub(super) fn mapped(&self) -> Result<&Mapped> {
        match (&self.access, self.why_not_mapped()) {
            (Access::Mapped(mapped), _) => Ok(mapped),
            (_, why) => {
                let why = why.unwrap_or(Refusal::NotShareable);
                Err(Error::PathRefused { path: Path::Mapped, why })
            }
        }
    }

    /// Counts a write through the mapping. The receipt is made last: a receipt that is moved is
    /// read again by loads wider than the stores that wrote it; the loads wait until the stores
    /// have left the processor, and those queue behind the bytes written to the peer.
    #[inline(always)]
    pub(super) fn wrote(&self, bytes: usize, by: Largest) -> Receipt {
        self.tallies.wrote(bytes as u64);
        mapped::receipt(bytes, by)
    }

    /// Counts a read, as [`Inner::wrote`] does a write.
    #[inline(always)]
    pub(super) fn read(&self, bytes: usize, by: Largest) -> Receipt {
        self.tallies.read(bytes as u64);
        mapped::receipt(bytes, by)
    }

    /// Counts a copy by a copy engine, which has ended.
    pub(super) fn copied(&self, writes: bool, bytes: usize, algorithm: Algorithm) -> Receipt {
        if bytes >= BULK {
            self.shared.unlocked.count(algorithm, bytes);
        }
        let by = Largest::of(algorithm, bytes);
        if writes { self.wrote(bytes, by) } else { self.read(bytes, by) }
    }

    fn count_write(&self, receipt: Receipt) -> Receipt {
        self.tallies.wrote(receipt.bytes);
        self.tallies.went_by(receipt.path);
        receipt
    }

    fn count_read(&self, receipt: Receipt) -> Receipt {
        self.tallies.read(receipt.bytes);
        self.tallies.went_by(receipt.path);
        receipt
    }

    /// Writes parts, in order. All of them are checked before the first is written.
    // Out of the way of mapped memory.
    #[inline(never)]
    pub(super) fn write_parts(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let receipt = match &self.access {
            Access::Mapped(mapped) => {
                let (bytes, by) = mapped.write_vectored(parts)?;
                return Ok(self.wrote(bytes, by));
            }
            Kernel(region) => region.write(parts),
            There(region) => region.write(parts),
            Addresses(ways) => ways.write(parts),
        };
        receipt.map(|receipt| self.count_write(receipt))
    }

    /// Reads parts, in order. All of them are checked before the first is read.
    #[inline(never)]
    pub(super) fn read_parts(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let receipt = match &self.access {
            Access::Mapped(mapped) => {
                let (bytes, by) = mapped.read_vectored(parts)?;
                return Ok(self.read(bytes, by));
            }
            Kernel(region) => region.read(parts),
            There(region) => region.read(parts),
            Addresses(ways) => ways.read(parts),
        };
        receipt.map(|receipt| self.count_read(receipt))
    }

    /// Writes one part.
    #[inline(never)]
    pub(super) fn write_part(&self, offset: u64, data: &[u8]) -> Result<Receipt> {
        match self.write_here(offset, data)? {
            Some(receipt) => Ok(receipt),
            None => self.write_parts(&[(offset, data)]),
        }
    }

    /// Reads one part.
    #[inline(never)]
    pub(super) fn read_part(&self, offset: u64, into: &mut [u8]) -> Result<Receipt> {
        match self.read_here(offset, into)? {
            Some(receipt) => Ok(receipt),
            None => self.read_parts(&mut [(offset, into)]),
        }
    }

    /// Writes, unless the owner has to be asked.
    pub(super) fn write_here(&self, offset: u64, data: &[u8]) -> Result<Option<Receipt>> {
        match &self.access {
            Access::Mapped(_) | Kernel(_) => self.write_parts(&[(offset, data)]).map(Some),
            There(_) => Ok(None),
            Addresses(ways) => {
                Ok(ways.write_here(offset, data)?.map(|receipt| self.count_write(receipt)))
            }
        }
    }

    /// Reads, unless the owner has to be asked.
    pub(super) fn read_here(&self, offset: u64, into: &mut [u8]) -> Result<Option<Receipt>> {
        match &self.access {
            Access::Mapped(_) | Kernel(_) => self.read_parts(&mut [(offset, into)]).map(Some),
            There(_) => Ok(None),
            Addresses(ways) => {
                Ok(ways.read_here(offset, into)?.map(|receipt| self.count_read(receipt)))
            }
        }
    }

    /// Changes a word, unless the owner has to be asked.
    #[inline]
    pub(super) fn change_here<W: AtomicWord>(
        &self,
        offset: u64,
        change: AtomicChange<W>,
    ) -> Result<Option<W>> {
        let was = match &self.access {
            Access::Mapped(mapped) => Some(mapped::on_mapped(mapped, offset, change)?),
            Kernel(_) => Some(mapped::on_mapped(self.mapped()?, offset, change)?),
            There(_) => return Ok(None),
            Addresses(ways) => match ways.change_here(offset, change)? {
                Some(was) => Some(was),
                None => return Ok(None),
            },
        };
        self.tallies.changed();
        Ok(was)
    }

    /// Changes a word.
    #[inline]
    pub(super) fn change<W: AtomicWord>(&self, offset: u64, change: AtomicChange<W>) -> Result<W> {
        match self.change_here(offset, change)? {
            Some(was) => Ok(was),
            None => self.change_there(offset, change),
        }
    }

    #[cold]
    fn change_there<W: AtomicWord>(&self, offset: u64, change: AtomicChange<W>) -> Result<W> {
        let asked = self.begin(offset, Does::Change(atomics::asked(change)))?;
        match BlockingOp::new(&self.shared, asked).wait().map_err(withdrawn)? {
            Done::Was(bits) => Ok(atomics::of_bits(bits)),
            _ => Err(Error::Withdrawn),
        }
    }

    /// Asks the owner for an operation, whose memory on this side its maker keeps until it has
    /// ended.
    pub(super) fn begin(&self, offset: u64, does: Does) -> Result<OpKey> {
        let posted = match &self.access {
            There(region) => region.begin(offset, does)?,
            Addresses(ways) => ways.begin(offset, does)?,
            Access::Mapped(_) | Kernel(_) => return Err(Error::Withdrawn),
        };
        match does {
            Does::Write(part) => self.tallies.wrote(part.len()),
            Does::Read(part) => self.tallies.read(part.len()),
            Does::Change(_) => self.tallies.changed(),
        }
        if !matches!(does, Does::Change(_)) {
            self.tallies.went_by(Path::Eager);
        }
        Ok(posted)
    }

    pub(super) fn flush(&self) -> Result<()> {
        match &self.access {
            Access::Mapped(mapped) => mapped.flush(),
            Kernel(region) => region.flush(),
            There(region) => region.flush(),
            Addresses(ways) => ways.flush(),
        }
    }
}
