//! A pool for many threads.

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use parking_lot::Mutex;
use pinfold_sys::fork::ForkMark;

use super::{
    super::{PAGE_BYTES, window::PAGES_MAX},
    Filling, Owner, Pages, PoolCount, TakeError,
    account::{Account, Piece, Pieces},
};

/// Pages that messages arrive in; a handle that can be cloned.
///
/// Any thread may take pages while any others give theirs back. Taking is a look into an ordered
/// tree under a lock, some hundred nanoseconds; memory is asked of the system, and cleared, outside
/// of it.
///
/// The memory lives until the last handle and the last message are gone. In a child of `fork(2)`
/// nothing is given back.
pub struct Pool<P: Pages>(Arc<Shared<P>>);

pub(super) struct Shared<P> {
    account: Mutex<Account>,
    /// For each page, the byte from which on it is zero. Read and written only by the holder of
    /// the page; the lock orders its writes before the next holder's reads.
    dirty: Box<[AtomicU16]>,
    memory: P,
    mark: Option<ForkMark>,
}

impl<P: Pages> Pool<P> {
    /// A pool of all pages of `memory`, which were never written to. They are the budget: never are
    /// more in use.
    pub fn new(memory: P) -> Pool<P> {
        let pages = memory.pages().min(PAGES_MAX);
        let dirty = (0..pages).map(|_| AtomicU16::new(0)).collect();
        let (account, mark) = (Mutex::new(Account::new(pages)), ForkMark::new().ok());
        Pool(Arc::new(Shared { account, dirty, memory, mark }))
    }

    /// Takes pages for a message of `bytes` bytes, in as few pieces as can be; from 2 MiB on whole
    /// blocks come first, since nothing is moved cheaper.
    ///
    /// # Errors
    /// [`TakeError`]; nothing is taken.
    pub fn take(&self, owner: Owner, bytes: u64) -> Result<Filling<P>, TakeError> {
        let pages = bytes.div_ceil(PAGE_BYTES as u64);
        let mut pieces = self.0.account.lock().take(owner, pages)?;
        if let Err(error) = self.0.commit(&mut pieces) {
            self.0.give(owner, &pieces);
            return Err(error);
        }
        Ok(Filling::new(Arc::clone(&self.0), owner, pieces, bytes))
    }

    /// Its fill level.
    pub fn count(&self) -> PoolCount {
        self.0.account.lock().count()
    }

    /// Pages that an owner has.
    pub fn taken_by(&self, owner: Owner) -> u32 {
        self.0.account.lock().taken_by(owner)
    }

    /// The memory.
    pub fn memory(&self) -> &P {
        &self.0.memory
    }
}

impl<P: Pages> Shared<P> {
    /// Has memory put behind pages that no other holding has.
    fn commit(&self, pieces: &mut Pieces) -> Result<(), TakeError> {
        for piece in pieces {
            let wants = self.account.lock().wants(piece);
            for want in wants {
                let huge = self.memory.commit(want.pages.clone(), want.huge);
                self.account.lock().met(&want, huge.map_err(TakeError::NoMemory)?);
            }
            piece.huge = self.account.lock().is_huge(piece);
        }
        Ok(())
    }

    pub(super) fn give(&self, owner: Owner, pieces: &[Piece]) {
        // In a child of `fork(2)` the account is a copy, and another thread may have held its lock.
        if self.mark.as_ref().is_some_and(ForkMark::is_child) {
            return;
        }
        self.account.lock().give(owner, pieces);
    }

    /// The byte from which on a page is zero.
    pub(super) fn dirty(&self, page: u32) -> usize {
        usize::from(self.dirty[page as usize].load(Ordering::Relaxed))
    }

    pub(super) fn set_dirty(&self, page: u32, bytes: usize) {
        self.dirty[page as usize].store(bytes as u16, Ordering::Relaxed);
    }

    /// Notes that pages were taken out of the memory, and others that are zero come in their place
    /// when they are next committed.
    pub(super) fn left(&self, pages: Range<u32>) {
        pages.clone().for_each(|page| self.set_dirty(page, 0));
        self.account.lock().left(pages);
    }

    /// Notes that the blocks of some pages are no huge pages any more.
    pub(super) fn torn(&self, pages: Range<u32>) {
        self.account.lock().torn(pages);
    }

    pub(super) fn memory(&self) -> &P {
        &self.memory
    }
}

impl<P: Pages> Clone for Pool<P> {
    fn clone(&self) -> Pool<P> {
        Pool(Arc::clone(&self.0))
    }
}

impl<P: Pages> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.count()).finish()
    }
}
