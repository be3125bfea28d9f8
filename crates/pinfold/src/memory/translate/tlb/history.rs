//! The pages that were ever asked for: exact as far as it goes, and of bounded memory.
//!
//! A bit for each page, in words of 64 neighbours, in a tree: it is looked at on misses only, which
//! cost microseconds anyway, and no choice of pages makes it slower than its logarithm.

use std::collections::BTreeMap;

use crate::memory::translate::SpaceId;

/// The knowledge of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The page is asked for the first time.
    First,
    /// It was asked for before.
    Again,
    /// Nothing: there is no room to remember it.
    Nothing,
}

#[derive(Debug)]
pub(super) struct History {
    groups: BTreeMap<(SpaceId, u64), u64>,
    groups_max: usize,
}

impl History {
    pub(super) fn new(groups_max: usize) -> History {
        History { groups: BTreeMap::new(), groups_max }
    }

    /// Remembers that a page was asked for, and says whether it was before.
    pub(super) fn note(&mut self, space: SpaceId, page: u64) -> Known {
        let (key, bit) = ((space, page / 64), 1 << (page % 64));
        if let Some(word) = self.groups.get_mut(&key) {
            let known = if *word & bit != 0 { Known::Again } else { Known::First };
            *word |= bit;
            known
        } else if self.groups.len() < self.groups_max {
            self.groups.insert(key, bit);
            Known::First
        } else {
            Known::Nothing
        }
    }

    /// Forgets the pages of a space that is no more.
    pub(super) fn forget(&mut self, space: SpaceId) {
        let mut from = self.groups.split_off(&(space, 0));
        let mut behind = match space.0.checked_add(1) {
            Some(next) => from.split_off(&(SpaceId(next), 0)),
            None => BTreeMap::new(),
        };
        self.groups.append(&mut behind);
    }
}
