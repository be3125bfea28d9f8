//! Shortage of processors: a policy, without clock or lock.
//!
//! Where more threads want a processor than there are, spinning takes time from the peer that one
//! waits for. A thread that spins finds out in two ways. It loses its own processor; or its peer
//! has lost one and does not answer, so it spins for longer than most, and asks the system how many
//! want to run, twice. Then it does not spin for a while, and tries again. As long as processors
//! stay short, it tries more seldom.

/// Time of spinning in vain after which the system is worth asking, and between two questions, ns.
const ASKS_AFTER_NS: u64 = 20_000;
const ASKS_EVERY_NS: u64 = 2_000_000;
/// The time after which an answer that processors are short is asked for once more: threads that
/// only woke up at the same time have gone to sleep again by then.
const CONFIRMS_AFTER_NS: u64 = 50_000;
/// How long a shortage is taken to last, at first and at most, ns.
const FIRST_NS: u64 = 1_000_000;
const MOST_NS: u64 = 1_000_000_000;
/// The time that it takes at most to find out that one still lasts, ns.
const FOUND_NS: u64 = 20_000_000;

/// When the last shortage began, and how long it is taken to last.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// True if the program has said that there is none.
    is_denied: bool,
    began_ns: u64,
    lasts_ns: u64,
    asked_ns: u64,
    /// The time of the last answer that there is one, as long as no other has come.
    suspected_ns: Option<u64>,
}

impl Shortage {
    /// One that never begins unless `heeds` says that it may.
    pub(super) fn heeded(heeds: bool) -> Shortage {
        Shortage { is_denied: !heeds, ..Shortage::default() }
    }

    /// Returns whether to ask the system, for a thread that has spun so long.
    pub(super) fn is_to_ask(&mut self, spun_ns: u64, now_ns: u64) -> bool {
        let every_ns = self.suspected_ns.map_or(ASKS_EVERY_NS, |_| CONFIRMS_AFTER_NS);
        let asks = !self.is_denied
            && spun_ns >= ASKS_AFTER_NS
            && now_ns.saturating_sub(self.asked_ns) >= every_ns
            && !self.lasts(now_ns);
        if asks {
            self.asked_ns = now_ns;
        }
        asks
    }

    /// The system's answer. One alone may be of threads that happened to run at the same time.
    pub(super) fn answered(&mut self, is_short: bool, now_ns: u64) {
        let suspected_ns = self.suspected_ns.take().filter(|_| is_short);
        let is_confirmed = suspected_ns
            .is_some_and(|suspected_ns| now_ns.saturating_sub(suspected_ns) < ASKS_EVERY_NS);
        if is_confirmed {
            self.begin(now_ns);
        } else if is_short {
            self.suspected_ns = Some(now_ns);
        }
    }

    pub(super) fn begin(&mut self, now_ns: u64) {
        if self.is_denied {
            return;
        }
        // A shortage that comes soon after another is the same one.
        let since_ns = now_ns.saturating_sub(self.began_ns);
        let goes_on = self.lasts_ns > 0 && since_ns < 4 * self.lasts_ns + FOUND_NS;
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
    fn the_system_is_asked_by_those_that_spin_for_long_and_seldom() {
        let (mut shortage, now) = (Shortage::default(), 1_000_000_000);
        assert!(!shortage.is_to_ask(ASKS_AFTER_NS - 1, now));
        assert!(shortage.is_to_ask(ASKS_AFTER_NS, now));
        assert!(!shortage.is_to_ask(1_000_000, now + ASKS_EVERY_NS - 1));
        assert!(shortage.is_to_ask(1_000_000, now + ASKS_EVERY_NS));
        // The answer is known as long as a shortage lasts.
        let asked = now + ASKS_EVERY_NS;
        (0..3).for_each(|_| shortage.begin(asked));
        assert!(!shortage.is_to_ask(1_000_000, asked + 4 * FIRST_NS - 1));
        assert!(shortage.is_to_ask(1_000_000, asked + 4 * FIRST_NS));
    }

    #[test]
    fn one_answer_alone_is_not_believed() {
        let (mut shortage, mut now) = (Shortage::default(), 1_000_000_000);
        let asks = |shortage: &mut Shortage, now| shortage.is_to_ask(ASKS_AFTER_NS, now);
        for soon in [false, true] {
            assert!(asks(&mut shortage, now));
            shortage.answered(true, now);
            assert!(!shortage.lasts(now) && !asks(&mut shortage, now + CONFIRMS_AFTER_NS - 1));
            now += CONFIRMS_AFTER_NS;
            assert!(asks(&mut shortage, now));
            shortage.answered(soon, now);
            assert_eq!(shortage.lasts(now), soon);
            assert!(!asks(&mut shortage, now + CONFIRMS_AFTER_NS));
            now += ASKS_EVERY_NS;
        }
        // Of two that are far apart neither is believed.
        now += MOST_NS;
        for _ in 0..3 {
            assert!(asks(&mut shortage, now));
            shortage.answered(true, now);
            now += ASKS_EVERY_NS;
            assert!(!shortage.lasts(now));
        }
    }

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
        now += 4 * MOST_NS + FOUND_NS;
        let mut denied = Shortage::heeded(false);
        denied.begin(now);
        assert!(!denied.lasts(now) && !denied.is_to_ask(ASKS_AFTER_NS, now));
        assert!(!shortage.lasts(now));
        shortage.begin(now);
        assert!(shortage.lasts(now + FIRST_NS - 1) && !shortage.lasts(now + FIRST_NS));
    }
}
