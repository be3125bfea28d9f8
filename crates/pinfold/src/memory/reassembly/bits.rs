//! Bits in words of 64, searched word by word; and sets with the lowest member found at once.
//!
//! Bit 0 is the lowest of the first word. (The paper's words are of 32, highest first.)

/// The first bit of `from..end` that is set (or, if not `set`, clear).
#[inline]
pub(super) fn first(words: &[u64], from: u32, end: u32, set: bool) -> Option<u32> {
    let flip = if set { 0 } else { u64::MAX };
    let mut at = from;
    while at < end {
        let word = (words[at as usize / 64] ^ flip) >> (at % 64);
        if word != 0 {
            return Some(at + word.trailing_zeros()).filter(|at| *at < end);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// The last bit of `from..end` that is set.
#[inline]
pub(super) fn last_set(words: &[u64], from: u32, end: u32) -> Option<u32> {
    let mut end = end;
    while from < end {
        let top = end - 1;
        let word = words[top as usize / 64] << (63 - top % 64);
        if word != 0 {
            return Some(top - word.leading_zeros()).filter(|at| *at >= from);
        }
        end = top / 64 * 64;
    }
    None
}

/// Sets or clears `from..end`.
#[inline]
pub(super) fn fill(words: &mut [u64], from: u32, end: u32, set: bool) {
    let mut at = from;
    while at < end {
        let stop = end.min((at / 64 + 1) * 64);
        let mask = (u64::MAX >> (64 - (stop - at))) << (at % 64);
        let word = &mut words[at as usize / 64];
        *word = if set { *word | mask } else { *word & !mask };
        at = stop;
    }
}

/// The longest run of clear bits below `end` that begins at a multiple of `align`.
pub(super) fn longest_clear(words: &[u64], end: u32, align: u32) -> u32 {
    let (mut at, mut longest) = (0, 0);
    while let Some(start) = first(words, at, end, false) {
        at = first(words, start, end, true).unwrap_or(end);
        let start = u64::from(start).next_multiple_of(u64::from(align));
        longest = longest.max(u64::from(at).saturating_sub(start) as u32);
    }
    longest
}

/// The work of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Free pages that a run could have begun with: turns of the outer loop.
    pub candidates: u64,
    /// Words of 64 pages that were searched for the end of such a run: the inner loop.
    pub words: u64,
}

/// The end of a possible run that the search for contiguity looks at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inner {
    /// The beginning, as in the paper: every change from free to taken is met.
    Forward,
    /// The end: pages before the last one that is taken need not be looked at.
    #[default]
    Backward,
}

/// The first run of `len` clear bits within `from..end` that begins at a multiple of `align`, a
/// power of two. `len` is at least 1.
#[inline]
pub(super) fn find_clear(
    words: &[u64],
    (from, end): (u32, u32),
    (len, align): (u32, u32),
    inner: Inner,
    work: &mut Work,
) -> Option<u32> {
    let mut at = from;
    loop {
        let start = first(words, at, end, false)?;
        let start = start.checked_next_multiple_of(align)?;
        let stop = start.checked_add(len).filter(|stop| *stop <= end)?;
        work.candidates += 1;
        let taken = match inner {
            Inner::Forward => first(words, start, stop, true),
            Inner::Backward => last_set(words, start, stop),
        };
        let looked = match (taken, inner) {
            (Some(taken), Inner::Forward) => taken / 64 - start / 64,
            (Some(taken), Inner::Backward) => (stop - 1) / 64 - taken / 64,
            (None, _) => (stop - 1) / 64 - start / 64,
        };
        work.words += u64::from(looked) + 1;
        match taken {
            None => return Some(start),
            Some(taken) => at = taken + 1,
        }
    }
}

/// A set of numbers below a bound. The lowest is found by one look at each of `levels` words: two
/// up to 4,096 numbers, three up to 262,144.
///
/// Invariant: a bit of a higher level is set if and only if its word of the level below is not 0.
#[derive(Clone, Debug)]
pub(super) struct Set {
    levels: Vec<Box<[u64]>>,
    bound: u32,
}

impl Set {
    /// The empty set of numbers below `bound`.
    pub(super) fn new(bound: u32) -> Set {
        let mut levels = Vec::new();
        let mut bits = bound.max(1) as usize;
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                return Set { levels, bound };
            }
            bits = words;
        }
    }

    #[inline]
    pub(super) fn contains(&self, at: u32) -> bool {
        at < self.bound && self.levels[0][at as usize / 64] >> (at % 64) & 1 == 1
    }

    #[inline]
    pub(super) fn insert(&mut self, at: u32) {
        let mut at = at as usize;
        for level in &mut self.levels {
            let had = level[at / 64];
            level[at / 64] = had | 1 << (at % 64);
            if had != 0 {
                return;
            }
            at /= 64;
        }
    }

    #[inline]
    pub(super) fn remove(&mut self, at: u32) {
        let mut at = at as usize;
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The lowest number in it.
    #[inline]
    pub(super) fn lowest(&self) -> Option<u32> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + word.trailing_zeros() as usize;
        }
        Some(at as u32)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.last().is_none_or(|top| top[0] == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn words(plain: &[bool]) -> Vec<u64> {
        let mut words = vec![0; plain.len().div_ceil(64)];
        for (at, set) in plain.iter().enumerate() {
            words[at / 64] |= u64::from(*set) << (at % 64);
        }
        words
    }

    /// Bits in stretches of random lengths, so that words are full, empty and mixed.
    fn stretches() -> impl Strategy<Value = Vec<bool>> {
        proptest::collection::vec((any::<bool>(), 1usize..150), 1..12).prop_map(|parts| {
            parts.into_iter().flat_map(|(set, len)| std::iter::repeat_n(set, len)).collect()
        })
    }

    proptest! {
        #[test]
        fn words_are_as_bits(plain in stretches(), a in any::<u32>(), b in any::<u32>()) {
            let len = plain.len() as u32;
            let (a, b) = (a % (len + 1), b % (len + 1));
            let (from, end) = (a.min(b), a.max(b));
            let mut all = words(&plain);
            for set in [false, true] {
                let found = (from..end).find(|at| plain[*at as usize] == set);
                prop_assert_eq!(first(&all, from, end, set), found);
            }
            let found = (from..end).rev().find(|at| plain[*at as usize]);
            prop_assert_eq!(last_set(&all, from, end), found);
            for set in [false, true] {
                let mut plain = plain.clone();
                plain[from as usize..end as usize].fill(set);
                fill(&mut all, from, end, set);
                prop_assert_eq!(&all, &words(&plain));
            }
        }

        #[test]
        fn runs_are_found(
            plain in stretches(),
            a in any::<u32>(),
            len in 1u32..200,
            shift in 0u32..9,
        ) {
            let (end, align) = (plain.len() as u32, 1 << shift);
            let from = a % (end + 1);
            let clear = |at: u32, len: u32| {
                at + len <= end && !plain[at as usize..(at + len) as usize].contains(&true)
            };
            let found = (from..end).find(|at| at % align == 0 && clear(*at, len));
            let all = words(&plain);
            let mut work = [Work::default(); 2];
            for (inner, work) in [Inner::Forward, Inner::Backward].into_iter().zip(&mut work) {
                let got = find_clear(&all, (from, end), (len, align), inner, work);
                prop_assert_eq!(got, found);
            }
            prop_assert!(work[1].candidates <= work[0].candidates);
            let longest = (0..end)
                .filter(|at| at % align == 0)
                .map(|at| plain[at as usize..].iter().take_while(|set| !**set).count() as u32)
                .max();
            prop_assert_eq!(longest_clear(&all, end, align), longest.unwrap_or(0));
        }

        #[test]
        fn sets_are_sets(
            bound in prop_oneof![1u32..200, 4000u32..5000, 262_000u32..263_000],
            steps in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..100),
        ) {
            let (mut set, mut plain) = (Set::new(bound), BTreeSet::new());
            for (at, insert) in steps {
                // Few enough that some are met again, and some at the end.
                let at = if at % 2 == 0 { at % bound % 50 } else { bound - 1 - at % bound % 9 };
                if insert { set.insert(at) } else { set.remove(at) }
                if insert { plain.insert(at); } else { plain.remove(&at); }
                prop_assert_eq!(set.lowest(), plain.first().copied());
                prop_assert_eq!(set.is_empty(), plain.is_empty());
                prop_assert_eq!(set.contains(at), insert);
            }
            prop_assert!(!set.contains(bound));
        }
    }
}
