//! The TLB of U-Net/MM (Welsh, Basu, von Eicken, sections 4.1 and 5.1): translations of pages, in
//! two levels. The first is direct-mapped, or a few entries a set; an entry that has to give way
//! there goes to a *victim list*, first in, first out, in which every page can be.
//!
//! Plain state, no I/O: it does not translate, it remembers. A caller that misses translates by
//! other means and [`insert`](Tlb::insert)s the result; an entry that leaves is handed back as
//! [`Gone`], since its owner keeps the page pinned as long as the TLB has it.
//!
//! Invariants:
//! - There is at most one live entry for a page of a space.
//! - An entry with transfers in flight is never evicted. If one has to leave its set it goes to the
//!   victim list, which then may become longer than it should; as long as it is, all its entries
//!   are in flight. It is trimmed when transfers end.
//! - An entry that is invalidated is never hit again. If it is in flight it is put aside, and its
//!   last [`Tlb::end`] hands it back.

mod answer;
mod counters;
mod entry;
mod geometry;
mod history;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, fmt};

pub use self::{
    answer::{Gone, Lookup, Transfer},
    counters::TlbCounters,
    geometry::{Geometry, GeometryError},
};
use self::{
    entry::{Entry, EntryId},
    history::{History, Known},
};
use super::{Rights, SpaceId, spread};

/// Translations of pages, each a `T`.
///
/// A hit in the first level takes a few loads. A miss looks at every entry of the victim list.
pub struct Tlb<T> {
    geometry: Geometry,
    page_shift: u32,
    set_shift: u32,
    /// The first level, set by set, in each the newest entry first; empty until the first entry
    /// comes, for which there is then a value to fill it with.
    sets: Vec<Entry<T>>,
    /// The oldest first.
    victims: VecDeque<Entry<T>>,
    /// Invalidated, and still in flight.
    aside: Vec<Entry<T>>,
    next_id: EntryId,
    history: History,
    counters: TlbCounters,
}

/// The place of an entry.
#[derive(Clone, Copy)]
enum Place {
    First(usize),
    Victim(usize),
}

impl<T: Copy> Tlb<T> {
    /// An empty one. It takes its memory, 32 bytes an entry for a `T` of 8 bytes, with the first
    /// entry.
    ///
    /// # Errors
    /// The geometry is impossible.
    pub fn new(geometry: Geometry) -> Result<Tlb<T>, GeometryError> {
        geometry.check()?;
        Ok(Tlb {
            geometry,
            page_shift: geometry.page_bytes.trailing_zeros(),
            set_shift: geometry.sets.trailing_zeros(),
            sets: Vec::new(),
            victims: VecDeque::new(),
            aside: Vec::new(),
            next_id: 0,
            history: History::new(geometry.history_groups_max),
            counters: TlbCounters::default(),
        })
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The counters.
    pub fn counters(&self) -> &TlbCounters {
        &self.counters
    }

    /// Entries that can be hit.
    pub fn entries(&self) -> usize {
        self.sets.iter().filter(|entry| entry.is_there()).count() + self.victims.len()
    }

    /// Entries in the victim list.
    pub fn victims(&self) -> usize {
        self.victims.len()
    }

    /// Entries that were invalidated and are still in flight.
    pub fn in_use_aside(&self) -> usize {
        self.aside.len()
    }

    /// The translation of the page at an address, if it allows `needed`.
    #[inline]
    pub fn look_up(&mut self, space: SpaceId, address: u64, needed: Rights) -> Lookup<T> {
        match self.find(space, address >> self.page_shift, needed) {
            Lookup::Hit(place) => Lookup::Hit(self.at(place).value),
            Lookup::Miss => Lookup::Miss,
            Lookup::Denied(rights) => Lookup::Denied(rights),
        }
    }

    /// The same for a transfer that begins: the entry stays until it has ended.
    #[inline]
    pub fn begin(&mut self, space: SpaceId, address: u64, needed: Rights) -> Lookup<Transfer<T>> {
        let page = address >> self.page_shift;
        match self.find(space, page, needed) {
            Lookup::Hit(place) => {
                let entry = self.at_mut(place);
                entry.hold();
                Lookup::Hit(Transfer { space, page, id: entry.id, value: entry.value })
            }
            Lookup::Miss => Lookup::Miss,
            Lookup::Denied(rights) => Lookup::Denied(rights),
        }
    }

    /// A transfer has ended. Returns its entry if it was the last one of an entry that was to go,
    /// with no transfers: its page may be unpinned.
    pub fn end(&mut self, transfer: Transfer<T>) -> Option<Gone<T>> {
        let Transfer { space, page, id, .. } = transfer;
        if let Some(place) = self.place(space, page).filter(|place| self.at(*place).id == id) {
            let overgrown = self.victims.len() > self.geometry.victims;
            let is_idle = self.at_mut(place).release();
            return match place {
                Place::Victim(at) if is_idle && overgrown => {
                    self.counters.evictions += 1;
                    self.victims.remove(at).map(|entry| entry.gone(self.page_shift))
                }
                _ => None,
            };
        }
        let at = self.aside.iter().position(|entry| entry.is(space, page) && entry.id == id)?;
        self.aside[at].release().then(|| self.aside.swap_remove(at).gone(self.page_shift))
    }

    /// Puts in the translation of the page at an address, in place of any that there is. Returns
    /// the entry that left for it and is not in flight: one that was evicted, or the old one of the
    /// same page. An old one in flight comes back by its last [`Tlb::end`].
    #[must_use = "what is gone may have to be unpinned"]
    pub fn insert(
        &mut self,
        space: SpaceId,
        address: u64,
        rights: Rights,
        value: T,
    ) -> Option<Gone<T>> {
        let page = address >> self.page_shift;
        self.counters.insertions += 1;
        self.history.note(space, page);
        let old = self.place(space, page).map(|place| {
            self.counters.replacements += 1;
            self.remove(place)
        });
        let entry = Entry::new(space, page, rights, value, self.new_id(space, page));
        if self.sets.is_empty() {
            let vacant = Entry::vacant(value);
            self.sets.resize(self.geometry.sets * self.geometry.ways, vacant);
        }
        // At most one of the two is idle: an old one that was left its place to the new one, or
        // room in the victim list.
        let evicted = self.push_first(entry).and_then(|displaced| self.push_victim(displaced));
        old.filter(|old| old.transfers == 0).or(evicted)
    }

    /// Invalidates the page at an address. `None` if there is no entry of it.
    #[must_use = "what is gone may have to be unpinned"]
    pub fn invalidate(&mut self, space: SpaceId, address: u64) -> Option<Gone<T>> {
        let place = self.place(space, address >> self.page_shift)?;
        self.counters.invalidations += 1;
        Some(self.remove(place))
    }

    /// Invalidates all pages that have any of the `len` bytes from `start` on, up to the end of the
    /// space. Calls `gone` with each entry.
    ///
    /// Looks up every page of the range, or at every entry if there are fewer of those.
    pub fn invalidate_range(
        &mut self,
        space: SpaceId,
        start: u64,
        len: u64,
        mut gone: impl FnMut(Gone<T>),
    ) {
        let Some(more) = len.checked_sub(1) else { return };
        let first = start >> self.page_shift;
        let last = start.saturating_add(more) >> self.page_shift;
        let entries = self.sets.len() + self.victims.len();
        if last - first < entries as u64 {
            for page in first..=last {
                if let Some(place) = self.place(space, page) {
                    self.counters.invalidations += 1;
                    gone(self.remove(place));
                }
            }
        } else {
            self.invalidate_all(|entry| entry.is_within(space, first, last), &mut gone);
        }
    }

    /// Invalidates all pages of a space, which is no more, and forgets what it asked for.
    pub fn close(&mut self, space: SpaceId, mut gone: impl FnMut(Gone<T>)) {
        self.invalidate_all(|entry| entry.is_within(space, 0, u64::MAX), &mut gone);
        self.history.forget(space);
    }

    fn invalidate_all(
        &mut self,
        is_meant: impl Fn(&Entry<T>) -> bool,
        gone: &mut impl FnMut(Gone<T>),
    ) {
        let firsts = 0..self.sets.len();
        for place in
            firsts.map(Place::First).chain((0..self.victims.len()).rev().map(Place::Victim))
        {
            if is_meant(self.at(place)) {
                self.counters.invalidations += 1;
                gone(self.remove(place));
            }
        }
    }

    /// The place of the entry of a page that allows `needed`, counted as a look-up. The entry is in
    /// the first level then, unless the victim list is longer than it should be.
    #[inline]
    fn find(&mut self, space: SpaceId, page: u64, needed: Rights) -> Lookup<Place> {
        let first = self.set_of(space, page) * self.geometry.ways;
        let set = self.sets.get(first..first + self.geometry.ways).unwrap_or(&[]);
        for (way, entry) in set.iter().enumerate() {
            if entry.is(space, page) {
                let rights = entry.rights();
                if !rights.allow(needed) {
                    self.counters.denied += 1;
                    return Lookup::Denied(rights);
                }
                self.counters.hits_first += 1;
                return Lookup::Hit(Place::First(first + way));
            }
        }
        self.find_victim(space, page, needed)
    }

    #[inline(never)]
    fn find_victim(&mut self, space: SpaceId, page: u64, needed: Rights) -> Lookup<Place> {
        let Some(at) = self.victims.iter().position(|entry| entry.is(space, page)) else {
            *match self.history.note(space, page) {
                Known::First => &mut self.counters.misses_compulsory,
                Known::Again => &mut self.counters.misses_other,
                Known::Nothing => &mut self.counters.misses_unclassified,
            } += 1;
            return Lookup::Miss;
        };
        let rights = self.victims[at].rights();
        if !rights.allow(needed) {
            self.counters.denied += 1;
            return Lookup::Denied(rights);
        }
        self.counters.hits_victim += 1;
        if self.victims.len() > self.geometry.victims {
            // The entry that would leave the set for it could be idle, and there is no room for
            // that.
            return Lookup::Hit(Place::Victim(at));
        }
        let Some(entry) = self.victims.remove(at) else { return Lookup::Miss };
        if let Some(displaced) = self.push_first(entry) {
            self.victims.push_back(displaced);
        }
        Lookup::Hit(Place::First(self.set_of(space, page) * self.geometry.ways))
    }

    /// The set of a page. Pages in a row are in sets in a row, so that a buffer of as many pages as
    /// there are sets is without conflicts; where the row begins depends on all other bits.
    #[inline(always)]
    fn set_of(&self, space: SpaceId, page: u64) -> usize {
        let row = spread((page >> self.set_shift) ^ space.0.rotate_left(32)) >> 40;
        (page.wrapping_add(row) as usize) & (self.geometry.sets - 1)
    }

    /// The place of the live entry of a page; not counted.
    fn place(&self, space: SpaceId, page: u64) -> Option<Place> {
        let first = self.set_of(space, page) * self.geometry.ways;
        let set = self.sets.get(first..first + self.geometry.ways).unwrap_or(&[]);
        let is = |entry: &Entry<T>| entry.is(space, page);
        match set.iter().position(is) {
            Some(way) => Some(Place::First(first + way)),
            None => self.victims.iter().position(is).map(Place::Victim),
        }
    }

    #[inline(always)]
    fn at(&self, place: Place) -> &Entry<T> {
        match place {
            Place::First(at) => &self.sets[at],
            Place::Victim(at) => &self.victims[at],
        }
    }

    #[inline(always)]
    fn at_mut(&mut self, place: Place) -> &mut Entry<T> {
        match place {
            Place::First(at) => &mut self.sets[at],
            Place::Victim(at) => &mut self.victims[at],
        }
    }

    /// Takes an entry out, and puts it aside if it is in flight.
    fn remove(&mut self, place: Place) -> Gone<T> {
        let entry = *self.at(place);
        match place {
            Place::First(at) => self.sets[at] = Entry::vacant(entry.value),
            Place::Victim(at) => drop(self.victims.remove(at)),
        }
        if entry.transfers() > 0 {
            self.aside.push(entry);
        }
        entry.gone(self.page_shift)
    }

    /// Puts an entry first in its set. Returns the one that has to leave it: the oldest that is
    /// idle, or the oldest.
    fn push_first(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        let first = self.set_of(entry.space, entry.page()) * self.geometry.ways;
        let set = &mut self.sets[first..first + self.geometry.ways];
        let out = (set.iter().rposition(|old| !old.is_there()))
            .or_else(|| set.iter().rposition(|old| old.transfers() == 0))
            .unwrap_or(set.len() - 1);
        let displaced = set[out];
        set.copy_within(..out, 1);
        set[0] = entry;
        displaced.is_there().then_some(displaced)
    }

    /// Puts an entry last in the victim list. Returns the one that is evicted for it, if the list
    /// is too long and any entry of it is idle.
    fn push_victim(&mut self, entry: Entry<T>) -> Option<Gone<T>> {
        self.victims.push_back(entry);
        let evicted = if self.victims.len() > self.geometry.victims {
            let oldest = self.victims.iter().position(|old| old.transfers() == 0);
            oldest.and_then(|at| self.victims.remove(at))
        } else {
            None
        };
        self.counters.victims_max = self.counters.victims_max.max(self.victims.len());
        self.counters.evictions += u64::from(evicted.is_some());
        evicted.map(|entry| entry.gone(self.page_shift))
    }

    /// A number that no other entry of the page has.
    fn new_id(&mut self, space: SpaceId, page: u64) -> EntryId {
        loop {
            self.next_id = self.next_id.wrapping_add(1);
            let is_taken = |old: &Entry<T>| old.is(space, page) && old.id == self.next_id;
            if !self.aside.iter().any(is_taken) {
                return self.next_id;
            }
        }
    }
}

impl<T> fmt::Debug for Tlb<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tlb")
            .field("geometry", &self.geometry)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
