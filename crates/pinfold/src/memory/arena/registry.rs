//! The extents of this process, found by address.
//!
//! The table is read far more often than written, so it is replaced as a whole, and readers take
//! the current one. It has weak references: an extent that is being dropped leaves the table before
//! its addresses can mean another mapping, and a thread that still reads an old table finds it
//! dead.

use std::{
    ops::{Deref, Range},
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwapOption;
use pinfold_sys::io::poll::EventFd;

use super::extent::Extent;
use crate::{Error, Result};

/// An extent that is found by its addresses as long as this value lives.
///
/// The value lives as long as it has a user: a heap, or a reference from [`find`].
pub(crate) struct Listed(Extent);

impl Deref for Listed {
    type Target = Extent;

    #[inline]
    fn deref(&self) -> &Extent {
        &self.0
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        if !self.is_forked() {
            // The entry goes before the extent is dropped, and the addresses can mean another
            // mapping.
            remove(self.id);
        }
    }
}

struct Entry {
    start: usize,
    end: usize,
    id: u64,
    extent: Weak<Listed>,
}

/// The extents, by address.
static TABLE: ArcSwapOption<Vec<Entry>> = ArcSwapOption::const_empty();
/// Taken by writers.
static WRITER: Mutex<()> = Mutex::new(());
/// All extents there ever were lie between these, so that most addresses need no look at the table.
/// Relaxed: a thread that has an address in an extent got it from a thread that had widened them.
static LOWEST: AtomicUsize = AtomicUsize::new(usize::MAX);
static HIGHEST: AtomicUsize = AtomicUsize::new(0);
/// Extents that are gone.
static GONE: AtomicU64 = AtomicU64::new(0);
/// Signalled when an extent is gone: endpoints that may sleep.
static SLEEPERS: Mutex<Vec<Weak<EventFd>>> = Mutex::new(Vec::new());

/// Has an extent found from now on.
pub(super) fn list(extent: Extent) -> Arc<Listed> {
    let extent = Arc::new(Listed(extent));
    let start = extent.base().addr();
    let end = start + extent.len;
    LOWEST.fetch_min(start, Ordering::Relaxed);
    HIGHEST.fetch_max(end, Ordering::Relaxed);
    edit(|table| {
        // Extents of the process that this one was forked from are not mapped here.
        table.retain(|entry| entry.end <= start || end <= entry.start);
        let at = table.partition_point(|entry| entry.start < start);
        table.insert(at, Entry { start, end, id: extent.id, extent: Arc::downgrade(&extent) });
    });
    extent
}

fn remove(id: u64) {
    edit(|table| table.retain(|entry| entry.id != id));
    GONE.fetch_add(1, Ordering::Release);
    for sleeper in sleepers().iter().filter_map(Weak::upgrade) {
        let _ = sleeper.signal();
    }
}

fn sleepers() -> MutexGuard<'static, Vec<Weak<EventFd>>> {
    SLEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `kick` signalled, as long as it is there, whenever [`gone`] changes.
pub(crate) fn wake_when_gone(kick: &Arc<EventFd>) {
    let mut sleepers = sleepers();
    sleepers.retain(|sleeper| sleeper.strong_count() > 0);
    sleepers.push(Arc::downgrade(kick));
}

fn edit(change: impl FnOnce(&mut Vec<Entry>)) {
    let _writer: MutexGuard<'_, ()> = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let copy = |entry: &Entry| Entry { extent: Weak::clone(&entry.extent), ..*entry };
    let mut table = TABLE.load().iter().flat_map(|table| table.iter()).map(copy).collect();
    change(&mut table);
    TABLE.store(Some(Arc::new(table)));
}

/// The extent of this process that the `len` bytes at `at` lie in, and their offset there. A few
/// nanoseconds where they lie in none.
///
/// Memory that was freed may still be found, so the caller must know that it is in use.
#[inline]
pub(crate) fn find(at: *const u8, len: usize) -> Option<(ArenaRef, u64)> {
    let start = at.addr();
    if start < LOWEST.load(Ordering::Relaxed) || start >= HIGHEST.load(Ordering::Relaxed) {
        return None;
    }
    look_up(start, len)
}

fn look_up(start: usize, len: usize) -> Option<(ArenaRef, u64)> {
    let table = TABLE.load();
    let table = table.as_ref()?;
    let next = table.partition_point(|entry| entry.start <= start);
    let entry = &table[next.checked_sub(1)?];
    if start >= entry.end || len > entry.end - start {
        return None;
    }
    let extent = entry.extent.upgrade().filter(|extent| !extent.is_forked())?;
    Some((ArenaRef { extent }, (start - entry.start) as u64))
}

/// The addresses around `address`, in no extent, up to the next extents below and above.
pub(crate) fn gap_at(address: usize) -> Range<usize> {
    let table = TABLE.load();
    let extents = || table.iter().flat_map(|table| table.iter());
    let below = extents().map(|entry| entry.end).filter(|end| *end <= address).max();
    let above = extents().map(|entry| entry.start).filter(|start| *start > address).min();
    below.unwrap_or(0)..above.unwrap_or(usize::MAX)
}

/// Number of extents of this process that are gone. As long as it stays the same, the answers of
/// [`is_live`] do, too.
pub(crate) fn gone() -> u64 {
    GONE.load(Ordering::Acquire)
}

/// Returns whether the extent `id` is there. Once it is not, peers should drop their mapping of it,
/// so that its memory goes back to the system.
pub(crate) fn is_live(id: u64) -> bool {
    let table = TABLE.load();
    table.iter().flat_map(|table| table.iter()).any(|e| e.id == id && e.extent.strong_count() > 0)
}

/// An extent of an arena: one memfd, to be handed to peers.
#[derive(Clone)]
pub(crate) struct ArenaRef {
    extent: Arc<Listed>,
}

impl ArenaRef {
    pub(super) fn new(extent: Arc<Listed>) -> ArenaRef {
        ArenaRef { extent }
    }

    /// Never used again within the life of this process.
    pub(crate) fn id(&self) -> u64 {
        self.extent.id
    }

    /// The size of the memfd.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.extent.len as u64
    }

    /// Returns whether peers may write it, by a [`SharedArena`](super::SharedArena).
    pub(crate) fn peers_may_write(&self) -> bool {
        self.extent.peers_may_write
    }

    /// The descriptor, to be handed to peers; sealed now if it was not. From then on the memory of
    /// an arena that peers may only read goes back to the system by whole extents.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if peers may only read and the kernel cannot refuse writers; the error of
    /// `fcntl(F_ADD_SEALS)`.
    pub(crate) fn fd_for_peers(&self) -> Result<BorrowedFd<'_>> {
        let readers_only = self.extent.seal().map_err(Error::failed("an arena"))?;
        if readers_only || self.extent.peers_may_write {
            return Ok(self.extent.fd());
        }
        Err(Error::os("fcntl(F_ADD_SEALS)", "an arena", rustix::io::Errno::OPNOTSUPP))
    }

    /// The descriptor as it is.
    #[cfg(test)]
    pub(crate) fn fd_unsealed(&self) -> BorrowedFd<'_> {
        self.extent.fd()
    }

    /// Returns whether the descriptor was sealed for peers that may only read it.
    #[cfg(test)]
    pub(crate) fn is_sealed_for_readers(&self) -> bool {
        self.extent.is_sealed_for_readers()
    }

    /// The byte at `offset`, in this process's mapping; valid as long as this is held.
    #[cfg(test)]
    pub(crate) fn as_ptr(&self, offset: u64) -> Option<*mut u8> {
        let inside = offset < self.bytes_max();
        inside.then(|| self.extent.base().wrapping_add(offset as usize))
    }
}
