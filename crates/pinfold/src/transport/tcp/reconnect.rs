//! The times to call a peer again whose connection broke, and to give it up. No I/O.

use std::time::Duration;

/// Between the first calls, ns; then twice as long each time. A random part of each pause, up to
/// half, is left out: many processes that lost one peer at the same moment do not all call it at
/// the same moments.
const PAUSE_NS: u64 = 5_000_000;
const PAUSE_NS_MAX: u64 = 1_000_000_000;
/// The time for which the first call is waited for, ns; then twice as long each time.
const PATIENCE_NS: u64 = 1_000_000_000;
const PATIENCE_NS_MAX: u64 = 8_000_000_000;

/// A pair without a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reconnect {
    /// The time to give it up.
    until_ns: u64,
    /// The time to call; `None` while a call is under way, or if it is the peer that calls.
    call_ns: Option<u64>,
    pause_ns: u64,
    patience_ns: u64,
    /// The state of the sequence of chances.
    chance: u64,
    /// The last reason why there is no connection: an `errno`.
    why: i32,
}

/// The next thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// Call it, and wait so long for an answer.
    Call(Duration),
    /// It is gone, because of this `errno`.
    GiveUp(i32),
}

impl Reconnect {
    /// A reconnection that begins now, because of the `errno` `why`. `calls`: it is this side that
    /// calls. `chance` has to differ from that of every other caller.
    pub(crate) fn new(
        now_ns: u64,
        limit: Duration,
        calls: bool,
        why: i32,
        chance: u64,
    ) -> Reconnect {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Reconnect {
            until_ns: now_ns.saturating_add(limit_ns),
            call_ns: calls.then_some(now_ns),
            pause_ns: PAUSE_NS,
            patience_ns: PATIENCE_NS,
            chance,
            why,
        }
    }

    /// The time to [look](Reconnect::due) again.
    pub(crate) fn due_ns(&self) -> u64 {
        self.call_ns.map_or(self.until_ns, |at| at.min(self.until_ns))
    }

    /// The thing to do now. A call has then begun.
    pub(crate) fn due(&mut self, now_ns: u64) -> Due {
        if now_ns >= self.until_ns {
            return Due::GiveUp(self.why);
        }
        if self.call_ns.is_none_or(|at| now_ns < at) {
            return Due::Nothing;
        }
        self.call_ns = None;
        let patience = self.patience_ns.min(self.until_ns - now_ns);
        self.patience_ns = (2 * self.patience_ns).min(PATIENCE_NS_MAX);
        Due::Call(Duration::from_nanos(patience))
    }

    /// A call came to nothing, because of the `errno` `why`.
    pub(crate) fn failed(&mut self, now_ns: u64, why: i32) {
        let left_out = self.draw() % (self.pause_ns / 2 + 1);
        self.call_ns = Some(now_ns.saturating_add(self.pause_ns - left_out));
        self.pause_ns = (2 * self.pause_ns).min(PAUSE_NS_MAX);
        self.why = why;
    }

    /// The next number of a sequence without a pattern: SplitMix64 (Steele, Lea and Flood, *Fast
    /// Splittable Pseudorandom Number Generators*, 2014).
    fn draw(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.chance;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn who_calls_calls_at_once_and_then_less_often() {
        let mut reconnect = Reconnect::new(7 * S, Duration::from_secs(10), true, 104, 1);
        let mut now = 7 * S;
        let (mut pauses, mut patiences) = (Vec::new(), Vec::new());
        loop {
            assert!(reconnect.due_ns() >= now && reconnect.due_ns() <= 17 * S);
            now = reconnect.due_ns();
            match reconnect.due(now) {
                Due::Call(patience) => patiences.push(patience.as_nanos() as u64),
                Due::GiveUp(why) => {
                    assert_eq!((now, why), (17 * S, 111));
                    break;
                }
                Due::Nothing => panic!(),
            }
            // One at a time.
            assert_eq!((reconnect.due(now), reconnect.due_ns()), (Due::Nothing, 17 * S));
            reconnect.failed(now, 111);
            pauses.push(reconnect.due_ns() - now);
        }
        // The end of the time cuts the last one.
        pauses.pop();
        for (at, pause) in pauses.iter().enumerate() {
            let whole = (PAUSE_NS << at.min(20)).min(S);
            assert!((whole / 2..=whole).contains(pause), "{at}: {pause} of {whole}");
        }
        assert_eq!(patiences[..4], [S, 2 * S, 4 * S, 8 * S]);
        assert!(pauses.len() > 12 && pauses.len() < 40, "{}", pauses.len());
    }

    /// The pauses of a side that calls in vain.
    fn pauses(chance: u64) -> Vec<u64> {
        let mut reconnect = Reconnect::new(0, Duration::from_secs(100), true, 104, chance);
        let mut pause = || {
            let now = reconnect.due_ns();
            assert!(matches!(reconnect.due(now), Due::Call(_)));
            reconnect.failed(now, 111);
            reconnect.due_ns() - now
        };
        (0..40).map(|_| pause()).collect()
    }

    #[test]
    fn not_all_call_at_once() {
        let all: Vec<Vec<u64>> = (0..100).map(|chance| pauses(chance << 32)).collect();
        assert_eq!(all[7], pauses(7 << 32));
        for at in 0..40 {
            let whole = (PAUSE_NS << at.min(20)).min(S);
            // A tenth of the time that pauses may have does not have a third of them.
            let tenth = |pause: u64| (10 * (pause - whole / 2) / (whole / 2 + 1)) as usize;
            let mut tenths = [0; 10];
            all.iter().for_each(|pauses| tenths[tenth(pauses[at])] += 1);
            assert!(tenths.iter().all(|&some| some < 33), "{at}: {tenths:?}");
        }
    }

    #[test]
    fn who_is_called_waits() {
        let mut reconnect = Reconnect::new(S, Duration::from_secs(3), false, 104, 1);
        assert_eq!((reconnect.due(S), reconnect.due_ns()), (Due::Nothing, 4 * S));
        assert_eq!(reconnect.due(4 * S - 1), Due::Nothing);
        assert_eq!(reconnect.due(4 * S), Due::GiveUp(104));
    }

    #[test]
    fn a_limit_without_end_is_none() {
        let mut reconnect = Reconnect::new(S, Duration::MAX, true, 104, 1);
        assert_eq!(reconnect.due(S), Due::Call(Duration::from_secs(1)));
        assert_eq!(reconnect.due(u64::MAX - 1), Due::Nothing);
    }
}
