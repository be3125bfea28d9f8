//! Memory that is given and given back in order: counted, where a descriptor each would cost a hop
//! between cores. Both sides' accounts; no I/O.
//!
//! The sender numbers what it gives without wanting to hear of its end. The receiver counts how many
//! of the first numbers it is done with, and says so in a word that the sender looks at when it gives
//! more, or now and then. What ends out of order is reported by a descriptor, as other messages are;
//! the count passes its number later.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

/// Given memory that a sender has out before it looks for the count after each donated buffer.
const LOOK_FROM: usize = 16;

/// In a stream's number: it stands for a counted donated buffer, whose number has these as its
/// other bits.
const COUNTED: u32 = 1 << 31;

/// The sender's account of donated buffers, each with what is kept of it until it has ended.
#[derive(Debug)]
pub(crate) struct Given<T> {
    /// Those after the first `done` numbers, in order.
    out: VecDeque<T>,
    done: u64,
}

impl<T> Default for Given<T> {
    fn default() -> Given<T> {
        Given { out: VecDeque::new(), done: 0 }
    }
}

impl<T> Given<T> {
    /// The number of the donated buffer that goes next; never 0.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.done + self.out.len() as u64 + 1
    }

    /// That donated buffer is out.
    #[inline]
    pub(crate) fn add(&mut self, donation: T) {
        self.out.push_back(donation);
    }

    /// Whether so much is out that the count is worth a look.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.out.len() >= LOOK_FROM
    }

    /// Those that are out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.out.iter()
    }

    /// Whether a count of `count` ends any.
    pub(crate) fn is_ended_by(&self, count: u64) -> bool {
        !self.out.is_empty() && count > self.done
    }

    /// How many are out.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing is out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// The next donated buffer that a count of `count` ends. A count beyond what was given ends
    /// that.
    #[inline]
    pub(crate) fn pop(&mut self, count: u64) -> Option<T> {
        if self.done >= count {
            return None;
        }
        let donation = self.out.pop_front()?;
        self.done += 1;
        Some(donation)
    }

    /// The donated buffer that is out as stream `sid`.
    pub(crate) fn at_mut(&mut self, sid: u32) -> Option<&mut T> {
        let place = sid.wrapping_sub(stream(self.done + 1)) & !COUNTED;
        self.out.get_mut(place as usize)
    }

    /// Whether a donated buffer that was out as stream `sid` has been ended by the count, not long
    /// ago.
    pub(crate) fn has_ended(&self, sid: u32) -> bool {
        let ago = stream(self.done).wrapping_sub(sid) & !COUNTED;
        u64::from(ago) < self.done.min(u64::from(COUNTED / 2))
    }
}

/// The stream as which donated buffer `number` goes. No two that are out have the same.
#[inline]
pub(crate) fn stream(number: u64) -> u32 {
    number as u32 | COUNTED
}

/// Whether a stream's number stands for a counted donated buffer.
pub(crate) fn is_counted(sid: u32) -> bool {
    sid & COUNTED != 0
}

/// The receiver's account.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// It is done with all numbers up to this.
    count: u64,
    /// Numbers beyond that it is done with.
    ahead: BTreeSet<u64>,
    /// Numbers of messages, by stream, that are taken otherwise than by looking at them.
    others: FxHashMap<u32, u64>,
}

impl Returns {
    /// All numbers up to this are done with.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the end of `number` is all that the count waits for.
    #[inline(always)]
    pub(crate) fn is_next(&self, number: u64) -> bool {
        number == self.count + 1 && self.ahead.is_empty()
    }

    /// It is done with `number`. Whether the count says so; if not, the sender has to be told.
    #[inline]
    pub(crate) fn end(&mut self, number: u64) -> bool {
        if number != self.count + 1 {
            self.end_later(number);
            return false;
        }
        self.count = number;
        if !self.ahead.is_empty() {
            self.catch_up();
        }
        true
    }

    #[cold]
    fn end_later(&mut self, number: u64) {
        if number > self.count {
            self.ahead.insert(number);
        }
    }

    /// Counts what it was done with before its turn.
    #[cold]
    fn catch_up(&mut self) {
        while self.ahead.remove(&(self.count + 1)) {
            self.count += 1;
        }
    }

    /// Message `number` is copied, as stream `sid`; its end will be reported as that of any other.
    pub(crate) fn copies(&mut self, sid: u32, number: u64) {
        self.others.insert(sid, number);
    }

    /// Stream `sid` has ended, and its sender was told. Whether the count has changed.
    #[inline]
    pub(crate) fn ended(&mut self, sid: u32) -> bool {
        !self.others.is_empty() && self.others.remove(&sid).is_some_and(|number| self.end(number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order of ends, each donated buffer ends once: by the count or by a word of
        /// its own.
        #[test]
        fn each_ends_once(order in Just((0..40u64).collect::<Vec<_>>()).prop_shuffle()) {
            let (mut given, mut returns) = (Given::default(), Returns::default());
            for index in 0..40 {
                prop_assert_eq!(given.next(), u64::from(index) + 1);
                given.add(index);
            }
            let mut told = BTreeSet::new();
            let mut counted = BTreeSet::new();
            for (turn, index) in order.into_iter().enumerate() {
                let number = index + 1;
                let by_count = if index % 3 == 0 {
                    returns.copies(index as u32, number);
                    prop_assert!(!returns.ended(1000));
                    returns.ended(index as u32)
                } else {
                    returns.end(number)
                };
                if !by_count {
                    told.insert(index as u32);
                }
                if turn % 4 == 0 {
                    while let Some(donation) = given.pop(returns.count()) {
                        counted.insert(donation);
                    }
                    for index in 0..40u32 {
                        let sid = stream(u64::from(index) + 1);
                        let out = !counted.contains(&index);
                        prop_assert_eq!(given.at_mut(sid).copied(), out.then_some(index));
                        prop_assert_eq!(given.has_ended(sid), !out);
                    }
                }
            }
            while let Some(donation) = given.pop(u64::MAX) {
                counted.insert(donation);
            }
            prop_assert_eq!(returns.count(), 40);
            prop_assert!(returns.ahead.is_empty() && returns.others.is_empty());
            prop_assert_eq!(counted.len(), 40);
            prop_assert!(told.is_subset(&counted));
        }
    }

    #[test]
    fn streams_are_told_apart_beyond_what_fits() {
        let far = (1 << 40) - 3;
        let mut given = Given { out: VecDeque::from([1, 2, 3, 4, 5]), done: far };
        for (place, donation) in (1..=5).enumerate() {
            let sid = stream(far + 1 + place as u64);
            assert!(is_counted(sid) && !given.has_ended(sid));
            assert_eq!(given.at_mut(sid), Some(&mut donation.clone()));
        }
        for number in [far, far - 1, far - 1000] {
            assert!(given.at_mut(stream(number)).is_none() && given.has_ended(stream(number)));
        }
        for number in [far + 6, far + 1000] {
            assert!(given.at_mut(stream(number)).is_none() && !given.has_ended(stream(number)));
        }
        let mut none = Given::<u8>::default();
        assert!(none.at_mut(stream(1)).is_none() && !none.has_ended(stream(0)));
        assert!(!none.has_ended(stream(1)) && !none.has_ended(u32::MAX));
    }

    #[test]
    fn numbers_that_come_twice_change_nothing() {
        let mut returns = Returns::default();
        assert!(returns.end(1) && !returns.end(1) && !returns.end(3) && !returns.end(3));
        assert!(returns.end(2));
        assert_eq!(returns.count(), 3);
        // Nor is anything kept of them.
        assert!(!returns.end(1) && !returns.end(3) && returns.ahead.is_empty());
    }
}
