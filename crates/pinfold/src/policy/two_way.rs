//! Two-way traffic: long messages that go both ways at once between two endpoints, so that neither
//! side has time to help with the other's copies. A policy; times are ticks.

/// The long messages to and from one peer, as far as they tell that.
#[derive(Debug, Default)]
pub(crate) struct TwoWay {
    /// When the last message to the peer was announced.
    announced: u64,
    /// When the last one that the peer has fetched had been announced, and when it was fetched.
    fetched: u64,
    fetched_at: u64,
    /// When the last pull from the peer began.
    pulled: u64,
}

impl TwoWay {
    /// A message to the peer was announced.
    pub(crate) fn announce(&mut self, now: u64) {
        self.announced = now;
    }

    /// The peer has fetched the message that was announced at `announced`.
    pub(crate) fn fetch(&mut self, announced: u64, now: u64) {
        self.fetched = self.fetched.max(announced);
        self.fetched_at = now;
    }

    /// Returns whether there are messages for the peer to fetch: while it has the kernel copy one,
    /// nothing else is heard of it.
    pub(crate) fn has_offers(&self) -> bool {
        self.announced > self.fetched
    }

    /// A pull from the peer begins. Returns whether the peer fetches messages meanwhile, as far as
    /// can be told: it has fetched one since the last pull, and there are newer ones for it. A
    /// message that has long been waiting says nothing, and neither do messages and answers in
    /// turn.
    pub(crate) fn get(&mut self, now: u64) -> bool {
        let fetches = self.fetched_at > self.pulled && self.announced > self.fetched;
        self.pulled = now;
        fetches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_is_not_two_way() {
        let mut traffic = TwoWay::default();
        assert!((1..10).all(|now| !traffic.get(now)));
        // A message that is never fetched.
        assert!(!traffic.has_offers());
        traffic.announce(10);
        assert!(traffic.has_offers());
        assert!((11..20).all(|now| !traffic.get(now)));
    }

    #[test]
    fn turns_are_not_two_way() {
        let mut traffic = TwoWay::default();
        traffic.announce(1);
        for now in (10..100).step_by(10) {
            traffic.announce(now);
            traffic.fetch(now, now + 1);
            assert!(!traffic.get(now + 2));
        }
    }

    #[test]
    fn windows_both_ways_are() {
        let mut traffic = TwoWay::default();
        traffic.announce(1);
        traffic.announce(2);
        for now in (10..100).step_by(10) {
            traffic.fetch(now - 9, now);
            traffic.announce(now + 1);
            assert!(traffic.get(now + 2));
        }
        // The other way ends.
        traffic.fetch(91, 100);
        assert!(!traffic.get(101) && !traffic.get(102));
    }
}
