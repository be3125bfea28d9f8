//! The translation stack: U-Net/MM's TLB (Welsh, Basu, von Eicken, section 4.1) over PM's pin-down
//! cache (Tezuka, O'Carroll, Hori, Ishikawa, section 4) over a back end that pins. No I/O but the
//! back end's.
//!
//! A request asks the TLB for the page it begins in, then the pin-down cache for an area that has
//! all of it, then has it pinned; each level is filled from the one below. The TLB knows the slot
//! of an area in the pin-down cache, which checks at each hit that the slot still has the memory.
//! An entry that the TLB evicts stays pinned; an area that leaves the pin-down cache takes its
//! entries along.
//!
//! **Invariant.** While no request is under way, the TLB has entries of areas alone that the
//! pin-down cache can hit. So an entry is put in only while the area can be hit, under the TLB's
//! lock, and an area that cannot be hit any more takes that lock afterwards to take its entries
//! out.
//!
//! No request waits for the TLB: a thread that finds it locked goes on to the pin-down cache.

use std::{fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    Rights, SpaceId,
    level::TranslationLevel,
    pincache::{
        AccountId, Area, Budget, BudgetError, Handle, Hold, NoPin, PinCost, Pinner, Refused,
        SharedPinCache,
    },
    tlb::{Geometry, Lookup, Tlb},
};

/// All that is pinned may be written.
const RIGHTS: Rights = Rights::ReadWrite;

/// The pin-down cache's slots, by page.
type Pages = Mutex<Tlb<u32>>;

/// A stack of translations; for many threads.
pub(crate) struct Stack<P> {
    tlb: Arc<Pages>,
    pins: SharedPinCache<Forgetful<P>>,
}

/// A translation, for one transfer: to be handed to [`Stack::end`].
#[must_use = "the memory stays pinned until this is handed to end"]
#[derive(Debug)]
pub(crate) struct Translation {
    /// The pin.
    pub(super) hold: Hold,
    /// The level that had it.
    pub(super) level: TranslationLevel,
}

impl<P: Pinner> Stack<P> {
    /// An empty stack.
    ///
    /// # Errors
    /// The budget is impossible.
    pub(crate) fn new(pinner: P, budget: Budget) -> Result<Stack<P>, BudgetError> {
        // Nobody asks here how many misses are compulsory.
        let page_bytes = pinner.page_bytes();
        let geometry = Geometry { page_bytes, history_groups_max: 0, ..Geometry::default() };
        let tlb = Tlb::new(geometry).map_err(|_| BudgetError::PageBytes(page_bytes))?;
        let tlb = Arc::new(Mutex::new(tlb));
        let pins = SharedPinCache::new(Forgetful { pinner, tlb: Arc::clone(&tlb) }, budget)?;
        Ok(Stack { tlb, pins })
    }

    /// Translates `length` bytes at an address of a space, for a transfer that begins: asks the
    /// TLB, then the pin-down cache, and has them pinned if neither knows them.
    ///
    /// # Errors
    /// As for [`SharedPinCache::begin`].
    #[cfg(test)]
    pub(crate) fn translate(
        &self,
        space: SpaceId,
        address: u64,
        length: u64,
        rights: Rights,
    ) -> Result<Translation, NoPin> {
        match self.translate_known(space, address, length, rights) {
            Some(known) => Ok(known),
            None => self.translate_unknown(space, address, length),
        }
    }

    /// As [`translate`](Stack::translate), as far as no lock has to be waited for: `None` does not
    /// mean that nothing is pinned.
    #[inline]
    pub(crate) fn translate_known(
        &self,
        space: SpaceId,
        address: u64,
        length: u64,
        rights: Rights,
    ) -> Option<Translation> {
        let known = self.tlb.try_lock().map(|mut tlb| tlb.look_up(space, address, rights));
        if let Some(Lookup::Hit(slot)) = known
            && let Some(hold) = self.pins.begin_at(slot, space, address, length)
        {
            return Some(Translation { hold, level: TranslationLevel::Tlb });
        }
        let hold = self.pins.begin_pinned(space, address, length)?;
        self.fill(space, address, &hold);
        Some(Translation { hold, level: TranslationLevel::PinCache })
    }

    /// The rest of [`translate`](Stack::translate), for memory that
    /// [`translate_known`](Stack::translate_known) did not find.
    ///
    /// # Errors
    /// As for [`SharedPinCache::begin`].
    pub(crate) fn translate_unknown(
        &self,
        space: SpaceId,
        address: u64,
        length: u64,
    ) -> Result<Translation, NoPin> {
        let hold = self.pins.begin(space, address, length)?;
        self.fill(space, address, &hold);
        let level = match hold.pinned() {
            true => TranslationLevel::Pinned,
            false => TranslationLevel::PinCache,
        };
        Ok(Translation { hold, level })
    }

    /// Puts the page at an address into the TLB, if its area can be hit.
    fn fill(&self, space: SpaceId, address: u64, hold: &Hold) {
        if let Some(mut tlb) = self.tlb.try_lock()
            && self.pins.is_live(hold)
        {
            // It stays pinned: that is the pin-down cache's to decide.
            let _ = tlb.insert(space, address, RIGHTS, hold.slot());
        }
    }

    /// A transfer has ended. Returns whether its memory stays pinned.
    #[inline]
    pub(crate) fn end(&self, hold: Hold) -> bool {
        self.pins.end_told(hold)
    }

    /// The pin-down cache.
    pub(crate) fn pins(&self) -> &SharedPinCache<Forgetful<P>> {
        &self.pins
    }

    /// Entries of the TLB.
    #[cfg(test)]
    pub(crate) fn tlb_entries(&self) -> usize {
        self.tlb.lock().entries()
    }
}

impl<P> fmt::Debug for Stack<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack").finish_non_exhaustive()
    }
}

/// A back end that takes areas which leave the pin-down cache out of the TLB.
pub(crate) struct Forgetful<P> {
    pub(super) pinner: P,
    tlb: Arc<Pages>,
}

impl<P: Pinner> Pinner for Forgetful<P> {
    fn page_bytes(&self) -> u64 {
        self.pinner.page_bytes()
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        self.pinner.pin(area)
    }

    fn unpin(&mut self, handle: Handle, area: Area) {
        self.pinner.unpin(handle, area);
    }

    fn forget(&mut self, area: Area) {
        self.tlb.lock().invalidate_range(area.space, area.start, area.len(), |_| ());
        self.pinner.forget(area);
    }

    fn account(&self, space: SpaceId) -> AccountId {
        self.pinner.account(space)
    }

    fn slots(&self, area: Area) -> u32 {
        self.pinner.slots(area)
    }

    fn cost(&self) -> PinCost {
        self.pinner.cost()
    }
}

#[cfg(test)]
mod tests;
