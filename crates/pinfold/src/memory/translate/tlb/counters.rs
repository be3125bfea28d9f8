//! The counters of a TLB.

/// The counters of a TLB since it was made.
///
/// Every look-up is one hit, one denial or one miss: [`TlbCounters::look_ups`] is their sum.
/// Every entry that was put in is in the TLB, or went by an eviction, a replacement or an
/// invalidation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlbCounters {
    /// Hits in the first level.
    pub hits_first: u64,
    /// Hits in the victim list.
    pub hits_victim: u64,
    /// There was a translation, but with fewer rights.
    pub denied: u64,
    /// Misses of pages that were never looked up nor put in before: no TLB could have had them.
    pub misses_compulsory: u64,
    /// Misses of pages that were: they had to give way, or were invalidated.
    pub misses_other: u64,
    /// Misses of unknown kind, because the history is full.
    pub misses_unclassified: u64,
    /// Translations put in.
    pub insertions: u64,
    /// Entries that had to give way to another page.
    pub evictions: u64,
    /// Entries that gave way to a new translation of the same page.
    pub replacements: u64,
    /// Entries that were invalidated, those in flight among them.
    pub invalidations: u64,
    /// The greatest length of the victim list.
    pub victims_max: usize,
}

impl TlbCounters {
    /// Look-ups, [`Tlb::begin`](super::Tlb::begin) among them.
    pub fn look_ups(&self) -> u64 {
        self.hits_first + self.hits_victim + self.denied + self.misses()
    }

    /// Misses of all kinds.
    pub fn misses(&self) -> u64 {
        self.misses_compulsory + self.misses_other + self.misses_unclassified
    }
}
