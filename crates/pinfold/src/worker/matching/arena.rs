//! Entries in order of insertion, each found again by its slot.
//!
//! Accounting: the slots are the occupied ones, linked from `head` to `tail`, and the free ones,
//! linked from `free`; nothing else. Sequence numbers rise from `head` to `tail` as long as entries
//! are only appended.

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// Names one entry for ever: sequence numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket {
    /// The slot of the entry while it is there.
    pub(super) slot: u32,
    seq: u64,
}

struct Slot<T> {
    seq: u64,
    prev: u32,
    next: u32,
    value: Option<T>,
}

/// How a scan of limited length ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The first match is in this slot.
    Found(u32),
    /// No entry matches.
    Nowhere,
    /// The entries looked at do not match, and there are more.
    TooFar,
}

/// A slab of entries that remembers their order.
pub(super) struct Arena<T> {
    len: usize,
    head: u32,
    tail: u32,
    free: u32,
    seq: u64,
    slots: Vec<Slot<T>>,
    /// Entries that lookups looked at.
    #[cfg(test)]
    pub(super) visited: std::cell::Cell<u64>,
}

impl<T> Arena<T> {
    pub(super) fn new() -> Arena<T> {
        Arena {
            len: 0,
            head: NIL,
            tail: NIL,
            free: NIL,
            seq: 0,
            slots: Vec::new(),
            #[cfg(test)]
            visited: Default::default(),
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Slots that storage is held for.
    pub(super) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Appends an entry.
    #[inline]
    pub(super) fn push(&mut self, value: T) -> Ticket {
        self.insert(value, NIL)
    }

    /// Adds an entry before the one in slot `next`; [`NIL`] appends it.
    #[inline]
    pub(super) fn insert(&mut self, value: T, next: u32) -> Ticket {
        let seq = self.seq;
        self.seq += 1;
        let prev = match next {
            NIL => self.tail,
            next => self.slots[next as usize].prev,
        };
        let entry = Slot { seq, prev, next, value: Some(value) };
        let slot = if self.free == NIL {
            let slot = self.slots.len() as u32;
            assert!(slot != NIL, "2^32 - 1 entries");
            self.slots.push(entry);
            slot
        } else {
            let slot = self.free;
            self.free = self.slots[slot as usize].next;
            self.slots[slot as usize] = entry;
            slot
        };
        match prev {
            NIL => self.head = slot,
            prev => self.slots[prev as usize].next = slot,
        }
        match next {
            NIL => self.tail = slot,
            next => self.slots[next as usize].prev = slot,
        }
        self.len += 1;
        Ticket { slot, seq }
    }

    /// Removes the entry in `slot`; `None` if the slot is free.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.slots.get_mut(slot as usize)?;
        let value = entry.value.take()?;
        let (prev, next) = (entry.prev, entry.next);
        entry.next = self.free;
        self.free = slot;
        match prev {
            NIL => self.head = next,
            prev => self.slots[prev as usize].next = next,
        }
        match next {
            NIL => self.tail = prev,
            next => self.slots[next as usize].prev = prev,
        }
        self.len -= 1;
        Some(value)
    }

    /// Gives the storage back. Only for an empty arena; sequence numbers go on.
    pub(super) fn release(&mut self) {
        debug_assert_eq!(self.len, 0);
        self.slots = Vec::new();
        self.free = NIL;
    }

    /// The slot of the entry that `ticket` names, if it is still here.
    #[inline]
    pub(super) fn slot_of(&self, ticket: Ticket) -> Option<u32> {
        let entry = self.slots.get(ticket.slot as usize)?;
        (entry.seq == ticket.seq && entry.value.is_some()).then_some(ticket.slot)
    }

    /// The name of the entry in `slot`, if there is one.
    pub(super) fn ticket(&self, slot: u32) -> Option<Ticket> {
        let entry = self.slots.get(slot as usize).filter(|entry| entry.value.is_some())?;
        Some(Ticket { slot, seq: entry.seq })
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// The place of the entry in `slot` in the order of insertion.
    #[inline]
    pub(super) fn seq(&self, slot: u32) -> u64 {
        self.slots[slot as usize].seq
    }

    /// Every occupied slot with its entry, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut at = self.head;
        std::iter::from_fn(move || {
            let entry = self.slots.get(at as usize)?;
            let slot = std::mem::replace(&mut at, entry.next);
            self.visit();
            Some((slot, entry.value.as_ref()?))
        })
    }

    /// Looks for the first entry that `matches` among the first `limit`.
    #[inline]
    pub(super) fn scan(&self, limit: usize, mut matches: impl FnMut(&T) -> bool) -> Scan {
        for (looked, (slot, entry)) in self.iter().enumerate() {
            if looked == limit {
                return Scan::TooFar;
            }
            if matches(entry) {
                return Scan::Found(slot);
            }
        }
        Scan::Nowhere
    }

    /// Counts an entry that was looked at; only tests do.
    #[inline]
    pub(super) fn visit(&self) {
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
    }
}
