//! The check that the other end of a connection is still there, while bytes wait to be
//! acknowledged. No I/O.
//!
//! A host that is gone answers nothing; one whose program takes nothing says so each time it is
//! asked, for as long as that goes on. So the measure is how long it has not answered, not how long
//! nothing moved. (If nothing waits to be acknowledged, the kernel asks by itself: `SO_KEEPALIVE`.)

use std::time::Duration;

use pinfold_sys::socket::stream::signs::Signs;

/// The verdict about the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No answer is asked of it.
    Idle,
    /// It is, or it is too early to tell: to be looked at again at that time, at the latest.
    Wait(u64),
    /// It is not.
    Gone,
}

/// One connection that is looked at.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    /// The longest time for which it may leave a probe unanswered, ns.
    limit_ns: u64,
    /// The time since which a probe is unanswered, as far as that was seen.
    since_ns: Option<u64>,
}

impl KeepAlive {
    /// Over a connection that may be silent for so long until it is asked: it may be silent three
    /// times as long after that.
    pub(crate) fn new(silence: Duration) -> KeepAlive {
        let limit_ns = u64::try_from(3 * silence.as_nanos()).unwrap_or(u64::MAX);
        KeepAlive { limit_ns, since_ns: None }
    }

    /// Looks at it.
    pub(crate) fn look(&mut self, signs: Signs, now_ns: u64) -> Verdict {
        let period = self.limit_ns / 12;
        if !signs.waits {
            self.since_ns = None;
            return Verdict::Idle;
        }
        if !signs.unanswered {
            self.since_ns = None;
            return Verdict::Wait(now_ns.saturating_add(period));
        }
        // It may have answered, and been asked again, between two looks.
        let heard_ns = now_ns.saturating_sub(signs.silent.as_nanos() as u64);
        let since = self.since_ns.filter(|since| heard_ns <= *since).unwrap_or(now_ns);
        self.since_ns = Some(since);
        let end = since.saturating_add(self.limit_ns);
        if now_ns >= end {
            return Verdict::Gone;
        }
        Verdict::Wait(end.min(now_ns.saturating_add(period)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn signs(waits: bool, unanswered: bool, silent_ns: u64) -> Signs {
        Signs { waits, unanswered, silent: Duration::from_nanos(silent_ns) }
    }

    /// Looks as often as is asked for, until the end of a connection or of the time.
    fn until(end_ns: u64, mut signs_at: impl FnMut(u64) -> Signs) -> (u64, Verdict) {
        let mut keep_alive = KeepAlive::new(Duration::from_secs(1));
        let mut now = 0;
        loop {
            match keep_alive.look(signs_at(now), now) {
                Verdict::Wait(at) if at <= end_ns => {
                    assert!(at > now && at - now <= S);
                    now = at;
                }
                verdict => return (now, verdict),
            }
        }
    }

    #[test]
    fn who_answers_nothing_is_gone() {
        // Its last word came at half a second, and the bytes sent at one are not answered.
        let (at, verdict) = until(60 * S, |now| signs(true, now >= S, now.saturating_sub(S / 2)));
        assert_eq!(verdict, Verdict::Gone);
        assert!((4 * S..5 * S).contains(&at), "{at}");
    }

    /// Asked less and less often, and looked at when it has just been asked.
    #[test]
    fn who_answers_that_there_is_no_room_is_there() {
        for answer_ns in [0, 1, S / 7, S] {
            let (at, verdict) = until(3600 * S, |now| {
                let asked = (0..12).map(|at| (S / 5) << at).filter(|at| *at <= now).max();
                let before = asked.unwrap_or(0) / 2 + answer_ns;
                let answered = asked.is_some_and(|at| now >= at + answer_ns);
                let heard = if answered { asked.unwrap_or(0) + answer_ns } else { before };
                signs(true, asked.is_some() && !answered, now.saturating_sub(heard))
            });
            assert!(matches!(verdict, Verdict::Wait(_)), "{answer_ns}: {verdict:?} at {at}");
        }
        // The same where every look finds it asked and not answered.
        let (_, verdict) = until(3600 * S, |_| signs(true, true, S / 100));
        assert!(matches!(verdict, Verdict::Wait(_)));
    }

    #[test]
    fn nothing_is_asked_of_who_has_it_all() {
        let mut keep_alive = KeepAlive::new(Duration::from_secs(1));
        assert!(matches!(keep_alive.look(signs(true, true, 0), 0), Verdict::Wait(_)));
        assert_eq!(keep_alive.look(signs(false, true, 0), 10 * S), Verdict::Idle);
        // It begins anew.
        assert!(matches!(keep_alive.look(signs(true, true, 10 * S), 10 * S), Verdict::Wait(_)));
        assert_eq!(keep_alive.look(signs(true, true, 13 * S), 13 * S), Verdict::Gone);
    }
}
