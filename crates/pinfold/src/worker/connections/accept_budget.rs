//! The share of an endpoint's time that callers get, whatever their number. No I/O.
//!
//! A caller that will be a peer cannot be told from one that only takes time. So all callers
//! together have a part of the time, while there are peers; those come in between.

/// The time that callers get before it is the peers' turn again, ns.
pub(super) const TURN_NS: u64 = 1_000_000;
/// The time that they may have had beyond their part, ns.
const AHEAD_NS: u64 = 10_000_000;
/// Their part is one of so many.
const PARTS: u64 = 4;

/// The time that callers have had.
#[derive(Debug, Default)]
pub(super) struct Share {
    /// Time beyond their part, as of `at_ns`.
    ahead_ns: u64,
    at_ns: u64,
}

impl Share {
    /// Callers had the time from `began_ns` to `now_ns`. Returns when they are to be answered
    /// again, if they have had too much.
    pub(super) fn worked(&mut self, began_ns: u64, now_ns: u64) -> Option<u64> {
        let passed = now_ns.saturating_sub(self.at_ns);
        self.ahead_ns = self.ahead_ns.saturating_sub(passed / PARTS);
        self.ahead_ns += now_ns.saturating_sub(began_ns);
        self.at_ns = now_ns;
        let is_enough = self.ahead_ns > AHEAD_NS;
        is_enough.then(|| now_ns.saturating_add(self.ahead_ns * PARTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_and_then_one_is_always_answered() {
        let mut share = Share::default();
        assert!((0..1000).all(|turn| {
            let began = 1_000_000_000 + turn * 4_000_000;
            share.worked(began, began + 900_000).is_none()
        }));
    }

    /// Callers that would take all the time there is.
    #[test]
    fn a_flood_gets_its_part() {
        let mut share = Share::default();
        let (begin, mut now, mut had, mut longest) = (5_000_000_000, 5_000_000_000, 0, 0);
        for _ in 0..10_000 {
            had += TURN_NS;
            let rest = share.worked(now, now + TURN_NS);
            now += TURN_NS;
            if let Some(until) = rest {
                longest = longest.max(until - now);
                now = until;
            }
        }
        let part = had * 100 / (now - begin);
        assert!((20..=25).contains(&part), "{part} %");
        // A caller that comes then is soon answered.
        assert!(longest <= 5 * AHEAD_NS, "{longest}");
    }
}
