//! Shortage of processors: a policy, without clock or lock.
//!
//! A program is not told how many others want its processor. It finds out when it spins and loses
//! it: then spinning takes time from the peer that it waits for. So it does not spin for a while,
//! and then tries again. As long as it loses each time, it tries more seldom.

/// How long a shortage is taken to last, at first and at most, ns.
const FIRST_NS: u64 = 25_000_000;
const MOST_NS: u64 = 1_000_000_000;

/// When the last shortage began, and how long it is taken to last.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    began_ns: u64,
    lasts_ns: u64,
}

impl Shortage {
    pub(super) fn begin(&mut self, now_ns: u64) {
        // A shortage that comes soon after another is the same one.
        let since_ns = now_ns.saturating_sub(self.began_ns);
        let goes_on = since_ns < 4 * self.lasts_ns;
        self.lasts_ns = if goes_on { (2 * self.lasts_ns).min(MOST_NS) } else { FIRST_NS };
        self.began_ns = now_ns;
    }

    pub(super) fn lasts(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) < self.lasts_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_one_is_found_ever_more_seldom_and_a_short_one_forgotten() {
        let (mut shortage, mut now, mut found) = (Shortage::default(), 1, 0);
        assert!(!shortage.lasts(now));
        // Ten seconds in which each millisecond of spinning is lost.
        while now < 10_000_000_000 {
            if shortage.lasts(now) {
                now += 1_000_000;
            } else {
                now += 4_000_000;
                shortage.begin(now);
                found += 1;
            }
        }
        assert!((10..20).contains(&found), "{found}");
        // The shortage is over.
        now += 5 * MOST_NS;
        assert!(!shortage.lasts(now));
        shortage.begin(now);
        assert!(shortage.lasts(now + FIRST_NS - 1) && !shortage.lasts(now + FIRST_NS));
    }
}
