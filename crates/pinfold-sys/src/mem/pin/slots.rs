//! The free slots of a table. No I/O.

/// Slots below `room`; those freed last are used first.
#[derive(Debug)]
pub(super) struct Slots {
    free: Vec<u32>,
    next: u32,
    room: u32,
}

impl Slots {
    pub(super) fn new(room: u32) -> Slots {
        Slots { free: Vec::new(), next: 0, room }
    }

    pub(super) fn room(&self) -> u32 {
        self.room
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let next = self.next;
            (next < self.room).then(|| self.next += 1).map(|()| next)
        })
    }

    /// Gives back one that was taken.
    pub(super) fn put(&mut self, slot: u32) {
        debug_assert!(slot < self.next && !self.free.contains(&slot));
        self.free.push(slot);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        #[test]
        fn no_slot_is_taken_twice(steps in vec(any::<Option<usize>>(), 0..60)) {
            let (mut slots, mut taken) = (Slots::new(7), BTreeSet::new());
            for step in steps {
                match step {
                    Some(which) if !taken.is_empty() => {
                        let slot = *taken.iter().nth(which % taken.len()).unwrap();
                        taken.remove(&slot);
                        slots.put(slot);
                    }
                    _ => match slots.take() {
                        Some(slot) => prop_assert!(slot < 7 && taken.insert(slot)),
                        None => prop_assert_eq!(taken.len(), 7),
                    },
                }
            }
        }
    }
}
