//! The index of a class: from the key that its receives compare to the entries with that key, in
//! order.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasher, Hash, Hasher},
};

use super::{Source, TagMatch, arena::NIL};
use crate::PeerId;

/// The fields that a receive compares: its source, if it names one, and the bits of the tag that
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    any: bool,
    ignore: u64,
}

impl Shape {
    #[inline]
    pub(super) fn of(from: Source, tag: TagMatch) -> Shape {
        Shape { any: from == Source::Any, ignore: tag.ignore() }
    }

    /// The key that receives of this shape compare with a message.
    #[inline]
    pub(super) fn key(self, peer: PeerId, tag: u64) -> Key {
        let peer = if self.any { 0 } else { peer.to_bits() };
        Key { peer, tag: tag & !self.ignore }
    }
}

/// One value of the compared fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    peer: u64,
    tag: u64,
}

impl Key {
    /// The key that a receive asks for, by its own shape.
    #[inline]
    pub(super) fn of(from: Source, tag: TagMatch) -> Key {
        let peer = match from {
            Source::Any => 0,
            Source::Peer(peer) => peer.to_bits(),
        };
        Key { peer, tag: tag.tag() }
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.peer);
        state.write_u64(self.tag);
    }
}

/// The secret numbers of a matcher's hash.
///
/// The hash of `(x, y)` is the upper half of `a·x + b·y + c` modulo 2^128. With random `a`, `b` and
/// `c` that is strongly universal (Dietzfelbinger 1996; Thorup, "High Speed Hashing for Integers
/// and Strings", section 3): for any two different keys that a peer chooses, any k bits of their
/// hashes agree with probability 2^-k. A multiplicative hash with a secret start would not do,
/// since differences of keys would still show. Four multiplications that do not wait for one
/// another, and one to finish.
#[derive(Clone, Copy)]
pub(super) struct Seeds {
    a: u128,
    b: u128,
    c: u128,
}

impl Seeds {
    /// Expands `seed` with the SplitMix64 generator (Steele, Lea, Flood 2014).
    pub(super) fn new(seed: u64) -> Seeds {
        let mut state = seed;
        let mut half = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            u128::from(z ^ z >> 31)
        };
        let mut word = || half() << 64 | half();
        Seeds { a: word(), b: word(), c: word() }
    }
}

impl BuildHasher for Seeds {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher { factor: self.a, next: self.b, sum: self.c }
    }
}

/// Hashes one [`Key`].
pub(super) struct KeyHasher {
    factor: u128,
    next: u128,
    sum: u128,
}

impl Hasher for KeyHasher {
    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.sum = self.sum.wrapping_add(self.factor.wrapping_mul(u128::from(word)));
        self.factor = self.next;
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "keys are hashed as words");
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    #[inline]
    fn finish(&self) -> u64 {
        // A one-to-one mix keeps the guarantee and breaks up runs of evenly spaced tags.
        let upper = (self.sum >> 64) as u64;
        let mixed = (upper ^ upper >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    }
}

/// The neighbours of each slot in its list. The entry of a slot that is in no list means nothing.
#[derive(Default)]
pub(super) struct Links(Vec<Link>);

#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

impl Links {
    #[inline]
    fn set(&mut self, slot: u32, link: Link) {
        if self.0.len() <= slot as usize {
            self.0.resize(slot as usize + 1, Link { prev: NIL, next: NIL });
        }
        self.0[slot as usize] = link;
    }

    /// Slots that storage is held for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// A list of slots, earliest first, linked through some [`Links`].
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    head: u32,
    tail: u32,
}

impl List {
    pub(super) const EMPTY: List = List { head: NIL, tail: NIL };

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.head == NIL
    }

    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, slot: u32) {
        links.set(slot, Link { prev: self.tail, next: NIL });
        match self.tail {
            NIL => self.head = slot,
            tail => links.0[tail as usize].next = slot,
        }
        self.tail = slot;
    }

    /// Adds `slot` before the first slot of the list that is `later`.
    fn insert(&mut self, links: &mut Links, slot: u32, later: impl Fn(u32) -> bool) {
        let Some(next) = self.iter(links).find(|other| later(*other)) else {
            return self.push(links, slot);
        };
        let prev = links.0[next as usize].prev;
        links.set(slot, Link { prev, next });
        links.0[next as usize].prev = slot;
        match prev {
            NIL => self.head = slot,
            prev => links.0[prev as usize].next = slot,
        }
    }

    /// Takes `slot`, which is in this list, out of it.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, slot: u32) {
        let Link { prev, next } = links.0[slot as usize];
        match prev {
            NIL => self.head = next,
            prev => links.0[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => links.0[next as usize].prev = prev,
        }
    }

    /// The slots of the list, earliest first.
    pub(super) fn iter(self, links: &Links) -> impl Iterator<Item = u32> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let link = links.0.get(at as usize)?;
            Some(std::mem::replace(&mut at, link.next))
        })
    }
}

/// The lists of one class by key. A list that empties is removed, so that memory follows the
/// entries that wait.
pub(super) struct Index {
    lists: HashMap<Key, List, Seeds>,
}

impl Index {
    pub(super) fn new(seeds: Seeds) -> Index {
        Index { lists: HashMap::with_hasher(seeds) }
    }

    /// Returns whether no entry is in the index.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The earliest entry under `key`.
    #[inline]
    pub(super) fn head(&self, key: Key) -> Option<u32> {
        self.lists.get(&key).map(|list| list.head)
    }

    /// Appends `slot` to the entries under `key`.
    #[inline]
    pub(super) fn push(&mut self, links: &mut Links, key: Key, slot: u32) {
        self.lists.entry(key).or_insert(List::EMPTY).push(links, slot);
    }

    /// Adds `slot` to the entries under `key`, before the first that is `later`.
    pub(super) fn insert(
        &mut self,
        links: &mut Links,
        key: Key,
        slot: u32,
        later: impl Fn(u32) -> bool,
    ) {
        self.lists.entry(key).or_insert(List::EMPTY).insert(links, slot, later);
    }

    /// Takes `slot` out of the entries under `key`, where it is.
    #[inline]
    pub(super) fn remove(&mut self, links: &mut Links, key: Key, slot: u32) {
        if let Entry::Occupied(mut list) = self.lists.entry(key) {
            list.get_mut().remove(links, slot);
            if list.get().is_empty() {
                list.remove();
            }
        }
    }

    /// Keys that storage is held for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.lists.capacity()
    }
}
