//! The choice of the area that gives way when there is no room.

use std::{cmp::Reverse, collections::BinaryHeap};

/// The view of the areas that a policy has, and the way it takes one.
pub trait Candidates {
    /// The moment at which an area was last used: at which its last transfer ended.
    fn used(&self, area: u32) -> u64;

    /// The latest moment there is. An area in flight counts as used now.
    fn now(&self) -> u64;

    /// Takes an area, if no transfer is in flight there. `false`: one is.
    fn claim(&mut self, area: u32) -> bool;
}

/// A policy of eviction. It knows areas by small numbers, which are used again. Each account has a
/// clone of the one that the cache was made with.
pub trait Evict: Clone {
    /// An area may be evicted from now on; it was used at this moment.
    fn insert(&mut self, area: u32, used: u64);

    /// An area may not be evicted any more.
    fn forget(&mut self, area: u32);

    /// Claims the area that is to go, and forgets it. `None` only if everything is in flight.
    fn choose(&mut self, areas: &mut dyn Candidates) -> Option<u32>;
}

/// Least recently used: the paper's (section 4), exactly.
///
/// Uses are not told to it, so that a hit costs nothing here: its heap has moments that may be too
/// old, and an area that comes to the top with one goes back with the true one. To choose takes a
/// logarithm of the number of areas, spread over the uses since.
#[derive(Clone, Debug, Default)]
pub struct Lru {
    /// No later than the last use of each; also some of areas that were forgotten.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    /// For each area its moment in the heap.
    keys: Vec<Option<u64>>,
    areas: usize,
}

/// So many that went back, and the moments of all are renewed at once: that is cheaper.
const BACK_MAX: usize = 32;

impl Lru {
    fn push(&mut self, area: u32, key: u64) {
        self.keys[area as usize] = Some(key);
        self.heap.push(Reverse((key, area)));
    }

    /// Makes the heap anew, from moments that `key` knows of each area.
    fn renew(&mut self, mut key: impl FnMut(u32, u64) -> u64) {
        for (area, old) in self.keys.iter_mut().enumerate() {
            *old = old.map(|old| key(area as u32, old));
        }
        let keys = self.keys.iter().enumerate();
        let entries = keys.filter_map(|(area, key)| key.map(|key| Reverse((key, area as u32))));
        self.heap = entries.collect::<Vec<_>>().into();
    }
}

impl Evict for Lru {
    fn insert(&mut self, area: u32, used: u64) {
        if self.keys.len() <= area as usize {
            self.keys.resize(area as usize + 1, None);
        }
        self.areas += usize::from(self.keys[area as usize].is_none());
        self.push(area, used);
        if self.heap.len() > 2 * self.areas + 64 {
            self.renew(|_, key| key);
        }
    }

    fn forget(&mut self, area: u32) {
        let key = self.keys.get_mut(area as usize).and_then(Option::take);
        self.areas -= usize::from(key.is_some());
    }

    fn choose(&mut self, areas: &mut dyn Candidates) -> Option<u32> {
        let mut in_flight = Vec::new();
        let mut back = 0;
        let chosen = loop {
            let Some(Reverse((key, area))) = self.heap.pop() else { break None };
            if self.keys[area as usize] != Some(key) {
                continue;
            }
            let used = areas.used(area);
            if used > key {
                self.push(area, used);
                back += 1;
                if back == BACK_MAX {
                    // Areas set aside stay so until the end.
                    self.renew(|area, _| areas.used(area));
                }
            } else if in_flight.contains(&area) {
                // It came back when the moments were renewed.
                continue;
            } else if areas.claim(area) {
                break Some(area);
            } else {
                in_flight.push(area);
            }
        };
        if let Some(area) = chosen {
            self.forget(area);
        }
        for area in in_flight {
            self.push(area, areas.now());
        }
        chosen
    }
}

/// Second chance: a hand goes round, and takes the first area that was not used since it came by.
///
/// It needs no heap, and an area used once in a while stays longer than with [`Lru`].
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// For each area the moment of its last use as the hand saw it.
    seen: Vec<Option<u64>>,
    hand: usize,
}

/// A moment that is none: the hand has not come by yet.
const NOT_SEEN: u64 = u64::MAX;

impl Evict for Clock {
    fn insert(&mut self, area: u32, _used: u64) {
        if self.seen.len() <= area as usize {
            self.seen.resize(area as usize + 1, None);
        }
        self.seen[area as usize] = Some(NOT_SEEN);
    }

    fn forget(&mut self, area: u32) {
        if let Some(seen) = self.seen.get_mut(area as usize) {
            *seen = None;
        }
    }

    fn choose(&mut self, areas: &mut dyn Candidates) -> Option<u32> {
        // The first time round everything may have been used; the second time, nothing since.
        for _ in 0..2 * self.seen.len() {
            let at = self.hand;
            self.hand = (at + 1) % self.seen.len();
            let Some(seen) = self.seen[at] else { continue };
            let used = areas.used(at as u32);
            if seen != used {
                self.seen[at] = Some(used);
            } else if areas.claim(at as u32) {
                self.seen[at] = None;
                return Some(at as u32);
            }
        }
        None
    }
}
