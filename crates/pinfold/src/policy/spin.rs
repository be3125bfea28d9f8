//! How long to spin before sleeping: a policy, without clock or lock.

mod shortage;

use self::shortage::Shortage;

/// The longest spin, however often it paid: the time in which a peer on a far core writes and reads
/// a megabyte between two messages.
const SPIN_MAX_NS: u64 = 500_000;
/// The longest spin while processors are short: none, since the peer may have the same processor.
const SPIN_SHORT_NS: u64 = 0;
/// The shortest spin, however often it was in vain.
const SPIN_MIN_NS: u64 = 1_000;
/// The time that waking takes as long as none was seen, and at least and at most: 60 µs are usual
/// in a virtual machine.
const PRICE_FIRST_NS: u64 = 25_000;
const PRICE_MIN_NS: u64 = 1_000;
const PRICE_MAX_NS: u64 = 200_000;

/// How long to spin, learned from how waits ended.
///
/// An endpoint spins as long as a sleep would cost it: from the ring that ends the sleep to the
/// moment that it runs. So in any case it loses at most as much again as it would have lost anyway.
/// Where messages have been coming early, it spins twice as long as that took; where they keep
/// coming late, ever less.
///
/// The ring carries its time, so waiting is told from waking: a machine that wakes slowly does not
/// make messages seem late.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    limit_ns: u64,
    price_ns: u64,
    shortage: Shortage,
}

impl Default for SpinPolicy {
    fn default() -> SpinPolicy {
        let shortage = Shortage::default();
        SpinPolicy { limit_ns: PRICE_FIRST_NS, price_ns: PRICE_FIRST_NS, shortage }
    }
}

impl SpinPolicy {
    /// A policy that looks for a shortage of processors if `heeds` says so.
    pub(crate) fn new(heeds: bool) -> SpinPolicy {
        SpinPolicy { shortage: Shortage::heeded(heeds), ..SpinPolicy::default() }
    }

    /// How long to spin now, ns.
    pub(crate) fn limit_ns(&self, now_ns: u64) -> u64 {
        if self.is_short(now_ns) { SPIN_SHORT_NS } else { self.limit_ns }
    }

    /// Returns whether there are fewer processors than threads that want one.
    pub(crate) fn is_short(&self, now_ns: u64) -> bool {
        self.shortage.lasts(now_ns)
    }

    /// The wait ended after `ns` of spinning.
    pub(crate) fn came_while_spinning(&mut self, ns: u64) {
        let wish = (2 * ns).clamp(self.price_ns, SPIN_MAX_NS);
        // The limit rises at once and falls slowly.
        self.limit_ns = self.limit_ns.max(wish) - self.limit_ns.saturating_sub(wish) / 16;
    }

    /// Spinning was in vain. The message came after `waited_ns`, and this side ran `woke_ns` later,
    /// if that is known.
    pub(crate) fn slept(&mut self, waited_ns: u64, woke_ns: Option<u64>) {
        let came_ns = match woke_ns {
            Some(woke_ns) => {
                let price = woke_ns.clamp(PRICE_MIN_NS, PRICE_MAX_NS);
                self.price_ns = self.price_ns - self.price_ns / 8 + price / 8;
                waited_ns
            }
            None => waited_ns.saturating_sub(self.price_ns),
        };
        self.limit_ns = if came_ns < SPIN_MAX_NS {
            self.limit_ns.max((2 * came_ns).clamp(self.price_ns, SPIN_MAX_NS))
        } else {
            (self.limit_ns / 2).max(SPIN_MIN_NS)
        };
    }

    /// Returns whether to [find out](SpinPolicy::found_short) how many threads want a processor,
    /// now that this one has spun so long in vain. That costs some microseconds.
    pub(crate) fn asks(&mut self, spun_ns: u64, now_ns: u64) -> bool {
        self.shortage.is_to_ask(spun_ns, now_ns)
    }

    /// The system's answer: whether more threads want a processor than there are.
    pub(crate) fn answered(&mut self, is_short: bool, now_ns: u64) {
        self.shortage.answered(is_short, now_ns);
    }

    /// This thread spun, and another had its processor meanwhile.
    pub(crate) fn found_short(&mut self, now_ns: u64) {
        self.shortage.begin(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy that was taught by so many waits.
    fn taught(waits: u32, wait: impl Fn(&mut SpinPolicy)) -> SpinPolicy {
        let mut spin = SpinPolicy::default();
        (0..waits).for_each(|_| wait(&mut spin));
        spin
    }

    #[test]
    fn spinning_follows_what_pays() {
        let mut spin = taught(60, |spin| spin.slept(10_000_000, Some(4_000)));
        assert_eq!(spin.limit_ns(0), SPIN_MIN_NS, "long waits teach not to spin");
        spin.slept(100, Some(4_000));
        assert!((3_000..5_000).contains(&spin.limit_ns(0)), "as long as waking takes: {spin:?}");
        (0..20).for_each(|_| spin.slept(80_000, Some(4_000)));
        assert_eq!(spin.limit_ns(0), 160_000, "short waits teach to spin on");
        (0..200).for_each(|_| spin.came_while_spinning(500));
        assert!(spin.limit_ns(0) < 6_000, "{spin:?}");
        spin.came_while_spinning(20_000);
        assert!(spin.limit_ns(0) >= 35_000, "one long wait that paid raises it at once");
    }

    /// A wake-up of 2 ms, as seen where waking interrupts a busy processor, is no reason to spin
    /// less: the message came after 40 µs.
    #[test]
    fn slow_waking_is_not_late_coming() {
        let spin = taught(1000, |spin| spin.slept(40_000, Some(2_000_000)));
        assert!(spin.limit_ns(0) >= 80_000, "{spin:?}");
        // The same, seen as one wait: the result of a policy that did not tell the two apart.
        let trapped = taught(1000, |spin| spin.slept(2_040_000, None));
        assert!(trapped.limit_ns(0) < 80_000, "{trapped:?}");
    }

    /// A message each millisecond, or each 5 ms: hardly any time is spun away, however slow waking
    /// is.
    #[test]
    fn what_comes_late_takes_little_time() {
        for (every_ns, woke_ns) in [(1_000_000, 5_000), (1_000_000, 60_000), (5_000_000, 120_000)] {
            let spin = taught(100, |spin| spin.slept(every_ns, Some(woke_ns)));
            assert_eq!(spin.limit_ns(0), SPIN_MIN_NS, "{spin:?}");
        }
    }

    #[test]
    fn whoever_was_preempted_sleeps_at_once_for_a_while() {
        let mut spin = taught(100, |spin| spin.came_while_spinning(100_000));
        assert!(spin.limit_ns(7) > 100_000);
        spin.found_short(7);
        assert_eq!(spin.limit_ns(8), SPIN_SHORT_NS);
        assert!(spin.is_short(8) && spin.limit_ns(10_000_000_000) > 100_000);
    }
}
