//! The memory that is watched and private, so that the kernel need not be asked again. No I/O.
//!
//! Memory that was kept stays watched when it is evicted, for to watch it anew takes five times as
//! long as to pin it; up to a bound, since each range may split mappings. The code that adds a
//! range makes sure that no event has told of it since its facts were read; a range that an event
//! tells of is cut out.

use std::collections::BTreeMap;

/// Sets of addresses: from the first to behind the last.
#[derive(Debug, Default)]
pub(super) struct Watchlist {
    /// The ends of the ranges, by their starts; no two ranges touch.
    ranges: BTreeMap<u64, u64>,
}

impl Watchlist {
    /// Separate ranges.
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns whether all of the range is in the list.
    pub(super) fn has(&self, start: u64, end: u64) -> bool {
        let before = self.ranges.range(..=start).next_back();
        before.is_some_and(|(_, last)| end <= *last)
    }

    /// Puts a range in.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        // Those that touch it, from the last on.
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back()
            && last >= start
        {
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        if start < end {
            self.ranges.insert(start, end);
        }
    }

    /// Takes a range out.
    pub(super) fn cut(&mut self, start: u64, end: u64) {
        while let Some((&first, &last)) = self.ranges.range(..end).next_back()
            && last > start
        {
            self.ranges.remove(&first);
            if last > end {
                self.ranges.insert(end, last);
            }
            if first < start {
                self.ranges.insert(first, start);
            }
        }
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// Against an array.
        #[test]
        fn ranges_are_sets(steps in vec((any::<bool>(), 0..40u64, 0..14u64), 0..60)) {
            let (mut list, mut naive) = (Watchlist::default(), [false; 64]);
            for (add, start, len) in steps {
                let range = start as usize..(start + len) as usize;
                naive[range].fill(add);
                if add {
                    list.add(start, start + len);
                } else if len > 0 {
                    list.cut(start, start + len);
                }
                for from in 0..60u64 {
                    for to in [from + 1, from + 3] {
                        let all = naive[from as usize..to as usize].iter().all(|it| *it);
                        prop_assert_eq!(list.has(from, to), all);
                    }
                }
                let count = naive.windows(2).filter(|two| !two[0] && two[1]).count();
                prop_assert_eq!(list.len(), count + usize::from(naive[0]));
            }
            list.clear();
            prop_assert!(!list.has(0, 1) && list.len() == 0);
        }
    }
}
