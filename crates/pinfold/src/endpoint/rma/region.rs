//! A region as its owner has it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64},
    },
};

use super::{RegionKey, Rights, exposed::withdraw};
use crate::{
    Error, Result, SharedArena, SharedBuf,
    error::inside,
    failpoint::{self, Point},
    memory::arena::ArenaBuilder,
    protocol::rma::registry::Shown,
    worker::shared::Shared,
};

/// Memory that peers can use by one-sided operations ([`RemoteRegion`](super::RemoteRegion)) if
/// they show its key.
///
/// Its owner reads and writes it as the peers do: by copying, and by atomic words. The memory lives
/// as long as this. Peers can also take away memory that they may write, so if they are malicious
/// and memory is short, using it can end the process by a signal.
///
/// Dropping it is as [`Region::revoke`].
///
/// ```
/// use std::sync::atomic::Ordering::SeqCst;
/// use pinfold::{Endpoint, Error, Rights};
///
/// # fn main() -> pinfold::Result<()> {
/// # let name = format!("local:doc-of-region-{}", std::process::id());
/// let endpoint = Endpoint::listen(&name)?;
/// let itself = endpoint.connect(&name)?; // The endpoint calls itself.
/// let mut region = endpoint.region(64, Rights::ReadWrite)?;
/// let remote = endpoint.open_region(itself, &region.key().unwrap())?;
/// remote.write(0, b"a state")?;
/// remote.fetch_add(8, 3u64)?;
/// assert_eq!(region.to_vec()?[..7], *b"a state");
/// assert_eq!(region.word64(8).unwrap().load(SeqCst), 3);
/// region.revoke()?; // The contents stay, for the owner alone.
/// assert!(matches!(remote.write(0, b"too late"), Err(Error::Revoked)));
/// # Ok(())
/// # }
/// ```
pub struct Region {
    /// Kept beyond this while it is sent to a peer that has read it.
    memory: Arc<SharedBuf>,
    rights: Rights,
    /// Set while peers can use it.
    shown: Option<Shown>,
    shared: Arc<Shared>,
}

impl Region {
    pub(crate) fn new(shared: &Arc<Shared>, len: usize, rights: Rights) -> Result<Region> {
        let mut region = Region {
            memory: Arc::new(memory(len, rights)?),
            rights,
            shown: None,
            shared: Arc::clone(shared),
        };
        region.expose()?;
        Ok(region)
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// The rights of peers.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The key that peers need to use it. `None`: it was revoked.
    pub fn key(&self) -> Option<RegionKey> {
        self.shown.as_ref().map(|shown| shown.key)
    }

    /// Copies the bytes at `offset` out. Peers may write meanwhile: the copy has some or all of
    /// their bytes, eight aligned bytes always together.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::Forked`].
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len())?;
        self.memory.read(offset, into);
        Ok(())
    }

    /// Copies bytes in at `offset`; eight aligned bytes are always written together.
    ///
    /// # Errors
    /// As [`Region::read`].
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.check(offset, from.len())?;
        self.memory.write(offset, from);
        Ok(())
    }

    /// A copy of the bytes.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn to_vec(&self) -> Result<Vec<u8>> {
        self.check(0, 0)?;
        Ok(self.memory.to_vec())
    }

    /// The 32-bit word at `offset`, if all of it is inside and `offset` is a multiple of 4. Its
    /// atomic operations and those of peers on it are of one kind.
    ///
    /// In a child made by `fork(2)` the memory is absent and must not be touched.
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        self.memory.word32(offset)
    }

    /// As [`Region::word32`], of 64 bits, at a multiple of 8.
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        self.memory.word64(offset)
    }

    /// Ends all use by peers. When this returns, operations of peers change nothing any more, even
    /// those that had begun, and even of malicious peers: the contents are then in other memory.
    /// Operations that had succeeded before have had their effect. Costs a barrier on all
    /// processors, a copy of the contents and some system calls.
    ///
    /// # Errors
    /// As for [`Endpoint::region`](crate::Endpoint::region), if there is no memory to move to; the
    /// region is as before, and still in use.
    pub fn revoke(&mut self) -> Result<()> {
        if self.shown.is_none() {
            return Ok(());
        }
        self.check(0, 0)?;
        let fresh = memory(self.len(), self.rights)?;
        self.withdraw();
        failpoint::hit(Point::BeforeMove);
        let mut part = vec![0; self.len().min(64 << 10)];
        let mut at = 0;
        while at < self.len() {
            let part_len = part.len().min(self.len() - at);
            self.memory.read(at, &mut part[..part_len]);
            fresh.write(at, &part[..part_len]);
            at += part_len;
        }
        failpoint::hit(Point::AfterMove);
        self.memory = Arc::new(fresh);
        Ok(())
    }

    /// Lets peers use it again, by another key, after it was revoked.
    ///
    /// # Errors
    /// As for [`Endpoint::region`](crate::Endpoint::region).
    pub fn expose(&mut self) -> Result<RegionKey> {
        if let Some(key) = self.key() {
            return Ok(key);
        }
        let mut engine = self.shared.enter()?;
        engine.check()?;
        let shown = engine.core.registry.add_region(&self.memory, self.rights)?;
        drop(engine);
        Ok(self.shown.insert(shown).key)
    }

    /// Ends the use by peers that keep to the rules. Where some of them are using it through the
    /// kernel just now, its memory stays until they have left.
    fn withdraw(&mut self) {
        let Some(shown) = self.shown.take() else { return };
        let Ok(Some(withdrawn)) = withdraw(&self.shared, &shown) else { return };
        if let Ok(mut engine) = self.shared.enter() {
            engine.core.registry.park(withdrawn);
        }
    }

    fn check(&self, offset: usize, len: usize) -> Result<()> {
        inside(offset as u64, len as u64, self.len() as u64)?;
        if self.shared.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// Memory in a file of its own.
fn memory(len: usize, rights: Rights) -> Result<SharedBuf> {
    let builder = ArenaBuilder::default().bytes_max(len.max(1));
    let arena: SharedArena = match rights {
        Rights::Read => builder.build_readable()?,
        Rights::ReadWrite => builder.build_shared()?,
    };
    arena.alloc(len)
}

impl Drop for Region {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len())
            .field("rights", &self.rights)
            .field("exposed", &self.shown.is_some())
            .finish_non_exhaustive()
    }
}
