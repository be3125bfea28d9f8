//! Values under keys that are never used again.

/// The name of one value; stale when that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// Things by their keys. All operations take constant time.
pub(super) struct Slots<T> {
    slots: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    pub(super) const fn new() -> Slots<T> {
        Slots { slots: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, thing: T) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        *slot = Some(thing);
        Key { index, generation: *generation }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, thing) = self.slots.get_mut(key.index as usize)?;
        thing.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(key.index as usize)?;
        if *generation != key.generation {
            return None;
        }
        let thing = slot.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.index);
        Some(thing)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, (generation, thing))| {
            Some((Key { index: index as u32, generation: *generation }, thing.as_mut()?))
        })
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
