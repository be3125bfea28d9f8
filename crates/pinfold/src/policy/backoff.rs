//! Backoff: how long an operation that failed rests before it may be tried again. A policy; no I/O.

/// The first rest, and the longest, nanoseconds.
const MIN_NS: u64 = 50_000_000;
const MAX_NS: u64 = 60_000_000_000;

/// The time for which an operation is not tried; it doubles with each failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    until_ns: u64,
    len_ns: u64,
}

impl Backoff {
    pub(crate) const fn new() -> Backoff {
        Backoff { until_ns: 0, len_ns: 0 }
    }

    /// Returns whether the operation may be tried.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns
    }

    /// The operation was tried in vain.
    pub(crate) fn failed(&mut self, now_ns: u64) {
        self.len_ns = (2 * self.len_ns).clamp(MIN_NS, MAX_NS);
        self.until_ns = now_ns.saturating_add(self.len_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_tried_ever_more_rarely_but_never_given_up() {
        let (mut rest, mut now, mut rests) = (Backoff::new(), 7, Vec::new());
        for _ in 0..20 {
            assert!(rest.is_over(now));
            rest.failed(now);
            assert!(!rest.is_over(now));
            let before = now;
            while !rest.is_over(now) {
                now += MIN_NS;
            }
            rests.push(now - before);
        }
        assert_eq!(rests[..3], [MIN_NS, 2 * MIN_NS, 4 * MIN_NS]);
        assert!(rests.iter().all(|rest| *rest <= MAX_NS) && rests.ends_with(&[MAX_NS]));
    }
}
