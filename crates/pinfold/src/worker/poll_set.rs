//! The connections with other hosts that are looked at at every turn, and those that the epoll is
//! asked about. No I/O.
//!
//! A look at a connection is a system call, and so is asking the epoll about all of them. A few are
//! looked at in any case: nothing is sooner. Of more than that, a connection that brings nothing is
//! left to the epoll until that has news of it, and the epoll is asked at every turn in its stead;
//! unless it, too, was asked in vain for so long that the waiting thread goes to sleep before. Then
//! a look now and then does.

/// Connections that are looked at in any case.
const ALWAYS: usize = 2;
/// Looks in vain, one after the other, after which a connection beyond those is left to the epoll.
const LOOKS_IN_VAIN: u32 = 1;
/// Questions in vain, one after the other, after which the epoll is no longer asked at every turn:
/// with the rest of a turn, longer than any thread polls before going to sleep.
const ASKED_IN_VAIN: u32 = 4000;

/// The set of connections that are looked at.
#[derive(Debug, Default)]
pub(crate) struct PollSet {
    /// Connections that are looked at at every turn.
    at: usize,
    /// How often the epoll is to be asked before that is given up.
    asks: u32,
    /// Peers (by index) left to the epoll that may not have heard all there is to say.
    untold: Vec<u32>,
}

impl PollSet {
    /// One more connection is looked at.
    pub(crate) fn begin(&mut self) {
        self.at += 1;
    }

    /// One of them is no longer looked at.
    pub(crate) fn end(&mut self) {
        self.at = self.at.saturating_sub(1);
    }

    /// Returns whether any connection is looked at.
    pub(crate) fn any(&self) -> bool {
        self.at > 0
    }

    /// Returns whether there are so many that one may be left to the epoll.
    #[inline]
    pub(crate) fn are_many(&self) -> bool {
        self.at > ALWAYS
    }

    /// Returns whether a connection looked at in vain so often, last of all just now, is to be left
    /// to the epoll.
    pub(crate) fn is_in_vain(&self, times: u32) -> bool {
        self.are_many() && times >= LOOKS_IN_VAIN
    }

    /// Peer `index` is left to the epoll.
    pub(crate) fn leave(&mut self, index: u32) {
        self.end();
        self.untold.push(index);
        self.asks = ASKED_IN_VAIN;
    }

    /// Returns whether the epoll is to be asked at this turn.
    pub(crate) fn asks(&self) -> bool {
        self.asks > 0
    }

    /// The epoll was asked, and had `news` of some connection or none of any.
    pub(crate) fn asked(&mut self, news: bool) {
        self.asks = if news { ASKED_IN_VAIN } else { self.asks.saturating_sub(1) };
    }

    /// A peer is gone.
    pub(crate) fn forget(&mut self, index: u32) {
        self.untold.retain(|other| *other != index);
    }

    /// The peers that are to hear now what there is to tell them.
    pub(crate) fn take_untold(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: usize) -> PollSet {
        let mut poll_set = PollSet::default();
        (0..count).for_each(|_| poll_set.begin());
        poll_set
    }

    #[test]
    fn a_few_are_always_looked_at() {
        let mut poll_set = of(ALWAYS);
        assert!(poll_set.any() && !poll_set.is_in_vain(u32::MAX) && !poll_set.asks());
        poll_set.begin();
        assert!(!poll_set.is_in_vain(LOOKS_IN_VAIN - 1) && poll_set.is_in_vain(LOOKS_IN_VAIN));
        poll_set.leave(7);
        assert!(!poll_set.is_in_vain(u32::MAX) && poll_set.asks());
    }

    #[test]
    fn the_epoll_is_asked_until_that_was_in_vain_for_long() {
        let mut poll_set = of(ALWAYS + 2);
        poll_set.leave(1);
        for _ in 1..ASKED_IN_VAIN {
            poll_set.asked(false);
        }
        assert!(poll_set.asks());
        poll_set.asked(true);
        for _ in 0..ASKED_IN_VAIN {
            assert!(poll_set.asks());
            poll_set.asked(false);
        }
        assert!(!poll_set.asks());
        // A connection that is left to the epoll now is waited for.
        poll_set.leave(2);
        assert!(poll_set.asks());
    }

    #[test]
    fn who_is_left_is_told_once() {
        let mut poll_set = of(ALWAYS + 3);
        for index in [4, 5, 6] {
            poll_set.leave(index);
        }
        poll_set.forget(5);
        assert_eq!(poll_set.take_untold(), [4, 6]);
        assert!(poll_set.take_untold().is_empty());
        (0..ALWAYS).for_each(|_| poll_set.end());
        assert!(!poll_set.any());
    }
}
