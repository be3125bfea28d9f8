//! Messages that came before their receive.
//!
//! Every message is in the arena, and in the index of every *live* class. A class goes live when
//! a receive of its shape scanned too far, and is maintained from then on until the queue is short
//! again or until maintaining it has cost more than building it anew. A message that was claimed
//! keeps its place in the arena, and is in no index.

use super::{
    CLASSES_MAX, KEPT_MAX, SCAN_AGAIN, SCAN_MAX, Source, TagMatch,
    arena::{Arena, NIL, Scan, Ticket},
    index::{Index, Key, Links, Seeds, Shape},
};
use crate::PeerId;

/// A class that was not used for this many messages may be dropped.
const IDLE_MIN: usize = 1024;

struct Message<U> {
    peer: PeerId,
    tag: u64,
    /// The message's number among all that have come. Rises along the arena and along each index.
    arrival: u64,
    /// True if it was claimed: no receive finds it, and it is in no index.
    claimed: bool,
    value: U,
}

struct Class {
    shape: Shape,
    /// True if the index holds every message; false if it holds none.
    live: bool,
    /// Messages indexed since a receive last used the class.
    idle: usize,
    index: Index,
    links: Links,
}

pub(super) struct Unexpected<U> {
    arena: Arena<Message<U>>,
    /// The number of live `classes`.
    live: usize,
    /// At most [`CLASSES_MAX`]. Those that are not live keep their storage.
    classes: Vec<Class>,
    seeds: Seeds,
}

impl<U> Unexpected<U> {
    pub(super) fn new(seeds: Seeds) -> Unexpected<U> {
        Unexpected { arena: Arena::new(), live: 0, classes: Vec::new(), seeds }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    #[inline]
    pub(super) fn push(&mut self, peer: PeerId, tag: u64, arrival: u64, value: U) -> Ticket {
        let ticket = self.arena.push(Message { peer, tag, arrival, claimed: false, value });
        if self.live > 0 {
            self.index(ticket.slot, peer, tag);
        }
        ticket
    }

    /// Adds a message before all that came later. Looks at all that came before it.
    pub(super) fn insert(&mut self, peer: PeerId, tag: u64, arrival: u64, value: U) -> Ticket {
        let later = |(_, it): &(u32, &Message<U>)| it.arrival > arrival;
        let next = self.arena.iter().find(later).map_or(NIL, |(slot, _)| slot);
        let message = Message { peer, tag, arrival, claimed: false, value };
        let ticket = self.arena.insert(message, next);
        self.index_in_place(ticket.slot);
        ticket
    }

    /// Has a message that matches found no more, until it is [put back](Unexpected::unclaim) or
    /// [taken](Unexpected::take_claimed).
    pub(super) fn claim(&mut self, from: Source, tag: TagMatch) -> Option<Ticket> {
        let slot = self.locate(from, tag)?;
        self.unindex(slot);
        self.arena.get_mut(slot)?.claimed = true;
        self.arena.ticket(slot)
    }

    /// Has a message that was claimed found again, in its place.
    pub(super) fn unclaim(&mut self, ticket: Ticket) {
        let Some(slot) = self.arena.slot_of(ticket) else { return };
        let Some(it) = self.arena.get_mut(slot).filter(|it| it.claimed) else { return };
        it.claimed = false;
        self.index_in_place(slot);
    }

    /// A message that was claimed, with its sender, tag and number, removed.
    pub(super) fn take_claimed(&mut self, ticket: Ticket) -> Option<(PeerId, u64, u64, U)> {
        let slot = self.arena.slot_of(ticket)?;
        self.remove_slot(slot).map(|it| (it.peer, it.tag, it.arrival, it.value))
    }

    /// A message that was claimed, with its sender, tag and number.
    pub(super) fn claimed(&self, ticket: Ticket) -> Option<(PeerId, u64, u64, &U)> {
        let it = self.arena.get(self.arena.slot_of(ticket)?)?;
        Some((it.peer, it.tag, it.arrival, &it.value))
    }

    /// Adds a message to every live class, before those that came later.
    fn index_in_place(&mut self, slot: u32) {
        let arena = &self.arena;
        let Some(&Message { peer, tag, arrival, .. }) = arena.get(slot) else { return };
        let later = |slot| arena.get(slot).is_some_and(|it| it.arrival > arrival);
        for class in self.classes.iter_mut().filter(|class| class.live) {
            let key = class.shape.key(peer, tag);
            class.index.insert(&mut class.links, key, slot, later);
        }
    }

    /// The message with its sender, tag and number.
    #[inline]
    pub(super) fn take(&mut self, from: Source, tag: TagMatch) -> Option<(PeerId, u64, u64, U)> {
        let slot = self.locate(from, tag)?;
        self.remove_slot(slot).map(|it| (it.peer, it.tag, it.arrival, it.value))
    }

    pub(super) fn find(&mut self, from: Source, tag: TagMatch) -> Option<(PeerId, u64, &U)> {
        let slot = self.locate(from, tag)?;
        self.arena.get(slot).map(|it| (it.peer, it.tag, &it.value))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut U> {
        let slot = self.arena.slot_of(ticket)?;
        self.arena.get_mut(slot).map(|it| &mut it.value)
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<U> {
        self.remove_slot(self.arena.slot_of(ticket)?).map(|it| it.value)
    }

    pub(super) fn each_of(&mut self, peer: PeerId, mut change: impl FnMut(&mut U)) {
        let slots: Vec<u32> =
            self.arena.iter().filter(|(_, it)| it.peer == peer).map(|(slot, _)| slot).collect();
        for slot in slots {
            if let Some(entry) = self.arena.get_mut(slot) {
                change(&mut entry.value);
            }
        }
    }

    /// The earliest message that matches.
    #[inline]
    fn locate(&mut self, from: Source, tag: TagMatch) -> Option<u32> {
        if self.live > 0 {
            let shape = Shape::of(from, tag);
            let mut live = self.classes.iter_mut().filter(|class| class.live);
            if let Some(class) = live.find(|class| class.shape == shape) {
                self.arena.visit();
                class.idle = 0;
                return class.index.head(Key::of(from, tag));
            }
        }
        let matches = |it: &Message<U>| !it.claimed && tag.matches(it.tag) && from.matches(it.peer);
        match self.arena.scan(SCAN_MAX, matches) {
            Scan::Found(slot) => Some(slot),
            Scan::Nowhere => None,
            Scan::TooFar => match self.build(Shape::of(from, tag)) {
                Some(class) => self.classes[class].index.head(Key::of(from, tag)),
                None => self.arena.iter().find(|(_, it)| matches(it)).map(|(slot, _)| slot),
            },
        }
    }

    /// Indexes every message by `shape`; `None` if there are classes enough, all of them in use.
    #[cold]
    fn build(&mut self, shape: Shape) -> Option<usize> {
        let at = self.room_for(shape)?;
        let class = &mut self.classes[at];
        class.shape = shape;
        class.live = true;
        class.idle = 0;
        for (slot, it) in self.arena.iter().filter(|(_, it)| !it.claimed) {
            class.index.push(&mut class.links, shape.key(it.peer, it.tag), slot);
        }
        self.live += 1;
        Some(at)
    }

    /// A class that is not live, preferably the one that had `shape` before.
    fn room_for(&mut self, shape: Shape) -> Option<usize> {
        let parked = |class: &Class| !class.live;
        if let Some(at) = self.classes.iter().position(|it| parked(it) && it.shape == shape) {
            return Some(at);
        }
        let fresh = Class {
            shape,
            live: false,
            idle: 0,
            index: Index::new(self.seeds),
            links: Links::default(),
        };
        if self.classes.len() < CLASSES_MAX {
            self.classes.push(fresh);
            return Some(self.classes.len() - 1);
        }
        if let Some(at) = self.classes.iter().position(parked) {
            return Some(at);
        }
        // Building costs one step for each message, so the class to go must have cost as much since
        // its last use.
        let len = self.arena.len();
        let at = (0..self.classes.len()).max_by_key(|&at| self.classes[at].idle)?;
        (self.classes[at].idle >= len.max(IDLE_MIN)).then(|| {
            self.classes[at] = fresh;
            self.live -= 1;
            at
        })
    }

    /// Appends a message to every live class, and drops classes that cost more than they give.
    fn index(&mut self, slot: u32, peer: PeerId, tag: u64) {
        let idle_max = IDLE_MIN.max(2 * self.arena.len());
        let mut stale = false;
        for class in self.classes.iter_mut().filter(|class| class.live) {
            class.index.push(&mut class.links, class.shape.key(peer, tag), slot);
            class.idle += 1;
            stale |= class.idle > idle_max;
        }
        if stale {
            self.classes.retain(|class| !class.live || class.idle <= idle_max);
            self.live = self.classes.iter().filter(|class| class.live).count();
        }
    }

    fn unindex(&mut self, slot: u32) {
        let Some(it) = self.arena.get(slot).filter(|it| !it.claimed) else { return };
        for class in self.classes.iter_mut().filter(|class| class.live) {
            class.index.remove(&mut class.links, class.shape.key(it.peer, it.tag), slot);
        }
    }

    #[inline]
    fn remove_slot(&mut self, slot: u32) -> Option<Message<U>> {
        if self.live > 0 {
            self.unindex(slot);
        }
        let message = self.arena.remove(slot)?;
        if self.live > 0 && self.arena.len() <= SCAN_AGAIN {
            self.park();
        }
        if self.arena.len() == 0 && self.arena.capacity() > KEPT_MAX {
            self.arena.release();
            self.classes = Vec::new();
        }
        Some(message)
    }

    /// Empties every class; few messages are left.
    fn park(&mut self) {
        // One by one: clearing a table takes time in its capacity, not in its entries.
        let slots: Vec<u32> = self.arena.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.unindex(slot));
        self.classes.iter_mut().for_each(|class| class.live = false);
        self.live = 0;
    }
}

#[cfg(test)]
impl<U> Unexpected<U> {
    /// Entries looked at so far.
    pub(super) fn visited(&self) -> u64 {
        self.arena.visited.get()
    }

    /// Everything that storage is held for.
    pub(super) fn footprint(&self) -> usize {
        let classes = self.classes.iter();
        let indexed: usize = classes.map(|it| it.index.capacity() + it.links.capacity()).sum();
        self.arena.capacity() + indexed
    }
}
