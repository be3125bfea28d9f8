//! Destinations of recorded copies that are used again before they leave the caches.

use std::collections::HashMap;

use super::hierarchy::{Hierarchy, LINE, Place};
use crate::trace::replay::Copied;

/// The knowledge of a copy's destination, once the trace is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// Lines of the block.
    pub lines: u64,
    /// Lines that a later copy read or wrote while they were in the caches.
    pub used: u64,
}

impl Again {
    /// Returns whether more than half of the block was used again.
    pub fn is_used(self) -> bool {
        2 * self.used > self.lines
    }
}

/// Sends copies through the caches, line by line, and watches their destinations: for each copy
/// how much of its destination later copies used again. Nothing else that programs do is seen.
pub fn watch(caches: &mut Hierarchy, copies: &[Copied]) -> Vec<Again> {
    let mut all = vec![Again::default(); copies.len()];
    // The copy that a line is the destination of, until it is used again.
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for (at, copy) in copies.iter().enumerate() {
        let [from, to] = copy.places.map(|place| place / LINE * LINE);
        let lines = copy.bytes.div_ceil(LINE);
        all[at].lines = lines;
        for line in 0..lines {
            for (first, writes) in [(from, false), (to, true)] {
                let address = first + line * LINE;
                let moves = caches.access(address, writes);
                if let Some(owner) = owners.remove(&address)
                    && moves.from != Place::Memory
                {
                    all[owner].used += 1;
                }
                if writes {
                    owners.insert(address, at);
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::hierarchy::Sharing;

    fn copy(from: u64, to: u64, bytes: u64) -> Copied {
        Copied { places: [from, to], bytes }
    }

    fn used(copies: &[Copied]) -> Vec<u64> {
        // 64 and 1,024 lines.
        let mut caches = Hierarchy::new((4 << 10, 2), (64 << 10, 16), Sharing::Exclusive);
        watch(&mut caches, copies).iter().map(|it| it.used).collect()
    }

    #[test]
    fn what_is_read_or_overwritten_soon_was_used_again() {
        const FAR: u64 = 1 << 20;
        // The second reads half of the first's destination, the third overwrites the second's.
        let all = [copy(0, FAR, 1024), copy(FAR, 2 * FAR, 512), copy(4096, 2 * FAR, 512)];
        assert_eq!(used(&all), [8, 8, 0]);
        // A copy of more than the caches hold comes between.
        let all = [copy(0, FAR, 1024), copy(8 * FAR, 16 * FAR, 256 << 10), copy(FAR, 0, 1024)];
        assert_eq!(used(&all)[0], 0);
        assert!(Again { lines: 3, used: 2 }.is_used() && !Again { lines: 4, used: 2 }.is_used());
    }

    #[test]
    fn a_line_counts_once() {
        const FAR: u64 = 1 << 20;
        let all = [copy(0, FAR, 64), copy(FAR, 2 * FAR, 64), copy(FAR, 3 * FAR, 64)];
        assert_eq!(used(&all), [1, 0, 0]);
    }
}
