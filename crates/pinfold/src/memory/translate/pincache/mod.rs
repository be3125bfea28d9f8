//! The pin-down cache of PM 1.2 (Tezuka, O'Carroll, Hori, Ishikawa, section 4): memory that a
//! transfer has pinned stays pinned when it ends, until other memory needs the room.
//!
//! Plain policy, no I/O: it pins by a [`Pinner`]. Of it there are two forms, which differ only in
//! the counting of hits: [`PinCache`] for one thread, and [`SharedPinCache`] for many, with hits
//! that take no lock.
//!
//! Beyond the paper:
//! - Any bytes can be asked for; a request within a pinned area is a hit.
//! - A request that overlaps or touches areas is pinned as one with them, if they are not much
//!   longer than it ([`Budget::merge_growth_max`]). The whole union is pinned, not only the missing
//!   part, since a transfer wants one handle for all its bytes.
//! - Areas with transfers in flight are never unpinned. If nothing else is left the answer is
//!   [`NoPin::Busy`]: wait for a transfer to end, or go another way.
//!
//! Invariants:
//! - Never is more pinned than the [`Budget`] has of bytes, areas and slots, nor more bytes for an
//!   account ([`AccountId`]) than its limit.
//! - At its own limit an account evicts its own areas alone. At the cache's, the account that has
//!   the most gives way.
//! - No live area has all bytes of another one.
//! - An invalidated area is never hit again; it is unpinned at once, or when its last transfer
//!   ends.
//!
//! A cache knows no rights. A back end that pins for reading alone needs a cache of its own, or a
//! [`SpaceId`] of its own for that.

mod accounts;
mod area;
mod board;
mod books;
mod budget;
mod evict;
#[cfg(test)]
mod model_tests;
mod pinner;
#[cfg(not(loom))]
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;

use thiserror::Error;

#[cfg(not(loom))]
pub use self::shared::SharedPinCache;
pub use self::{
    accounts::{AccountGauges, AccountId},
    area::Area,
    budget::{Budget, BudgetError, PinCounters, Pinned},
    evict::{Candidates, Clock, Evict, Lru},
    pinner::{Handle, PinCost, Pinner, Refused},
};
use self::{
    area::last_of,
    board::{Board, Released},
    books::Books,
};
use super::SpaceId;

/// The reason why there is no pinned area for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoPin {
    /// Transfers in flight leave no room. Later there will be some.
    #[error("transfers in flight leave no room to pin more")]
    Busy,
    /// It is longer than the whole budget. Go another way.
    #[error("the area is larger than all that may be pinned")]
    TooLarge,
    /// The back end refuses, and no area can be evicted that could change that.
    #[error("the area was not pinned: {0}")]
    Refused(Refused),
    /// No bytes, or bytes beyond the end of the space.
    #[error("the area is empty, or goes beyond the end of its space")]
    Invalid,
}

/// A transfer's hold on a pinned area; to be handed to the `end` of the cache that it is from. If
/// it is dropped instead, its area stays pinned for good.
#[must_use = "the area stays pinned until this is handed to the cache's end"]
#[derive(Debug, PartialEq, Eq)]
pub struct Hold {
    slot: u32,
    handle: Handle,
    offset: u64,
    generation: u32,
    pinned: bool,
}

impl Hold {
    /// The handle that the back end has given for the area.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The slot of its area.
    #[inline]
    pub(in crate::memory::translate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns whether its area was pinned for it: no area that was there had all its bytes.
    #[inline]
    pub fn pinned(&self) -> bool {
        self.pinned
    }

    /// The offset of the request from the beginning of the area, bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// The areas that an invalidation found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalidated {
    /// Areas that were unpinned.
    pub unpinned: u32,
    /// Areas that transfers still use; the last of each unpins it.
    pub in_use: u32,
}

/// Makes the two parts of a cache.
fn parts<P: Pinner, E: Evict>(
    pinner: P,
    evict: E,
    budget: Budget,
) -> Result<(Board, Books<P, E>), BudgetError> {
    if !(1..=Budget::ENTRIES_MAX).contains(&budget.entries_max) {
        return Err(BudgetError::Entries(budget.entries_max));
    }
    let page_bytes = pinner.page_bytes();
    if !page_bytes.is_power_of_two() {
        return Err(BudgetError::PageBytes(page_bytes));
    }
    let board = Board::new(budget.entries_max, page_bytes);
    Ok((board, Books::new(pinner, evict, budget)))
}

/// Areas that stay pinned, for one thread at a time.
///
/// Dropping it drops the back end, and with it all pins.
pub struct PinCache<P, E = Lru> {
    board: Board,
    books: Books<P, E>,
}

impl<P: Pinner> PinCache<P> {
    /// An empty cache that evicts the least recently used area.
    ///
    /// # Errors
    /// The budget is impossible.
    pub fn new(pinner: P, budget: Budget) -> Result<PinCache<P>, BudgetError> {
        PinCache::with_policy(pinner, budget, Lru::default())
    }
}

impl<P: Pinner, E: Evict> PinCache<P, E> {
    /// An empty cache that evicts by this policy.
    ///
    /// # Errors
    /// The budget is impossible.
    pub fn with_policy(pinner: P, budget: Budget, evict: E) -> Result<PinCache<P, E>, BudgetError> {
        let (board, books) = parts(pinner, evict, budget)?;
        Ok(PinCache { board, books })
    }

    /// Holds the area that has `len` bytes from `start` on, for a transfer that begins; pins it if
    /// none does.
    ///
    /// # Errors
    /// There is none, and cannot be now, or ever. Nothing was unpinned for it, unless the back end
    /// refused.
    #[inline]
    pub fn begin(&mut self, space: SpaceId, start: u64, len: u64) -> Result<Hold, NoPin> {
        let last = last_of(start, len).ok_or(NoPin::Invalid)?;
        match self.board.find::<true>(space, start, last) {
            Some(hold) => Ok(hold),
            None => self.books.begin(&self.board, space, start, last),
        }
    }

    /// A transfer has ended. Its area stays pinned, unless it was invalidated or merged meanwhile.
    #[inline]
    pub fn end(&mut self, hold: Hold) {
        let at = hold.slot;
        if self.board.release::<true>(hold) == Released::Last {
            self.books.finish(&self.board, at);
        }
    }

    /// Takes back all areas that have any of the `len` bytes from `start` on, up to the end of the
    /// space.
    pub fn invalidate(&mut self, space: SpaceId, start: u64, len: u64) -> Invalidated {
        let Some(more) = len.checked_sub(1) else { return Invalidated::default() };
        self.books.invalidate(&self.board, space, start, start.saturating_add(more))
    }

    /// Takes back all areas of a space, which is no more.
    pub fn close(&mut self, space: SpaceId) -> Invalidated {
        self.books.invalidate(&self.board, space, 0, u64::MAX)
    }

    /// Unpins the least recently used area of these spaces, under any policy, if one is idle.
    /// Returns whether one was. For an owner that has a limit of its own for some spaces. Looks at
    /// all their areas.
    pub fn evict_of(&mut self, spaces: impl IntoIterator<Item = SpaceId>) -> bool {
        self.books.evict_of(&self.board, spaces)
    }

    /// The budget of pinned memory.
    pub fn budget(&self) -> &Budget {
        self.books.budget()
    }

    /// The counters. Looks at every slot.
    pub fn counters(&self) -> PinCounters {
        self.books.counters(&self.board)
    }

    /// The back end.
    pub fn pinner(&self) -> &P {
        &self.books.pinner
    }

    /// The back end, mutable. Pinned areas have to stay so, at the same handles.
    pub fn pinner_mut(&mut self) -> &mut P {
        &mut self.books.pinner
    }
}

impl<P, E> fmt::Debug for PinCache<P, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinCache").finish_non_exhaustive()
    }
}
