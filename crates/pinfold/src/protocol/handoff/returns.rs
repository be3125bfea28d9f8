//! Both sides' accounts of memory that is given and given back in order: returns are counted, since
//! a descriptor each would cost a hop between cores. No I/O.
//!
//! The sender numbers the buffers that it gives without waiting for their ends. The receiver counts
//! how many of the first numbers it has finished with, and stores the count in a word that the
//! sender reads when it gives more, or now and then. A buffer that ends out of order is reported by
//! a descriptor, as other messages are; the count passes its number later.

use std::collections::{BTreeSet, VecDeque};

use rustc_hash::FxHashMap;

/// Number of given buffers that a sender has out before it reads the count after each donated
/// buffer.
const LOOK_FROM: usize = 16;

/// Bit of a stream's number that marks a counted donated buffer, whose number is in the other bits.
const COUNTED: u32 = 1 << 31;

/// The sender's account of donated buffers, each with the record that is kept until it has ended.
#[derive(Debug)]
pub(crate) struct Given<T> {
    /// The buffers after the first `done` numbers, in order.
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

    /// Adds that donated buffer as one that is out.
    #[inline]
    pub(crate) fn add(&mut self, donation: T) {
        self.out.push_back(donation);
    }

    /// Returns whether so much is out that the count is worth a look.
    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.out.len() >= LOOK_FROM
    }

    /// The donated buffers that are out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.out.iter()
    }

    /// Returns whether a count of `count` ends any.
    pub(crate) fn is_ended_by(&self, count: u64) -> bool {
        !self.out.is_empty() && count > self.done
    }

    /// Number of donated buffers that are out.
    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    /// Returns whether nothing is out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Takes the next donated buffer that a count of `count` ends. A count beyond the buffers that
    /// were given ends just those.
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

    /// Returns whether the count has ended, not long ago, a donated buffer that was out as stream
    /// `sid`.
    pub(crate) fn has_ended(&self, sid: u32) -> bool {
        let ago = stream(self.done).wrapping_sub(sid) & !COUNTED;
        u64::from(ago) < self.done.min(u64::from(COUNTED / 2))
    }
}

/// The stream number of donated buffer `number`. No two buffers that are out have the same.
#[inline]
pub(crate) fn stream(number: u64) -> u32 {
    number as u32 | COUNTED
}

/// Returns whether a stream's number stands for a counted donated buffer.
pub(crate) fn is_counted(sid: u32) -> bool {
    sid & COUNTED != 0
}

/// The receiver's account.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    /// The receiver has finished with all numbers up to this.
    count: u64,
    /// Numbers beyond `count` that it has finished with.
    ahead: BTreeSet<u64>,
    /// Numbers of messages, by stream, that are taken otherwise than as a view.
    others: FxHashMap<u32, u64>,
}

impl Returns {
    /// The number up to which all buffers are finished with.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns whether the end of `number` is all that the count waits for.
    #[inline(always)]
    pub(crate) fn is_next(&self, number: u64) -> bool {
        number == self.count + 1 && self.ahead.is_empty()
    }

    /// Ends `number`. Returns whether the count says so; if not, the sender has to be told.
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

    /// Counts the numbers that ended before their turn.
    #[cold]
    fn catch_up(&mut self) {
        while self.ahead.remove(&(self.count + 1)) {
            self.count += 1;
        }
    }

    /// Notes that message `number` is copied, as stream `sid`; its end will be reported like any
    /// other's.
    pub(crate) fn copies(&mut self, sid: u32, number: u64) {
        self.others.insert(sid, number);
    }

    /// Notes that stream `sid` has ended, and that its sender was told. Returns whether the count
    /// has changed.
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
        /// In any order of ends, each donated buffer ends once: by the count or by a descriptor of
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
        // No record of them is kept either.
        assert!(!returns.end(1) && !returns.end(3) && returns.ahead.is_empty());
    }
}
