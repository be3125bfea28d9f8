//! `Trust`: how far memory of a peer is relied on to be present still.
//!
//! A copy by the kernel waits for pages that are missing, so a look comes first, and memory that
//! was present a moment ago is taken to be present still. A peer whose memory comes and goes is
//! looked at each time, and a peer that has had a copy wait is not copied from or to any more.

use pinfold_sys::mem::presence::Touch;

/// Time for which memory of a peer that was present is taken to be present still, ns. Asking takes
/// 3 µs, and programs send from the same buffers again and again.
const SEEN_NS: u64 = 1_000_000;
/// A peer that is looked at each time is so for this many looks, and for twice as many each further
/// time.
const LOOKS: u32 = 64;
/// Number of times that memory which is read may go, each within [`MISSED_NS`] of the last.
const MISSED_MAX: u32 = 8;
const MISSED_NS: u64 = 10_000_000_000;
/// A copy that waited for this long did so by no accident, ns; one that waited for less may have.
const FROZEN_NS: u64 = 100_000_000;
/// A copy that waited for less than this counts as one that did not wait, ns.
pub(super) const WAITED_NS: u64 = 20_000_000;
/// Number of copies that may have waited, each for less than [`FROZEN_NS`].
const WAITED_MAX: u32 = 1;

/// Results of looks at a peer's memory, and the number of copies that have waited for it.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The looks at memory that is read, and at memory that is written.
    of: [PresenceLooks; 2],
    waited: u32,
}

/// Results of the looks at memory that is touched in one way.
#[derive(Debug, Default)]
struct PresenceLooks {
    found: [Option<Sight>; 4],
    next: usize,
    /// Number of looks until an answer is taken to hold for a while again.
    wary: u32,
    missed: u32,
    last_missed_ns: u64,
}

/// Memory that was present when it was looked at.
#[derive(Debug)]
struct Sight {
    at: u64,
    len: u64,
    when_ns: u64,
}

impl Sight {
    fn overlaps(&self, at: u64, len: u64) -> bool {
        self.at < at.saturating_add(len) && at < self.at.saturating_add(self.len)
    }
}

impl Trust {
    fn of(&mut self, touch: Touch) -> &mut PresenceLooks {
        &mut self.of[usize::from(touch == Touch::Write)]
    }

    /// Returns whether these `len` bytes are taken to be present, without a look.
    pub(super) fn relies_on(&mut self, at: u64, len: u64, touch: Touch, now_ns: u64) -> bool {
        let looks = self.of(touch);
        let is_fresh = |seen: &Sight| {
            seen.at == at && seen.len >= len && now_ns.saturating_sub(seen.when_ns) < SEEN_NS
        };
        looks.wary == 0 && looks.found.iter().flatten().any(is_fresh)
    }

    /// Notes that a look has found this memory present.
    pub(super) fn found(&mut self, at: u64, len: u64, touch: Touch, now_ns: u64) {
        let looks = self.of(touch);
        let same = |seen: &Option<Sight>| seen.as_ref().is_none_or(|seen| seen.at == at);
        let place = looks.found.iter().position(same).unwrap_or(looks.next);
        looks.found[place] = Some(Sight { at, len, when_ns: now_ns });
        looks.next = (place + 1) % looks.found.len();
        looks.wary = looks.wary.saturating_sub(1);
    }

    /// Notes that a look has not found this memory. Returns whether that was once too often: memory
    /// that is sent has been written just before, so it is present; memory of receives is often new
    /// at an address where other memory was.
    pub(super) fn missed(&mut self, at: u64, len: u64, touch: Touch, now_ns: u64) -> bool {
        let looks = self.of(touch);
        let mut was_there = false;
        for seen in looks
            .found
            .iter_mut()
            .filter(|seen| seen.as_ref().is_some_and(|it| it.overlaps(at, len)))
        {
            (*seen, was_there) = (None, true);
        }
        if !was_there {
            return false;
        }
        if now_ns.saturating_sub(looks.last_missed_ns) >= MISSED_NS {
            looks.missed = 0;
        }
        looks.last_missed_ns = now_ns;
        looks.missed += 1;
        looks.wary = LOOKS << looks.missed.min(MISSED_MAX);
        touch == Touch::Read && looks.missed >= MISSED_MAX
    }

    /// Notes that a copy has waited. Returns whether it waited for too long.
    pub(super) fn waited(&mut self, waited_ns: u64) -> bool {
        if waited_ns < WAITED_NS {
            return false;
        }
        self.waited += 1;
        waited_ns >= FROZEN_NS || self.waited > WAITED_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Touch::{Read, Write};

    #[test]
    fn what_was_there_is_there_for_a_moment() {
        let mut trust = Trust::default();
        assert!(!trust.relies_on(8, 100, Read, 0));
        trust.found(8, 100, Read, 1000);
        assert!(trust.relies_on(8, 100, Read, 1000 + SEEN_NS - 1));
        assert!(trust.relies_on(8, 1, Read, 1000));
        for (at, len, touch, now_ns) in [
            (8, 101, Read, 1000),
            (9, 1, Read, 1000),
            (8, 100, Write, 1000),
            (8, 100, Read, 1000 + SEEN_NS),
        ] {
            assert!(!trust.relies_on(at, len, touch, now_ns), "{at} {len} {touch:?} {now_ns}");
        }
        // These are more than are kept: the oldest go.
        (1..=5).for_each(|n| trust.found(100 * n, 100, Read, 2000));
        assert!(!trust.relies_on(8, 100, Read, 2000) && trust.relies_on(400, 100, Read, 2000));
        trust.found(400, 50, Read, 3000);
        assert!(!trust.relies_on(400, 100, Read, 3000) && trust.relies_on(500, 100, Read, 3000));
    }

    #[test]
    fn memory_that_goes_is_looked_at_for_a_while() {
        let mut trust = Trust::default();
        // Memory that was never present has not gone.
        for _ in 0..100 {
            assert!(!trust.missed(0, 100, Read, 0));
        }
        trust.found(0, 100, Read, 0);
        assert!(trust.relies_on(0, 100, Read, 0));
        assert!(!trust.missed(50, 1000, Read, 0));
        for looks in 0..2 * LOOKS {
            assert!(!trust.relies_on(0, 100, Read, 0), "after {looks} looks");
            trust.found(0, 100, Read, 0);
        }
        assert!(trust.relies_on(0, 100, Read, 0));
        // Memory next to it is other memory, and so is memory that is written.
        assert!(!trust.missed(100, 100, Read, 0) && !trust.missed(0, 100, Write, 0));
        assert!(trust.relies_on(0, 100, Read, 0));
    }

    #[test]
    fn memory_that_comes_and_goes_is_not_relied_on() {
        let goes = |touch, every_ns: u64| {
            let mut trust = Trust::default();
            (1..=3 * u64::from(MISSED_MAX)).find(|n| {
                trust.found(0, 100, touch, n * every_ns);
                trust.missed(0, 100, touch, n * every_ns)
            })
        };
        assert_eq!(goes(Read, 1000), Some(u64::from(MISSED_MAX)));
        assert_eq!(goes(Read, MISSED_NS - 1), Some(u64::from(MISSED_MAX)));
        assert_eq!(goes(Read, MISSED_NS), None);
        assert_eq!(goes(Write, 1000), None);
    }

    #[test]
    fn nobody_has_copies_wait_again() {
        let outcomes = |waits: &[u64]| {
            let mut trust = Trust::default();
            waits.iter().map(|wait| trust.waited(*wait)).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(&[FROZEN_NS]), [true]);
        assert_eq!(outcomes(&[WAITED_NS - 1, WAITED_NS - 1, WAITED_NS]), [false; 3]);
        assert_eq!(outcomes(&[WAITED_NS, FROZEN_NS - 1]), [false, true]);
    }
}
