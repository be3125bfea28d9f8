//! Counts of each page's locks, or watches, since the kernel does not count them. No I/O.

use std::{collections::BTreeMap, ops::Range};

use smallvec::{SmallVec, smallvec};

/// Ranges of pages, in order and apart; nearly always one.
pub type Ranges = SmallVec<[Range<usize>; 1]>;

/// Counts by page number. From each key up to the next, all pages have the count at the key; equal
/// neighbours are one. Before the first and from the last on it is 0.
#[derive(Debug, Default)]
pub struct Counts(BTreeMap<usize, u32>);

impl Counts {
    /// Adds one for each of `pages`; returns those that had none.
    pub fn add(&mut self, pages: Range<usize>) -> Ranges {
        let last = self.0.range(..=pages.end).next_back();
        if last.is_none_or(|(&edge, &count)| edge < pages.start && count == 0) && !pages.is_empty()
        {
            // No page there, nor right beside it, has any.
            self.0.insert(pages.start, 1);
            self.0.insert(pages.end, 0);
            return smallvec![pages];
        }
        self.change(pages, |count| count + 1, |before, _| before == 0)
    }

    /// Takes one from each of `pages`, which have one each; returns those that have none now.
    pub fn remove(&mut self, pages: Range<usize>) -> Ranges {
        let mut edges = self.0.range(..=pages.end).map(|(&edge, &count)| (edge, count)).rev();
        let ends = [edges.next(), edges.next()] == [Some((pages.end, 0)), Some((pages.start, 1))];
        if ends && edges.next().is_none_or(|(_, before)| before == 0) {
            // They are all the pages that have any there.
            self.0.remove(&pages.start);
            self.0.remove(&pages.end);
            return smallvec![pages];
        }
        drop(edges);
        self.change(pages, |count| count.saturating_sub(1), |_, after| after == 0)
    }

    /// All pages that have some.
    pub fn all(&self) -> Vec<Range<usize>> {
        let ends = self.0.keys().skip(1);
        let pieces = self.0.iter().zip(ends).filter(|((_, count), _)| **count > 0);
        pieces.map(|((&start, _), &end)| start..end).collect()
    }

    fn change(
        &mut self,
        pages: Range<usize>,
        count: impl Fn(u32) -> u32,
        told: impl Fn(u32, u32) -> bool,
    ) -> Ranges {
        if pages.is_empty() {
            return Ranges::new();
        }
        for edge in [pages.start, pages.end] {
            let at = self.at(edge);
            self.0.entry(edge).or_insert(at);
        }
        let mut found = Ranges::new();
        let mut pieces = self.0.range_mut(pages.clone()).peekable();
        while let Some((&start, value)) = pieces.next() {
            let end = pieces.peek().map_or(pages.end, |(next, _)| **next);
            let before = std::mem::replace(value, count(*value));
            if told(before, *value) {
                match found.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => found.push(start..end),
                }
            }
        }
        for edge in [pages.start, pages.end] {
            let before = self.0.range(..edge).next_back().map_or(0, |(_, &count)| count);
            if self.0.get(&edge) == Some(&before) {
                self.0.remove(&edge);
            }
        }
        found
    }

    fn at(&self, page: usize) -> u32 {
        self.0.range(..=page).next_back().map_or(0, |(_, &count)| count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn pages(ranges: &[Range<usize>]) -> Vec<usize> {
        assert!(ranges.windows(2).all(|two| two[0].end < two[1].start));
        ranges.iter().cloned().flatten().collect()
    }

    proptest! {
        /// Compares the counts with an array.
        #[test]
        fn counts_are_sums(steps in vec((0..30usize, 1..12usize, any::<bool>()), 0..50)) {
            let (mut counts, mut naive, mut held) = (Counts::default(), [0u32; 42], Vec::new());
            for (start, len, add) in steps {
                if add || held.is_empty() {
                    let range = start..start + len;
                    let new: Vec<_> = range.clone().filter(|&page| naive[page] == 0).collect();
                    prop_assert_eq!(pages(&counts.add(range.clone())), new);
                    naive[range.clone()].iter_mut().for_each(|count| *count += 1);
                    held.push(range);
                } else {
                    let range: Range<usize> = held.swap_remove(start % held.len());
                    naive[range.clone()].iter_mut().for_each(|count| *count -= 1);
                    let gone: Vec<_> = range.clone().filter(|&page| naive[page] == 0).collect();
                    prop_assert_eq!(pages(&counts.remove(range)), gone);
                }
                let all = counts.all().into_iter().flatten().collect::<Vec<_>>();
                let wanted: Vec<_> = (0..42).filter(|&page| naive[page] > 0).collect();
                prop_assert_eq!(all, wanted);
            }
            for range in held {
                counts.remove(range);
            }
            prop_assert!(counts.0.is_empty());
        }
    }
}
