//! Call sites: the places of bulk copies, each with its knowledge of the algorithms.
//!
//! After the *block memory operation caller buffer* of Calhoun, *Characterization of Block Memory
//! Operations*, chapter 8: a small table of the callers of late, each with a hint from the times of
//! its copies.

mod class;
mod site;
#[cfg(test)]
mod tests;

use std::{fmt, panic::Location};

pub use self::{
    class::{CANDIDATES_MAX, Choice},
    site::{LEARNT_MIN, Site},
};

/// Callers that may be in one place of the table.
const WAYS: usize = 4;

/// Places of the table.
const SETS: usize = 16;

/// The caller of a copy: a place in a program, or a part of it that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Something with a name of its own.
    Named(&'static str),
    /// A line of code.
    At(&'static Location<'static>),
}

impl Caller {
    /// The line that this was called from.
    #[inline]
    #[track_caller]
    pub fn here() -> Caller {
        Caller::At(Location::caller())
    }

    /// Tells callers apart. One line of code may have several, if it was compiled more than once.
    fn key(self) -> usize {
        match self {
            Caller::Named(name) => name.as_ptr().addr(),
            Caller::At(place) => std::ptr::from_ref(place).addr(),
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caller::Named(name) => f.write_str(name),
            Caller::At(place) => write!(f, "{place}"),
        }
    }
}

/// The copies of one caller since it was in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteCount {
    /// The caller.
    pub caller: Caller,
    /// Copies and zeroings.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
}

struct Entry {
    count: SiteCount,
    /// The time of the last look-up.
    used: u64,
    site: Site,
}

/// The callers of late, 64 at most, with the knowledge of each.
///
/// A caller has one of four entries; one that finds none free takes that of the caller that was
/// away longest. To look one up takes some nanoseconds.
pub struct Sites {
    entries: Vec<Option<Entry>>,
    /// Lookups.
    turn: u64,
    replaced: u64,
}

impl Default for Sites {
    fn default() -> Sites {
        Sites::new()
    }
}

impl Sites {
    /// Callers that are remembered at the same time.
    pub const ENTRIES: usize = SETS * WAYS;

    /// An empty table; it takes its memory, about 14 KiB, with the first caller.
    pub const fn new() -> Sites {
        Sites { entries: Vec::new(), turn: 0, replaced: 0 }
    }

    /// The site of a caller that is about to copy `bytes`, new if it is not in the table.
    #[inline]
    pub fn site(&mut self, caller: Caller, bytes: usize) -> &mut Site {
        let (site, count) = self.entry(caller);
        count.copies += 1;
        count.bytes += bytes as u64;
        site
    }

    /// The same of a caller that counts its copies afterwards.
    #[inline]
    pub(super) fn entry(&mut self, caller: Caller) -> (&mut Site, &mut SiteCount) {
        if self.entries.is_empty() {
            self.entries.resize_with(Sites::ENTRIES, || None);
        }
        self.turn += 1;
        let key = caller.key();
        // Callers lie some bytes apart from each other; the product spreads them.
        let set = key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (usize::BITS - SETS.ilog2());
        let ways = set * WAYS..(set + 1) * WAYS;
        let held = |entry: &Option<Entry>| {
            entry.as_ref().is_some_and(|entry| entry.count.caller.key() == key)
        };
        let at = match self.entries[ways.clone()].iter().position(held) {
            Some(way) => ways.start + way,
            None => self.make_room(ways),
        };
        let entry = self.entries[at].get_or_insert_with(|| Entry {
            count: SiteCount { caller, copies: 0, bytes: 0 },
            used: 0,
            site: Site::new(),
        });
        entry.used = self.turn;
        (&mut entry.site, &mut entry.count)
    }

    /// Frees one of these entries: the one that was not used for longest.
    #[cold]
    fn make_room(&mut self, ways: std::ops::Range<usize>) -> usize {
        let used = |at: &usize| self.entries[*at].as_ref().map_or(0, |entry| entry.used);
        let at = ways.clone().min_by_key(used).unwrap_or(ways.start);
        self.replaced += u64::from(self.entries[at].take().is_some());
        at
    }

    /// The copies of the callers in the table, in no order.
    pub fn counts(&self) -> impl Iterator<Item = SiteCount> {
        self.entries.iter().flatten().map(|entry| entry.count)
    }

    /// The number of callers that had to give way to others.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }
}

impl fmt::Debug for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.counts()).finish()
    }
}
