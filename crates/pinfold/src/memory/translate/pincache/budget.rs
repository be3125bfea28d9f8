//! The budget of pinned memory, and the counters.

use thiserror::Error;

/// The limits of a pin-down cache's pins at any instant, and of its merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Bytes, in whole pages; each pin counts in full, also where two overlap.
    pub bytes_max: u64,
    /// Areas, those among them that are unpinned as soon as their transfers end: 1 to
    /// [`Budget::ENTRIES_MAX`]. The cache takes 64 bytes for each.
    pub entries_max: u32,
    /// Slots of the back end.
    pub slots_max: u32,
    /// An area is merged with a request that it overlaps or touches if it is at most this many
    /// times as long. A merge pins anew the bytes that were pinned, so without a limit a buffer
    /// that is sent piece by piece would be pinned as a whole for each piece. 0: never;
    /// `u32::MAX`: always. Default 4, which pins each byte of such a buffer three times.
    pub merge_growth_max: u32,
}

impl Budget {
    /// Areas at most.
    pub const ENTRIES_MAX: u32 = 1 << 20;

    /// So many bytes, in up to 16,384 areas and slots.
    pub const fn of_bytes(bytes_max: u64) -> Budget {
        Budget { bytes_max, entries_max: 1 << 14, slots_max: 1 << 14, merge_growth_max: 4 }
    }
}

/// The reason why there can be no pin-down cache of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BudgetError {
    /// None, or too many.
    #[error("a pin-down cache cannot have {0} entries: it must be 1 to {max}", max = Budget::ENTRIES_MAX)]
    Entries(u32),
    /// The back end's pages are not a power of two.
    #[error("a back end cannot have pages of {0} bytes: it must be a power of two")]
    PageBytes(u64),
}

/// The amount of pinned memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Bytes, in whole pages.
    pub bytes: u64,
    /// Areas.
    pub entries: u32,
    /// Slots of the back end.
    pub slots: u32,
}

impl Pinned {
    pub(super) fn fits(self, budget: &Budget) -> bool {
        self.bytes <= budget.bytes_max
            && self.entries <= budget.entries_max
            && self.slots <= budget.slots_max
    }

    /// Both together; more than can be counted is more than any budget that could be met.
    pub(super) fn and(self, more: Pinned) -> Pinned {
        Pinned {
            bytes: self.bytes.saturating_add(more.bytes),
            entries: self.entries.saturating_add(more.entries),
            slots: self.slots.saturating_add(more.slots),
        }
    }

    pub(super) fn without(self, less: Pinned) -> Pinned {
        Pinned {
            bytes: self.bytes - less.bytes,
            entries: self.entries - less.entries,
            slots: self.slots - less.slots,
        }
    }

    pub(super) fn most(self, other: Pinned) -> Pinned {
        Pinned {
            bytes: self.bytes.max(other.bytes),
            entries: self.entries.max(other.entries),
            slots: self.slots.max(other.slots),
        }
    }
}

/// The counters of a pin-down cache since it was made.
///
/// Every request that was valid is a hit or a miss. Every pin is pinned still (`now.entries`), or
/// was unpinned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinCounters {
    /// Requests within a pinned area.
    pub hits: u64,
    /// Other requests, with any answer.
    pub misses: u64,
    /// Pins.
    pub pins: u64,
    /// Unpins.
    pub unpins: u64,
    /// Pins that took the place of others.
    pub merges: u64,
    /// The areas that they replaced.
    pub absorbed: u64,
    /// Areas that had to give way to others.
    pub evictions: u64,
    /// Areas that were invalidated, those in flight among them.
    pub invalidations: u64,
    /// Transfers that ended and left their area pinned.
    pub deferred: u64,
    /// Misses answered with `Busy`.
    pub busy: u64,
    /// Misses answered with `TooLarge`.
    pub too_large: u64,
    /// Misses answered with the back end's refusal.
    pub refused: u64,
    /// The amount of pinned memory.
    pub now: Pinned,
    /// The most that was pinned, of each.
    pub most: Pinned,
}
