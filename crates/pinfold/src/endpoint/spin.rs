//! How long to spin before sleeping: a policy, without clock or lock.

/// Spins at most this long, however often it paid: as long as a peer on a far core takes that writes
/// and reads a megabyte between two messages.
const SPIN_MAX_NS: u64 = 500_000;
/// Spins so long as long as nothing is known.
const SPIN_FIRST_NS: u64 = 25_000;
/// Spins at least this long, however often it was in vain.
const SPIN_MIN_NS: u64 = 1_000;
/// A sleep that ended so soon was mostly falling asleep and waking up, which can take 60 µs in a
/// virtual machine: what was waited for came early.
const SHORT_SLEEP_NS: u64 = 560_000;

/// How long to spin, learned from how waits ended.
///
/// A wait that ended while spinning asks for twice its length next time (smoothed); one that had to
/// sleep halves the time, unless it slept so briefly that spinning on would have been right.
#[derive(Debug)]
pub(crate) struct SpinPolicy {
    limit_ns: u64,
}

impl Default for SpinPolicy {
    fn default() -> SpinPolicy {
        SpinPolicy { limit_ns: SPIN_FIRST_NS }
    }
}

impl SpinPolicy {
    /// How long to spin now, ns.
    pub(crate) fn limit_ns(&self) -> u64 {
        self.limit_ns
    }

    /// The wait ended after `ns` of spinning.
    pub(crate) fn came_while_spinning(&mut self, ns: u64) {
        let wish = (2 * ns).clamp(SPIN_MIN_NS, SPIN_MAX_NS);
        // Up at once, down slowly.
        self.limit_ns = self.limit_ns.max(wish) - self.limit_ns.saturating_sub(wish) / 16;
    }

    /// Spinning was in vain; the sleep after it lasted `ns`.
    pub(crate) fn slept(&mut self, ns: u64) {
        self.limit_ns = if ns < SHORT_SLEEP_NS {
            (self.limit_ns * 2).min(SPIN_MAX_NS)
        } else {
            (self.limit_ns / 2).max(SPIN_MIN_NS)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spinning_follows_what_pays() {
        let mut spin = SpinPolicy::default();
        for _ in 0..20 {
            spin.slept(10_000_000);
        }
        assert_eq!(spin.limit_ns(), SPIN_MIN_NS, "long sleeps teach not to spin");
        for _ in 0..20 {
            spin.slept(80_000);
        }
        assert_eq!(spin.limit_ns(), SPIN_MAX_NS, "short sleeps teach to spin on");
        for _ in 0..200 {
            spin.came_while_spinning(500);
        }
        assert!(spin.limit_ns() < 2 * SPIN_MIN_NS, "{}", spin.limit_ns());
        spin.came_while_spinning(20_000);
        assert!(spin.limit_ns() >= 35_000, "one long wait that paid raises it at once");
    }
}
