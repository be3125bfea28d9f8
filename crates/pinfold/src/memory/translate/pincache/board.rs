//! The areas as hits see them: a slot for each, and a table that finds them by address. A hit
//! reaches nothing else, so it needs no lock.
//!
//! A slot is *live* (it can be hit), *retired* (not any more, but transfers still use it) or
//! *free*. Its state is one word, and every step of the protocol is one change of that word:
//!
//! - A hit adds one to the transfers, by a compare-and-swap that fails if anything has changed
//!   since it saw that the slot is live and read its area and handle.
//! - Only the thread that ends the last transfer of a retired slot is told so: it frees the slot.
//! - Only the keeper of the books (one thread at a time: an exclusive borrow, or a lock) claims,
//!   retires, frees and fills slots. It claims a live slot only if no transfer uses it.
//!
//! The area and handle of a slot are written only while it is free. A reader that took the old
//! state with new words fails to swap: the state has another generation by then.
//!
//! The table is a hint. It maps the *granule* of an address, of about the length of an area, to
//! slots, four for each key; its answer is checked at the slot.

use super::{Area, Handle, Hold};
use crate::{
    memory::translate::{SpaceId, spread},
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// Transfers, in the low bits of a state.
const TRANSFERS: u64 = (1 << 20) - 1;
/// It can be hit.
const LIVE: u64 = 1 << 20;
/// One generation of the slot: each filling begins a new one.
const GENERATION: u64 = 1 << 21;
const GENERATIONS: u64 = (1 << 40) - GENERATION;
/// One transfer that has ended. On top, so that an overflow is lost without a trace; it is counted
/// apart.
const ENDED: u64 = 1 << 40;
const ENDED_BITS: u32 = 24;

#[inline(always)]
const fn generation_of(state: u64) -> u32 {
    ((state & GENERATIONS) >> GENERATION.trailing_zeros()) as u32
}

/// Slots that the table has for a key.
const WAYS: usize = 4;

/// One area; a cache line.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(align(64)))]
struct Slot {
    state: AtomicU64,
    space: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    handle: AtomicU64,
    /// The moment at which it was filled, or the last transfer ended. An area in flight is in use
    /// anyway, so that a hit need not say so.
    used: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Board {
    slots: Box<[Slot]>,
    /// Key and slot, four neighbours for each bucket.
    table: Box<[AtomicU64]>,
    /// A granule's bytes, as a power of two.
    granule_shift: AtomicU32,
    granule_shift_min: u32,
    /// Grows with every miss, and, while one thread has exclusive access, with every end.
    moment: AtomicU64,
    /// Times that a count of ended transfers has overflowed.
    overflows: AtomicU64,
}

/// The state in which the end of a transfer leaves its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Released {
    /// The area stays pinned.
    Kept,
    /// It is out of reach, and other transfers use it; or the hold is of another cache.
    Leaves,
    /// It is out of reach, and this was the last transfer there: the caller has to free it.
    Last,
}

/// A free slot's count of the transfers that ended since it was filled.
pub(super) struct Ended(pub(super) u64);

impl Board {
    /// As many slots as entries; `page_bytes` is a power of two.
    pub(super) fn new(entries: u32, page_bytes: u64) -> Board {
        let word = || AtomicU64::new(0);
        let slot = |_| Slot {
            state: word(),
            space: word(),
            start: word(),
            end: word(),
            handle: word(),
            used: word(),
        };
        let buckets = (entries as usize / 2).next_power_of_two().clamp(2, 1 << 15);
        Board {
            slots: (0..entries).map(slot).collect(),
            table: (0..buckets * WAYS).map(|_| word()).collect(),
            granule_shift: AtomicU32::new(page_bytes.trailing_zeros()),
            granule_shift_min: page_bytes.trailing_zeros(),
            moment: word(),
            overflows: word(),
        }
    }

    fn slot(&self, at: u32) -> &Slot {
        &self.slots[at as usize]
    }

    /// The key of an address, and the first place of its bucket.
    #[inline(always)]
    fn bucket(&self, space: SpaceId, start: u64) -> (u64, usize) {
        let granule = start >> (self.granule_shift.load(Ordering::Relaxed) & 63);
        let key = spread(granule ^ space.0.rotate_left(32));
        let bucket = (key >> 40) as usize & (self.table.len() / WAYS - 1);
        (key >> 8 & 0xFFFF_FFFF, bucket * WAYS)
    }

    /// Holds an area that has all bytes from `start` to `last`, if the table knows one. `ALONE`: no
    /// other thread can reach the board now.
    #[inline(always)]
    pub(super) fn find<const ALONE: bool>(
        &self,
        space: SpaceId,
        start: u64,
        last: u64,
    ) -> Option<Hold> {
        let (key, first) = self.bucket(space, start);
        for place in self.table.get(first..first + WAYS)? {
            let found = place.load(Ordering::Relaxed);
            if found >> 32 == key
                && let Some(hold) = self.hold::<ALONE>(found as u32, space, start, last)
            {
                return Some(hold);
            }
        }
        None
    }

    /// Holds this area, if it is live and has all bytes from `start` to `last`.
    #[inline(always)]
    pub(super) fn hold<const ALONE: bool>(
        &self,
        at: u32,
        space: SpaceId,
        start: u64,
        last: u64,
    ) -> Option<Hold> {
        let slot = self.slots.get(at as usize)?;
        // Pairs with the release in `fill`: a thread that sees the state sees the slot's area and
        // handle.
        let mut state = slot.state.load(Ordering::Acquire);
        loop {
            let from = slot.start.load(Ordering::Relaxed);
            let is_it = slot.space.load(Ordering::Relaxed) == space.0
                && from <= start
                && last < slot.end.load(Ordering::Relaxed);
            if !is_it || state & LIVE == 0 || state & TRANSFERS == TRANSFERS {
                return None;
            }
            if ALONE {
                slot.state.store(state + 1, Ordering::Relaxed);
            } else if let Err(now) = slot.state.compare_exchange_weak(
                state,
                state + 1,
                // Release: the reads above come before the slot can be filled anew; pairs with the
                // acquire in `claim` and `retire`.
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                state = now;
                continue;
            }
            return Some(Hold {
                slot: at,
                handle: Handle(slot.handle.load(Ordering::Relaxed)),
                offset: start - from,
                generation: generation_of(state),
                pinned: false,
            });
        }
    }

    /// Ends a hold.
    #[inline(always)]
    pub(super) fn release<const ALONE: bool>(&self, hold: Hold) -> Released {
        let Some(slot) = self.slots.get(hold.slot as usize) else { return Released::Leaves };
        let state = slot.state.load(Ordering::Relaxed);
        if state & TRANSFERS == 0 || generation_of(state) != hold.generation {
            // A hold of another cache, or of an account that was closed: its transfer must not be
            // counted here.
            return Released::Leaves;
        }
        let moment = if ALONE { self.tick() } else { self.moment() };
        slot.used.store(moment, Ordering::Relaxed);
        let change = ENDED.wrapping_sub(1);
        let state = if ALONE {
            let state = slot.state.load(Ordering::Relaxed).wrapping_add(change);
            slot.state.store(state, Ordering::Relaxed);
            state
        } else {
            // All that the transfer did comes before any change of the slot after it has ended.
            slot.state.fetch_add(change, Ordering::AcqRel).wrapping_add(change)
        };
        if state < ENDED {
            self.overflows.fetch_add(1, Ordering::Relaxed);
        }
        match state & (LIVE | TRANSFERS) {
            0 => Released::Last,
            state if state & LIVE == 0 => Released::Leaves,
            _ => Released::Kept,
        }
    }

    /// Slots that are not free. For the keeper of the books.
    pub(super) fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        let is_used = |slot: &Slot| slot.state.load(Ordering::Relaxed) & (LIVE | TRANSFERS) != 0;
        (0..).zip(&self.slots).filter(move |(_, slot)| is_used(slot)).map(|(at, _)| at)
    }

    /// Returns whether the area of a hold can be hit.
    pub(super) fn is_live(&self, hold: &Hold) -> bool {
        self.slot(hold.slot).state.load(Ordering::Acquire) & LIVE != 0
    }

    /// Takes a live slot that no transfer uses out of reach of new ones. For the keeper of the
    /// books.
    pub(super) fn claim(&self, at: u32) -> bool {
        let state = &self.slot(at).state;
        let idle = |state: u64| (state & (LIVE | TRANSFERS) == LIVE).then_some(state & !LIVE);
        state.fetch_update(Ordering::AcqRel, Ordering::Acquire, idle).is_ok()
    }

    /// Takes a claim back.
    pub(super) fn revive(&self, at: u32) {
        self.slot(at).state.fetch_or(LIVE, Ordering::Release);
    }

    /// Takes a live slot out of reach of new transfers. Returns how many use it; if there are any,
    /// the [`release`](Board::release) of the last of them returns `true`.
    pub(super) fn retire(&self, at: u32) -> u64 {
        self.slot(at).state.fetch_and(!LIVE, Ordering::AcqRel) & TRANSFERS
    }

    /// Fills a free slot; one transfer uses it from the start.
    pub(super) fn fill(&self, at: u32, area: Area, handle: Handle, offset: u64) -> Hold {
        let slot = self.slot(at);
        slot.space.store(area.space.0, Ordering::Relaxed);
        slot.start.store(area.start, Ordering::Relaxed);
        slot.end.store(area.end, Ordering::Relaxed);
        slot.handle.store(handle.0, Ordering::Relaxed);
        slot.used.store(self.moment(), Ordering::Relaxed);
        let old = slot.state.load(Ordering::Relaxed);
        let generation = old.wrapping_add(GENERATION) & GENERATIONS;
        slot.state.store(generation | LIVE | 1, Ordering::Release);
        Hold { slot: at, handle, offset, generation: generation_of(generation), pinned: true }
    }

    /// Frees a slot that is out of reach. Transfers that still use it count as ended.
    pub(super) fn free(&self, at: u32) -> Ended {
        let state = &self.slot(at).state;
        let now = state.load(Ordering::Relaxed);
        let ended = (now >> ENDED.trailing_zeros()) + (now & TRANSFERS);
        state.store(state.load(Ordering::Relaxed) & GENERATIONS, Ordering::Relaxed);
        Ended(ended)
    }

    /// The area and handle of a slot, for the keeper of the books.
    pub(super) fn area(&self, at: u32) -> (Area, Handle) {
        let slot = self.slot(at);
        let area = Area {
            space: SpaceId(slot.space.load(Ordering::Relaxed)),
            start: slot.start.load(Ordering::Relaxed),
            end: slot.end.load(Ordering::Relaxed),
        };
        (area, Handle(slot.handle.load(Ordering::Relaxed)))
    }

    /// The moment at which it was last used.
    pub(super) fn used(&self, at: u32) -> u64 {
        self.slot(at).used.load(Ordering::Relaxed)
    }

    /// Transfers in flight, and those that ended in slots that are not free.
    pub(super) fn transfers(&self) -> (u64, u64) {
        let states = self.slots.iter().map(|slot| slot.state.load(Ordering::Relaxed));
        let ended = self.overflows.load(Ordering::Relaxed) << ENDED_BITS;
        states.fold((0, ended), |(now, ended), state| {
            (now + (state & TRANSFERS), ended + (state >> ENDED.trailing_zeros()))
        })
    }

    pub(super) fn moment(&self) -> u64 {
        self.moment.load(Ordering::Relaxed)
    }

    /// Advances the moment. For the keeper of the books.
    #[inline(always)]
    pub(super) fn tick(&self) -> u64 {
        let moment = self.moment() + 1;
        self.moment.store(moment, Ordering::Relaxed);
        moment
    }

    /// Notes in the table that an address is in this area. For the keeper of the books.
    pub(super) fn note(&self, space: SpaceId, start: u64, at: u32) {
        let (key, first) = self.bucket(space, start);
        let found = key << 32 | u64::from(at);
        let places = &self.table[first..first + WAYS];
        if places.iter().any(|place| place.load(Ordering::Relaxed) == found) {
            return;
        }
        // An entry that hits nothing any more, or the one that the moment selects.
        let is_stale = |place: &&AtomicU64| {
            let at = place.load(Ordering::Relaxed) as u32;
            let slot = self.slots.get(at as usize);
            slot.is_none_or(|slot| slot.state.load(Ordering::Relaxed) & LIVE == 0)
        };
        let any = &places[self.moment() as usize % WAYS];
        places.iter().find(is_stale).unwrap_or(any).store(found, Ordering::Relaxed);
    }

    /// Makes granules about as long as areas are; forgets the table if that changes much.
    pub(super) fn fit_granule(&self, area_bytes: u64) {
        let fit = area_bytes.max(1).ilog2().max(self.granule_shift_min);
        if self.granule_shift.load(Ordering::Relaxed).abs_diff(fit) > 1 {
            self.granule_shift.store(fit, Ordering::Relaxed);
            self.table.iter().for_each(|place| place.store(0, Ordering::Relaxed));
        }
    }
}
