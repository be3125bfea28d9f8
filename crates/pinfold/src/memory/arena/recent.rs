//! Small buffers that were dropped a moment ago, to be handed out again as they are.
//!
//! Plain state. Programs drop a buffer and want one of the same size next; finding that one takes a
//! few instructions where splitting and joining ranges takes dozens. Blocks in here are in use as
//! far as their extent is concerned, and have memory. There is one for each of some sizes, and
//! none is so long that it matters to memory: 4 MiB together at most.

/// Longer blocks are not kept.
const UNITS_MAX: u32 = 1024;
const BITS: u32 = 6;

#[derive(Clone, Copy, Debug)]
struct Entry<B> {
    units: u32,
    block: B,
}

/// Blocks `B` by their length.
#[derive(Debug)]
pub(crate) struct Recent<B> {
    entries: [Option<Entry<B>>; 1 << BITS],
}

impl<B: Copy> Default for Recent<B> {
    fn default() -> Recent<B> {
        Recent { entries: [None; 1 << BITS] }
    }
}

/// The place of blocks of a length.
#[inline]
fn index(units: u32) -> usize {
    // The golden ratio spreads powers of two and multiples alike.
    (units.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}

impl<B: Copy> Recent<B> {
    /// The block of exactly `units` units, if there is one and it is `fit`.
    #[inline]
    pub(crate) fn take(&mut self, units: u32, fit: impl FnOnce(&B) -> bool) -> Option<B> {
        let entry = &mut self.entries[index(units)];
        let found = entry.as_ref().is_some_and(|entry| entry.units == units && fit(&entry.block));
        if found { entry.take().map(|entry| entry.block) } else { None }
    }

    /// Keeps a block. Returns the block that has to go for it, or the block itself if it is too
    /// long.
    #[inline]
    pub(crate) fn put(&mut self, units: u32, block: B) -> Option<B> {
        if units > UNITS_MAX {
            return Some(block);
        }
        self.entries[index(units)].replace(Entry { units, block }).map(|entry| entry.block)
    }

    /// Takes all out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = B> + use<B> {
        std::mem::take(self).entries.into_iter().flatten().map(|entry| entry.block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_length_comes_back() {
        let mut recent = Recent::default();
        assert_eq!(recent.take(64, |_| true), None);
        assert_eq!(recent.put(64, 'a'), None);
        assert_eq!(recent.take(65, |_| true), None);
        assert_eq!(recent.take(64, |_| false), None);
        assert_eq!(recent.put(64, 'b'), Some('a'));
        assert_eq!(recent.take(64, |block| *block == 'b'), Some('b'));
        assert_eq!(recent.take(64, |_| true), None);
        assert_eq!(recent.put(UNITS_MAX + 1, 'c'), Some('c'));
        assert_eq!(recent.drain().count(), 0);
        for units in 1..=UNITS_MAX {
            recent.put(units, 'd');
        }
        assert_eq!(recent.drain().count(), 1 << BITS);
        assert_eq!(recent.drain().count(), 0);
    }

    #[test]
    fn usual_lengths_do_not_meet() {
        let mut all: Vec<usize> = (0..=10).map(|bit| index(1 << bit)).collect();
        all.sort();
        all.dedup();
        assert!(all.len() >= 10, "{all:?}");
    }
}
