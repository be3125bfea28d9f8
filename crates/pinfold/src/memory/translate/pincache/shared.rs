//! A pin-down cache for many threads.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    AccountGauges, AccountId, Budget, BudgetError, Evict, Hold, Invalidated, Lru, NoPin, PinCost,
    PinCounters, Pinner,
    area::last_of,
    board::{Board, Released},
    books::Books,
    parts,
};
use crate::memory::translate::SpaceId;

/// Areas that stay pinned, for many threads.
///
/// A hit takes no lock: one locked instruction to begin and one to end, on a cache line of the
/// area's own. A miss takes the lock for as long as the back end pins and unpins; other misses
/// wait.
///
/// The least recently used area is known as of the last miss: the order of hits between two misses
/// is not.
pub struct SharedPinCache<P, E = Lru> {
    board: Board,
    books: Mutex<Books<P, E>>,
}

impl<P: Pinner> SharedPinCache<P> {
    /// An empty cache that evicts the least recently used area.
    ///
    /// # Errors
    /// The budget is impossible.
    pub fn new(pinner: P, budget: Budget) -> Result<SharedPinCache<P>, BudgetError> {
        SharedPinCache::with_policy(pinner, budget, Lru::default())
    }
}

impl<P: Pinner, E: Evict> SharedPinCache<P, E> {
    /// An empty cache that evicts by this policy.
    ///
    /// # Errors
    /// The budget is impossible.
    pub fn with_policy(
        pinner: P,
        budget: Budget,
        evict: E,
    ) -> Result<SharedPinCache<P, E>, BudgetError> {
        let (board, books) = parts(pinner, evict, budget)?;
        Ok(SharedPinCache { board, books: Mutex::new(books) })
    }

    /// As [`PinCache::begin`](super::PinCache::begin).
    #[inline]
    pub fn begin(&self, space: SpaceId, start: u64, len: u64) -> Result<Hold, NoPin> {
        let last = last_of(start, len).ok_or(NoPin::Invalid)?;
        match self.board.find::<false>(space, start, last) {
            Some(hold) => Ok(hold),
            None => self.books.lock().begin(&self.board, space, start, last),
        }
    }

    /// Holds the area that has these bytes if one that is pinned is found without a lock: for
    /// callers that must not wait. `None` does not mean that none is pinned.
    #[inline]
    pub fn begin_pinned(&self, space: SpaceId, start: u64, len: u64) -> Option<Hold> {
        self.board.find::<false>(space, start, last_of(start, len)?)
    }

    /// As [`begin_pinned`](SharedPinCache::begin_pinned), for an owner with exclusive access:
    /// without a locked instruction, which is half of the cost of a hit.
    #[inline]
    pub fn begin_pinned_mut(&mut self, space: SpaceId, start: u64, len: u64) -> Option<Hold> {
        self.board.find::<true>(space, start, last_of(start, len)?)
    }

    /// As [`end`](SharedPinCache::end), for an owner with exclusive access.
    #[inline]
    pub fn end_mut(&mut self, hold: Hold) {
        let at = hold.slot;
        if self.board.release::<true>(hold) == Released::Last {
            self.books.get_mut().finish(&self.board, at);
        }
    }

    /// A transfer has ended. Takes the lock only if its area was invalidated or merged meanwhile,
    /// and it was the last there.
    #[inline]
    pub fn end(&self, hold: Hold) {
        self.end_told(hold);
    }

    /// As [`end`](SharedPinCache::end). Returns whether the area stays pinned.
    #[inline]
    pub(in crate::memory::translate) fn end_told(&self, hold: Hold) -> bool {
        let at = hold.slot;
        let released = self.board.release::<false>(hold);
        if released == Released::Last {
            self.books.lock().finish(&self.board, at);
        }
        released == Released::Kept
    }

    /// Holds the area in this slot, if it has these bytes. No lock.
    #[inline]
    pub(in crate::memory::translate) fn begin_at(
        &self,
        slot: u32,
        space: SpaceId,
        start: u64,
        len: u64,
    ) -> Option<Hold> {
        self.board.hold::<false>(slot, space, start, last_of(start, len)?)
    }

    /// Returns whether the area of a hold of this cache can be hit.
    pub(in crate::memory::translate) fn is_live(&self, hold: &Hold) -> bool {
        self.board.is_live(hold)
    }

    /// Opens an account, or gives it another limit: at most so many of the budget's bytes.
    pub fn open_account(&self, account: AccountId, bytes_max: u64) -> Arc<AccountGauges> {
        self.books.lock().open(account, bytes_max)
    }

    /// Closes an account: all its areas are unpinned, those in flight too, and their ends are
    /// nothing.
    pub fn close_account(&self, account: AccountId) {
        self.books.lock().close_account(&self.board, account);
    }

    /// As [`invalidate`](SharedPinCache::invalidate), in every space.
    pub fn invalidate_everywhere(&self, start: u64, len: u64) {
        let Some(more) = len.checked_sub(1) else { return };
        let last = start.saturating_add(more);
        self.books.lock().invalidate_everywhere(&self.board, start, last);
    }

    /// The back end, for as long as no miss is under way.
    pub(in crate::memory::translate) fn with_pinner<R>(&self, f: impl FnOnce(&mut P) -> R) -> R {
        f(&mut self.books.lock().pinner)
    }

    /// As [`PinCache::invalidate`](super::PinCache::invalidate). A `begin` that starts after it has
    /// returned does not hit an area that it took back.
    pub fn invalidate(&self, space: SpaceId, start: u64, len: u64) -> Invalidated {
        let Some(more) = len.checked_sub(1) else { return Invalidated::default() };
        self.books.lock().invalidate(&self.board, space, start, start.saturating_add(more))
    }

    /// As [`PinCache::close`](super::PinCache::close).
    pub fn close(&self, space: SpaceId) -> Invalidated {
        self.books.lock().invalidate(&self.board, space, 0, u64::MAX)
    }

    /// The counters. Looks at every slot; exact if no other thread uses the cache meanwhile.
    pub fn counters(&self) -> PinCounters {
        self.books.lock().counters(&self.board)
    }

    /// The budget of pinned memory.
    pub fn budget(&self) -> Budget {
        *self.books.lock().budget()
    }

    /// The cost of pinning, by the back end.
    pub fn cost(&self) -> PinCost {
        self.books.lock().pinner.cost()
    }
}

impl<P, E> fmt::Debug for SharedPinCache<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPinCache").finish_non_exhaustive()
    }
}
