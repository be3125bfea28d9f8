//! The length of an endpoint's sleeps: a policy, without clock or call.
//!
//! The peer that rings looks at a bell behind a store that its processor may still hold back, so a
//! ring can be missed by an endpoint that has just fallen asleep. The stored message is there a
//! moment later. So an endpoint sleeps briefly at first and looks again, for longer each time. That
//! costs other processes nothing; the barrier after which no ring can be missed any more
//! (`membarrier(2)`) interrupts every other processor, and takes milliseconds while one spins. It
//! is for an endpoint that has heard nothing for a second.

use std::time::Duration;

/// The first sleep, ns.
const FIRST_NS: u64 = 2_000_000;
/// Factor between the time for which nothing has come and the next sleep.
const GROWS: u64 = 3;
/// Time without news after which a barrier is worth it, and between two barriers, ns.
const BARRIER_NS: u64 = 1_000_000_000;

/// The action before the next sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Sleep so long at most, and look again.
    Brief(Duration),
    /// Issue a barrier, look once more, and sleep until something happens.
    Barrier,
}

/// How long nothing has come, and when the last barrier was.
#[derive(Debug)]
pub(crate) struct SleepPolicy {
    /// True if something has come since the last step.
    came: bool,
    quiet_since_ns: u64,
    barrier_ns: Option<u64>,
}

impl SleepPolicy {
    pub(crate) const fn new() -> SleepPolicy {
        SleepPolicy { came: true, quiet_since_ns: 0, barrier_ns: None }
    }

    /// Something has come.
    #[inline(always)]
    pub(crate) fn disturb(&mut self) {
        self.came = true;
    }

    /// An endpoint is about to sleep, or wakes in between and has found nothing.
    pub(crate) fn next(&mut self, now_ns: u64) -> Step {
        if std::mem::take(&mut self.came) {
            self.quiet_since_ns = now_ns;
        }
        let quiet_ns = now_ns.saturating_sub(self.quiet_since_ns);
        if quiet_ns >= BARRIER_NS && self.may_have_barrier(now_ns) {
            return Step::Barrier;
        }
        let brief_ns = (GROWS * quiet_ns).clamp(FIRST_NS, BARRIER_NS);
        Step::Brief(Duration::from_nanos(brief_ns))
    }

    /// Returns whether the last barrier is long past.
    pub(crate) fn may_have_barrier(&self, now_ns: u64) -> bool {
        self.barrier_ns.is_none_or(|last| now_ns.saturating_sub(last) >= BARRIER_NS)
    }

    /// A barrier was issued.
    pub(crate) fn had_barrier(&mut self, now_ns: u64) {
        self.barrier_ns = Some(now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sleeps until a barrier is due: returns how often, and how long.
    fn until_barrier(rest: &mut SleepPolicy, now_ns: &mut u64) -> (u32, u64) {
        let (mut sleeps, began) = (0, *now_ns);
        while let Step::Brief(brief) = rest.next(*now_ns) {
            assert!(brief.as_nanos() as u64 <= BARRIER_NS);
            *now_ns += brief.as_nanos() as u64;
            sleeps += 1;
        }
        (sleeps, *now_ns - began)
    }

    #[test]
    fn what_stays_quiet_gets_one_barrier_after_few_sleeps() {
        let (mut rest, mut now) = (SleepPolicy::new(), 7_000);
        let (sleeps, ns) = until_barrier(&mut rest, &mut now);
        assert!((4..10).contains(&sleeps), "{sleeps}");
        assert!((BARRIER_NS..3 * BARRIER_NS).contains(&ns), "{ns}");
    }

    #[test]
    fn barriers_are_a_second_apart_whatever_comes() {
        let (mut rest, mut now, mut last) = (SleepPolicy::new(), 0, None);
        for round in 0..10_000u64 {
            now += 1 + round * round % 700_000;
            if round % 3 == 0 {
                rest.disturb();
            }
            if round % 100 == 0 {
                now += 2 * BARRIER_NS;
            }
            if rest.next(now) == Step::Barrier {
                assert!(last.is_none_or(|last| now - last >= BARRIER_NS));
                last = Some(now);
                rest.had_barrier(now);
            }
        }
        assert!(last.is_some());
    }

    /// The first sleep after something came is the shortest: a missed ring costs no more than that.
    #[test]
    fn what_comes_makes_it_sleep_briefly() {
        let (mut rest, mut now) = (SleepPolicy::new(), 0);
        for _ in 0..100 {
            now += 5 * BARRIER_NS;
            rest.disturb();
            assert_eq!(rest.next(now), Step::Brief(Duration::from_nanos(FIRST_NS)));
        }
    }
}
