//! Since when sends to a peer have been waiting, for others to see; no I/O.
//!
//! Times are ticks. An announced send is noted when it is announced, and found to have been
//! answered at the next look, or when there are many of them. A queued send waits from the first
//! look that finds it in front.

use std::collections::VecDeque;

use super::op::OpKey;

/// Answered sends that are kept at least before they are looked for.
const SLACK: usize = 64;

#[derive(Default)]
pub(crate) struct Waits {
    announced: VecDeque<(OpKey, u64)>,
    front: Option<(OpKey, u64)>,
}

impl Waits {
    /// A send was announced `now`, when `waiting` others waited; `is_waiting` tells which still do.
    #[inline]
    pub(crate) fn announce(
        &mut self,
        key: OpKey,
        now: u64,
        waiting: u32,
        mut is_waiting: impl FnMut(OpKey) -> bool,
    ) {
        if self.announced.len() > 2 * waiting as usize + SLACK {
            self.announced.retain(|(key, _)| is_waiting(*key));
        }
        self.announced.push_back((key, now));
    }

    /// The time since when the send has been waiting that has waited longest, of those that are
    /// announced and the one in `front` of the queue.
    pub(crate) fn oldest(
        &mut self,
        front: Option<OpKey>,
        now: u64,
        mut is_waiting: impl FnMut(OpKey) -> bool,
    ) -> Option<u64> {
        while self.announced.front().is_some_and(|(key, _)| !is_waiting(*key)) {
            self.announced.pop_front();
        }
        let since = |key| match self.front {
            Some((before, since)) if before == key => (key, since),
            _ => (key, now),
        };
        self.front = front.map(since);
        let oldest = self.announced.front().map(|(_, since)| *since);
        oldest.into_iter().chain(self.front.map(|(_, since)| since)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> OpKey {
        OpKey::of_word(index.into())
    }

    #[test]
    fn the_oldest_is_the_first_that_waits_still() {
        let mut waits = Waits::default();
        assert_eq!(waits.oldest(None, 5, |_| true), None);
        for at in 0..3 {
            waits.announce(key(at), 10 + u64::from(at), at, |_| true);
        }
        assert_eq!(waits.oldest(None, 50, |_| true), Some(10));
        assert_eq!(waits.oldest(None, 50, |key| key.index > 1), Some(12));
        // Sends that were found to have been answered are not asked about again.
        assert_eq!(waits.oldest(None, 50, |_| true), Some(12));
        assert_eq!(waits.oldest(None, 50, |_| false), None);
    }

    #[test]
    fn a_queue_waits_as_long_as_the_same_is_in_front() {
        let mut waits = Waits::default();
        assert_eq!(waits.oldest(Some(key(1)), 5, |_| true), Some(5));
        assert_eq!(waits.oldest(Some(key(1)), 9, |_| true), Some(5));
        assert_eq!(waits.oldest(Some(key(2)), 11, |_| true), Some(11));
        waits.announce(key(7), 8, 0, |_| true);
        assert_eq!(waits.oldest(Some(key(2)), 12, |_| true), Some(8));
        assert_eq!(waits.oldest(None, 13, |_| false), None);
        assert_eq!(waits.oldest(Some(key(2)), 14, |_| true), Some(14));
    }

    #[test]
    fn what_is_put_down_stays_little() {
        let mut waits = Waits::default();
        let mut most = 0;
        for at in 0..10_000 {
            // One of them is never answered, the others are at once.
            waits.announce(key(at), at.into(), 1, |key| key.index == 0);
            most = most.max(waits.announced.len());
        }
        assert!(most <= SLACK + 4, "{most}");
        assert_eq!(waits.oldest(None, 20_000, |key| key.index == 0), Some(0));
    }
}
