//! Receives that wait for a message.
//!
//! Every receive is in the arena. While `indexed`, each is also either in the index of its class
//! or, when there was no room for another class, in `others`; all these lists share `links`.

use super::{
    CLASSES_MAX, KEPT_MAX, SCAN_AGAIN, SCAN_MAX, Source, TagMatch,
    arena::{Arena, NIL, Scan, Ticket},
    index::{Index, Key, Links, List, Seeds, Shape},
};
use crate::PeerId;

/// The class of a receive that is in `others`.
const OTHERS: u8 = u8::MAX;

struct Receive<P> {
    from: Source,
    tag: TagMatch,
    /// Its place in `classes`, or [`OTHERS`]; means nothing unless indexed.
    class: u8,
    /// True if it takes more than one message.
    stands: bool,
    value: P,
}

impl<P> Receive<P> {
    #[inline]
    fn matches(&self, peer: PeerId, tag: u64) -> bool {
        self.tag.matches(tag) && self.from.matches(peer)
    }
}

struct Class {
    shape: Shape,
    index: Index,
}

pub(super) struct Posted<P> {
    arena: Arena<Receive<P>>,
    indexed: bool,
    /// At most [`CLASSES_MAX`]; one with an empty index may be given another shape.
    classes: Vec<Class>,
    others: List,
    links: Links,
    seeds: Seeds,
}

impl<P: Copy> Posted<P> {
    pub(super) fn new(seeds: Seeds) -> Posted<P> {
        Posted {
            arena: Arena::new(),
            indexed: false,
            classes: Vec::new(),
            others: List::EMPTY,
            links: Links::default(),
            seeds,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    #[inline]
    pub(super) fn push(&mut self, from: Source, tag: TagMatch, value: P, stands: bool) -> Ticket {
        let ticket = self.arena.push(Receive { from, tag, class: OTHERS, stands, value });
        if self.indexed {
            self.index(ticket.slot);
        }
        ticket
    }

    #[inline]
    pub(super) fn arrive(&mut self, peer: PeerId, tag: u64) -> Option<P> {
        let slot = self.find(peer, tag)?;
        match self.arena.get(slot) {
            Some(Receive { stands: true, value, .. }) => Some(*value),
            _ => self.remove_slot(slot),
        }
    }

    /// The slot of the earliest receive that matches.
    #[inline]
    pub(super) fn find(&mut self, peer: PeerId, tag: u64) -> Option<u32> {
        if self.indexed { self.look_up(peer, tag) } else { self.scan(peer, tag) }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<P> {
        self.remove_slot(self.arena.slot_of(ticket)?)
    }

    pub(super) fn drop_where(&mut self, mut goes: impl FnMut(Source) -> bool) -> Vec<P> {
        let slots: Vec<u32> =
            self.arena.iter().filter(|(_, it)| goes(it.from)).map(|(slot, _)| slot).collect();
        slots.into_iter().filter_map(|slot| self.remove_slot(slot)).collect()
    }

    #[inline]
    fn scan(&mut self, peer: PeerId, tag: u64) -> Option<u32> {
        match self.arena.scan(SCAN_MAX, |receive| receive.matches(peer, tag)) {
            Scan::Found(slot) => Some(slot),
            Scan::Nowhere => None,
            Scan::TooFar => {
                self.index_all();
                self.look_up(peer, tag)
            }
        }
    }

    /// The earliest match of all classes.
    fn look_up(&self, peer: PeerId, tag: u64) -> Option<u32> {
        let mut best = (u64::MAX, NIL);
        for class in self.classes.iter().filter(|class| !class.index.is_empty()) {
            self.arena.visit();
            if let Some(slot) = class.index.head(class.shape.key(peer, tag)) {
                best = best.min((self.arena.seq(slot), slot));
            }
        }
        for slot in self.others.iter(&self.links) {
            self.arena.visit();
            if self.arena.seq(slot) > best.0 {
                break;
            }
            if self.arena.get(slot).is_some_and(|receive| receive.matches(peer, tag)) {
                best = (self.arena.seq(slot), slot);
                break;
            }
        }
        (best.1 != NIL).then_some(best.1)
    }

    #[inline]
    fn remove_slot(&mut self, slot: u32) -> Option<P> {
        if self.indexed {
            self.unindex(slot);
        }
        let receive = self.arena.remove(slot)?;
        if self.indexed && self.arena.len() <= SCAN_AGAIN {
            self.unindex_all();
        }
        if self.arena.len() == 0 && self.arena.capacity() > KEPT_MAX {
            self.arena.release();
            self.classes = Vec::new();
            self.links = Links::default();
        }
        Some(receive.value)
    }

    #[cold]
    fn index_all(&mut self) {
        self.indexed = true;
        let slots: Vec<u32> = self.arena.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.index(slot));
    }

    fn unindex_all(&mut self) {
        // One by one: clearing a table takes time in its capacity, not in its entries.
        let slots: Vec<u32> = self.arena.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.unindex(slot));
        self.indexed = false;
    }

    /// Appends a receive to the index of its class.
    fn index(&mut self, slot: u32) {
        let Some(receive) = self.arena.get_mut(slot) else { return };
        let (from, tag) = (receive.from, receive.tag);
        let shape = Shape::of(from, tag);
        let used = self.classes.iter().position(|class| class.shape == shape);
        let class = used
            .or_else(|| self.classes.iter().position(|class| class.index.is_empty()))
            .or_else(|| {
                (self.classes.len() < CLASSES_MAX).then(|| {
                    self.classes.push(Class { shape, index: Index::new(self.seeds) });
                    self.classes.len() - 1
                })
            });
        match class {
            Some(at) => {
                receive.class = at as u8;
                let class = &mut self.classes[at];
                class.shape = shape;
                class.index.push(&mut self.links, Key::of(from, tag), slot);
            }
            None => {
                receive.class = OTHERS;
                self.others.push(&mut self.links, slot);
            }
        }
    }

    fn unindex(&mut self, slot: u32) {
        let Some(receive) = self.arena.get(slot) else { return };
        match receive.class {
            OTHERS => self.others.remove(&mut self.links, slot),
            class => {
                let key = Key::of(receive.from, receive.tag);
                self.classes[class as usize].index.remove(&mut self.links, key, slot);
            }
        }
    }
}

#[cfg(test)]
impl<P> Posted<P> {
    /// Entries looked at so far.
    pub(super) fn visited(&self) -> u64 {
        self.arena.visited.get()
    }

    /// Everything that storage is held for.
    pub(super) fn footprint(&self) -> usize {
        let keys: usize = self.classes.iter().map(|class| class.index.capacity()).sum();
        self.arena.capacity() + self.links.capacity() + keys
    }
}
