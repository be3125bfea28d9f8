//! A ring of descriptors between a driver and an adapter (section 3.1: free descriptors, transmit
//! list, transmit complete list).
//!
//! Invariant: `completed <= taken <= posted <= completed + slots.len()`, as counts that only grow.

/// A ring.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    slots: Vec<Option<T>>,
    posted: u64,
    taken: u64,
    completed: u64,
}

impl<T> Ring<T> {
    /// An empty ring of so many descriptors, one at least.
    pub fn new(descriptors: usize) -> Ring<T> {
        let slots = (0..descriptors.max(1)).map(|_| None).collect();
        Ring { slots, posted: 0, taken: 0, completed: 0 }
    }

    /// Returns whether a descriptor is free.
    pub fn has_room(&self) -> bool {
        self.posted - self.completed < self.slots.len() as u64
    }

    /// Posts a descriptor; returns false if none is free.
    pub fn post(&mut self, frame: T) -> bool {
        let has_room = self.has_room();
        if has_room {
            let at = self.slot(self.posted);
            self.slots[at] = Some(frame);
            self.posted += 1;
        }
        has_room
    }

    /// Takes the oldest descriptor that was posted and not taken.
    pub fn take(&mut self) -> Option<T> {
        if self.taken == self.posted {
            return None;
        }
        let at = self.slot(self.taken);
        self.taken += 1;
        self.slots[at].take()
    }

    /// The oldest descriptor that was taken is done with, and free; returns false if there is none.
    pub fn complete(&mut self) -> bool {
        let is_there = self.completed < self.taken;
        self.completed += u64::from(is_there);
        is_there
    }

    fn slot(&self, count: u64) -> usize {
        (count % self.slots.len() as u64) as usize
    }
}
