#![allow(unsafe_code)]
//! A peer's region: reads and writes.
//!
//! **Invariant.** Both loans, of the memory and of the word that says whether it stands, are given
//! back when the last clone is dropped, not before, and the endpoint is kept until then. So the
//! mappings are there; offsets are checked against the length that was lent, which lies inside. The
//! owner and other peers may write the memory at any time, so no reference to its bytes is formed.

use std::{
    fmt,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

use super::{RegionKey, Rights};
use crate::{
    Error, Path, PeerId, Receipt, Result,
    arena::Cells,
    endpoint::{
        engine::{maps::Held, op::Done, regions::Lent},
        shared::Shared,
    },
    error::inside,
    failpoint::{self, Point},
    status::Tallies,
};

/// A region of a peer, mapped here. A handle: clones are the same region, and can be used from many
/// threads. Its operations take no lock and make no system call.
///
/// A write, read or atomic operation that succeeds came before the region was revoked. When it
/// returns, the caller's memory is the caller's again (PM 1.2's `SendDone`); other processors see
/// what was written, in the order of the operations, some hops between cores later. After
/// [`RemoteRegion::flush`] they all see it (`WriteDone`). A message that is sent to the owner after a
/// write is received after it.
#[derive(Clone)]
pub struct RemoteRegion(Arc<Inner>);

pub(super) struct Inner {
    lent: Lent,
    id: u64,
    peer: PeerId,
    shared: Arc<Shared>,
    /// Whether the owner is this very process, so that threads of it may be at the memory, too.
    own: bool,
    pub(super) tallies: Tallies,
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
        let lent = match shared.wait_done(op, None) {
            Some(Ok(Done::Opened(lent))) => *lent,
            Some(Err(error)) => return Err(error),
            _ => return Err(Error::Closed),
        };
        let shared = Arc::clone(shared);
        Ok(RemoteRegion(Arc::new(Inner { lent, id: key.id, peer, shared, own, tallies })))
    }

    /// Its length, bytes.
    pub fn len(&self) -> u64 {
        self.0.lent.len
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whose it is.
    pub fn peer(&self) -> PeerId {
        self.0.peer
    }

    /// What can be done with it.
    pub fn rights(&self) -> Rights {
        if self.0.lent.writable { Rights::ReadWrite } else { Rights::Read }
    }

    /// Writes `data` at `offset`. Eight aligned bytes are always written together. One copy; a write
    /// of 8 bytes takes some nanoseconds here and a hop between cores until it is seen.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`]: nothing was written. [`Error::Revoked`],
    /// [`Error::Withdrawn`] if the owner is gone or either side has closed the connection: it may or
    /// may not have been. [`Error::Os`] if a hostile owner has no memory behind it,
    /// [`Error::Forked`].
    #[inline]
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<Receipt> {
        let at = self.0.writable(offset, data.len())?;
        self.0.put(at, data);
        self.0.confirm()?;
        self.0.tallies.wrote(data.len() as u64);
        Ok(receipt(data.len()))
    }

    /// Reads the bytes at `offset`. Eight aligned bytes are always read together.
    ///
    /// # Errors
    /// As [`RemoteRegion::write`], but for `ReadOnly`; what was read means nothing then.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<Receipt> {
        let at = self.0.readable(offset, into.len())?;
        self.0.get(at, into);
        // What was read before the look.
        fence(Ordering::Acquire);
        self.0.confirm()?;
        self.0.tallies.read(into.len() as u64);
        Ok(receipt(into.len()))
    }

    /// Writes several parts, in order. All of them are checked before the first is written.
    ///
    /// # Errors
    /// As [`RemoteRegion::write`].
    pub fn write_vectored(&self, parts: &[(u64, &[u8])]) -> Result<Receipt> {
        let mut bytes = 0;
        for (offset, data) in parts {
            self.0.writable(*offset, data.len())?;
            bytes += data.len();
        }
        for (offset, data) in parts {
            let at = self.0.writable(*offset, data.len())?;
            self.0.put(at, data);
        }
        self.0.confirm()?;
        self.0.tallies.wrote(bytes as u64);
        Ok(receipt(bytes))
    }

    /// Reads several parts, in order. All of them are checked before the first is read.
    ///
    /// # Errors
    /// As [`RemoteRegion::read`].
    pub fn read_vectored(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Receipt> {
        let mut bytes = 0;
        for (offset, into) in parts.iter() {
            self.0.readable(*offset, into.len())?;
            bytes += into.len();
        }
        for (offset, into) in parts {
            let at = self.0.readable(*offset, into.len())?;
            self.0.get(at, into);
        }
        fence(Ordering::Acquire);
        self.0.confirm()?;
        self.0.tallies.read(bytes as u64);
        Ok(receipt(bytes))
    }

    /// Returns when all processors see what this thread has written, in this region and others. A
    /// hop between cores.
    ///
    /// # Errors
    /// [`Error::Revoked`], [`Error::Withdrawn`], [`Error::Forked`].
    pub fn flush(&self) -> Result<()> {
        if self.0.shared.is_forked() {
            return Err(Error::Forked);
        }
        fence(Ordering::SeqCst);
        self.0.confirm()
    }

    /// Puts the operations of this thread before it ahead of those after it, for all who look: reads
    /// and writes of this and other regions. (Writes alone keep their order anyway.)
    #[inline]
    pub fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }
}

/// Done by this processor, in one copy.
fn receipt(len: usize) -> Receipt {
    let mut receipt = Receipt::new(Path::Mapped, len as u64);
    receipt.copied_user = len as u64;
    receipt
}

impl Inner {
    fn memory(&self) -> &Held {
        // SAFETY: given back on drop only, and the engine is kept.
        unsafe { self.lent.memory.held() }
    }

    /// The offset of bytes in the mapping, ready to be touched.
    #[inline]
    fn readable(&self, offset: u64, len: usize) -> Result<u64> {
        let len = len as u64;
        inside(offset, len, self.lent.len)?;
        if self.shared.is_forked() {
            return Err(Error::Forked);
        }
        let at = self.lent.memory.offset + offset;
        let prepared = self.memory().mapping.prepare(at, len);
        prepared.map_err(|error| Error::os("madvise", "a peer's region", error))?;
        Ok(at)
    }

    #[inline]
    pub(super) fn writable(&self, offset: u64, len: usize) -> Result<u64> {
        if !self.lent.writable {
            return Err(Error::ReadOnly);
        }
        self.readable(offset, len)
    }

    /// The whole of it, from which `at` counts as [`Inner::readable`] returned it.
    fn cells(&self) -> Option<(Cells, u64)> {
        let from = self.lent.memory.offset;
        let at = self.memory().mapping.get(from, self.lent.len)?;
        let at = NonNull::new(at.cast_mut())?;
        // SAFETY: mapped as long as `self`; written only after `writable`. Within this process it
        // is reached atomically only: by this, or by its owner's cells. It lies at a multiple of 64.
        Some((unsafe { Cells::new(at, self.lent.len as usize) }, from))
    }

    /// Writes bytes that were found to be [writable](Inner::writable).
    #[inline]
    fn put(&self, at: u64, data: &[u8]) {
        let mapping = &self.memory().mapping;
        if self.own || data.len() <= 64 {
            if let Some((cells, from)) = self.cells() {
                cells.write((at - from) as usize, data);
            }
        } else if let Some(to) = mapping.get_mut(at, data.len() as u64) {
            // SAFETY: writable for so many bytes; no thread of this process reaches them but in
            // the same way, as raw bytes of another process.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        }
    }

    /// Reads bytes that were found to be [readable](Inner::readable).
    #[inline]
    fn get(&self, at: u64, into: &mut [u8]) {
        let mapping = &self.memory().mapping;
        if self.own || into.len() <= 64 {
            if let Some((cells, from)) = self.cells() {
                cells.read((at - from) as usize, into);
            }
        } else if let Some(from) = mapping.get(at, into.len() as u64) {
            // SAFETY: as in `put`.
            unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        }
    }

    /// The word at `offset` of the region, for atomic operations of `size` bytes.
    #[inline]
    pub(super) fn word(&self, offset: u64, size: usize) -> Result<*mut u8> {
        if !offset.is_multiple_of(size as u64) {
            return Err(Error::Misaligned { offset, size: size as u64 });
        }
        let at = self.writable(offset, size)?;
        self.memory().mapping.get_mut(at, size as u64).ok_or(Error::ReadOnly)
    }

    /// Whether the region still stood after what was done before.
    #[inline]
    pub(super) fn confirm(&self) -> Result<()> {
        failpoint::hit(Point::InOperation);
        // The other half is the owner's barrier, when it revokes the region.
        self.lent.fence.issue();
        // SAFETY: as in `memory`.
        let flag = unsafe { self.lent.flag.held() };
        let stands = flag.mapping.get(self.lent.flag.offset, 8).is_some_and(|at| {
            // SAFETY: eight bytes of the mapping, at a multiple of 8, reached atomically.
            let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(at.cast_mut().cast()) };
            word.load(Ordering::Acquire) == self.id
        });
        let held = self.memory();
        if held.orphaned.load(Ordering::Relaxed) || held.tie.is_cut() {
            return Err(Error::Withdrawn);
        }
        if stands { Ok(()) } else { Err(Error::Revoked) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Ok(mut engine) = self.shared.enter() {
            engine.core.give_region_back(self.peer, &self.lent);
        }
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteRegion")
            .field("peer", &self.0.peer)
            .field("len", &self.len())
            .field("rights", &self.rights())
            .finish_non_exhaustive()
    }
}
