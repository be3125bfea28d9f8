//! The duty of reading a watch, between two threads.
//!
//! When an ordinary thread has read an event, it wakes the thread that unmapped, on a processor
//! where it still runs itself: if another one is idle, the kernel has the woken thread go on there,
//! which in a virtual machine takes 50 µs, and leaves the reader behind. A thread that only runs
//! where nobody else wants to (`SCHED_IDLE`) counts for nothing in that choice: the woken thread
//! goes on where it was. But where others are busy such a thread waits, some milliseconds an event,
//! and it may not become an ordinary one again. So there are two: the *modest* one has the duty,
//! the *ordinary* one takes over for a while when the first was late.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::futex;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Who {
    Modest = MODEST,
    Ordinary = ORDINARY,
}

const MODEST: u32 = 0;
const ORDINARY: u32 = 1;
/// The ordinary one has the duty for good.
const ALONE: u32 = 2;
/// Nobody has the duty any more.
const OVER: u32 = 3;

/// The holder of the duty. A thread that gets it sees all that the other one did before.
#[derive(Debug)]
pub(super) struct Duty(AtomicU32);

impl Duty {
    /// The modest one has it.
    pub(super) const fn new() -> Duty {
        Duty(AtomicU32::new(MODEST))
    }

    /// Sleeps until `who` has the duty. `false`: it is over.
    pub(super) fn wait(&self, who: Who) -> bool {
        loop {
            // Pairs with `change`.
            match self.0.load(Ordering::Acquire) {
                OVER => return false,
                now if now == who as u32 || now == ALONE && who == Who::Ordinary => return true,
                now => {
                    // It has changed, or wakes for nothing: either is seen above.
                    let _ = futex::wait(&self.0, futex::Flags::PRIVATE, now, None);
                }
            }
        }
    }

    /// `who`, which has the duty, gives it to the other one. `false`: the other one takes no turns,
    /// or it is over.
    pub(super) fn hand_over(&self, who: Who) -> bool {
        let other = if who == Who::Modest { ORDINARY } else { MODEST };
        self.change(who as u32, other)
    }

    /// The modest one, which has the duty, gives it to the ordinary one for good.
    pub(super) fn leave(&self) {
        self.change(MODEST, ALONE);
    }

    /// Nobody has it from now on.
    pub(super) fn end(&self) {
        self.0.store(OVER, Ordering::Release);
        self.wake();
    }

    fn change(&self, from: u32, to: u32) -> bool {
        let changed = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        if changed.is_ok() {
            self.wake();
        }
        changed.is_ok()
    }

    fn wake(&self) {
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 2);
    }
}

/// The rule by which the two change places. Times are given: no clock is read here.
#[derive(Debug)]
pub(super) struct Turns {
    rule: Rule,
    /// The next turn of the ordinary one lasts so long, ns. The holder of the duty changes it.
    term_ns: AtomicU64,
    /// The start of the turn that is under way, ns.
    since_ns: AtomicU64,
}

/// The limits that [`Turns`] go by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The modest one checks its lateness at one event in so many: that takes about a microsecond.
    pub(super) every: u32,
    /// Lateness that is too much, ns.
    pub(super) late_ns: u64,
    /// The shortest turn of the ordinary one, ns, and the longest: it is twice as long as the last
    /// one if the modest one did not last as long in between.
    pub(super) term_ns: [u64; 2],
}

impl Rule {
    /// A thread that unmaps waits for some milliseconds a second at most, of all time, on a machine
    /// that stays busy for some milliseconds in 64 s.
    pub(super) const USUAL: Rule =
        Rule { every: 8, late_ns: 500_000, term_ns: [1_000_000_000, 64_000_000_000] };
}

impl Turns {
    pub(super) const fn new(rule: Rule) -> Turns {
        let (term_ns, since_ns) = (AtomicU64::new(rule.term_ns[0]), AtomicU64::new(0));
        Turns { rule, term_ns, since_ns }
    }

    /// True if the modest one is to look how late it is, at this event of its own count.
    pub(super) fn looks(&self, event: u32) -> bool {
        event.is_multiple_of(self.rule.every)
    }

    /// True if the modest one has to hand over, having waited for its processor so long.
    pub(super) fn is_late(&self, waited_ns: u64, now_ns: u64) -> bool {
        if waited_ns < self.rule.late_ns {
            return false;
        }
        let term_ns = self.term_ns.load(Ordering::Relaxed);
        let [shortest, longest] = self.rule.term_ns;
        let lasted_ns = now_ns.saturating_sub(self.since_ns.swap(now_ns, Ordering::Relaxed));
        let next = if lasted_ns < term_ns { (term_ns * 2).min(longest) } else { shortest };
        self.term_ns.store(next, Ordering::Relaxed);
        true
    }

    /// True if the turn of the ordinary one is over.
    pub(super) fn is_up(&self, now_ns: u64) -> bool {
        let lasted_ns = now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed));
        let is_up = lasted_ns >= self.term_ns.load(Ordering::Relaxed);
        if is_up {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
        is_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_of_the_two_has_it() {
        // The change is not atomic in effect: two at once would lose counts.
        let (duty, count) = (Duty::new(), AtomicU32::new(0));
        let work = |who| {
            let mut own = 0;
            while duty.wait(who) {
                let seen = count.load(Ordering::Relaxed);
                if seen == 20_000 {
                    duty.end();
                    break;
                }
                count.store(seen + 1, Ordering::Relaxed);
                own += 1;
                duty.hand_over(who);
            }
            own
        };
        std::thread::scope(|scope| {
            let modest = scope.spawn(|| work(Who::Modest));
            assert_eq!((work(Who::Ordinary), modest.join().unwrap()), (10_000, 10_000));
        });
    }

    #[test]
    fn what_is_left_or_over_does_not_come_back() {
        let duty = Duty::new();
        duty.leave();
        assert!(duty.wait(Who::Ordinary) && !duty.hand_over(Who::Ordinary));
        assert!(duty.wait(Who::Ordinary));
        duty.end();
        assert!(!duty.wait(Who::Ordinary) && !duty.wait(Who::Modest));
        assert!(!duty.hand_over(Who::Modest));
        duty.leave();
        assert!(!duty.wait(Who::Ordinary));
    }

    #[test]
    fn turns_grow_while_the_modest_one_is_late_again() {
        let turns = Turns::new(Rule { every: 4, late_ns: 10, term_ns: [100, 400] });
        assert_eq!([0, 1, 3, 4].map(|event| turns.looks(event)), [true, false, false, true]);
        assert!(!turns.is_late(9, 1000));
        // The modest one had lasted since the beginning: the shortest turn.
        assert!(turns.is_late(10, 1000) && !turns.is_up(1099) && turns.is_up(1100));
        // The modest one is late at once: twice as long, up to the longest.
        let mut now = 1100;
        for term in [200, 400, 400] {
            assert!(turns.is_late(10, now + 5));
            assert!(!turns.is_up(now + 5 + term - 1) && turns.is_up(now + 5 + term));
            now += 5 + term;
        }
        // The modest one has lasted as long as that: the shortest turn.
        assert!(turns.is_late(10, now + 400) && turns.is_up(now + 500));
    }
}
