//! The calls that the kernel has sent notices of: it counts those of a connection by 32 bits, and
//! names ranges of them, in any order. No I/O.
//!
//! **Invariant.** A number that was given out names the same call until it is
//! [landed](Numbers::land).

use std::collections::VecDeque;

/// A range of calls that the kernel no longer reads: from `first` to `last`, both of them, going on
/// at 0 behind `u32::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub first: u32,
    pub last: u32,
    /// True if the kernel has copied some of it.
    pub copied: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// The kernel may still read the call's bytes.
    Out,
    Over {
        copied: bool,
    },
    /// The call's number is free: nobody asks for it any more.
    Landed,
}

/// The calls of one connection, without those that have landed before the first that has not.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    calls: VecDeque<Call>,
    /// The number of the first of them.
    base: u64,
    out: usize,
    over: usize,
}

impl Numbers {
    /// Notes a call that the kernel has taken; returns its number.
    pub fn take(&mut self) -> u64 {
        self.calls.push_back(Call::Out);
        self.out += 1;
        self.base + self.calls.len() as u64 - 1
    }

    /// Calls without a notice.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Calls that are over and not landed.
    pub fn over(&self) -> usize {
        self.over
    }

    /// Takes note of a notice. Numbers that no call has do nothing.
    pub fn noticed(&mut self, notice: Notice) {
        let Notice { first, last, copied } = notice;
        let count = i64::from(last.wrapping_sub(first)) + 1;
        // Numbers that are out lie within half of the range of 32 bits: each has memory of the
        // kernel's.
        let from = i64::from(first.wrapping_sub(self.base as u32).cast_signed());
        let within = |at: i64| at.clamp(0, self.calls.len() as i64) as usize;
        for call in self.calls.range_mut(within(from)..within(from + count)) {
            if *call == Call::Out {
                *call = Call::Over { copied };
                self.out -= 1;
                self.over += 1;
            }
        }
    }

    /// `Some` if the kernel no longer reads the bytes of a call: true if it copied any. The number
    /// is then free.
    pub fn land(&mut self, number: u64) -> Option<bool> {
        let at = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let call = self.calls.get_mut(at)?;
        let Call::Over { copied } = *call else { return None };
        *call = Call::Landed;
        self.over -= 1;
        while self.calls.front() == Some(&Call::Landed) {
            self.calls.pop_front();
            self.base += 1;
        }
        Some(copied)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn starting_at(base: u64) -> Numbers {
        Numbers { base, ..Numbers::default() }
    }

    fn notice(first: u32, last: u32) -> Notice {
        Notice { first, last, copied: false }
    }

    #[test]
    fn ranges_end_calls_in_any_order() {
        let mut numbers = Numbers::default();
        let calls: Vec<u64> = (0..5).map(|_| numbers.take()).collect();
        assert_eq!(calls, [0, 1, 2, 3, 4]);
        numbers.noticed(Notice { first: 2, last: 3, copied: true });
        assert_eq!((numbers.land(0), numbers.land(1), numbers.land(2)), (None, None, Some(true)));
        assert_eq!((numbers.out(), numbers.over(), numbers.land(2)), (3, 1, None));
        numbers.noticed(notice(0, 1));
        assert_eq!((numbers.land(0), numbers.land(1)), (Some(false), Some(false)));
        numbers.noticed(notice(4, 4));
        assert_eq!((numbers.land(3), numbers.land(4)), (Some(true), Some(false)));
        assert_eq!((numbers.out(), numbers.over(), numbers.calls.len()), (0, 0, 0));
        assert_eq!(numbers.take(), 5);
    }

    #[test]
    fn numbers_go_on_at_0() {
        let start = 2 * (1 << 32) - 2;
        let mut numbers = starting_at(start);
        let calls: Vec<u64> = (0..4).map(|_| numbers.take()).collect();
        numbers.noticed(notice(u32::MAX, 0));
        assert_eq!(numbers.land(start + 1), Some(false));
        assert_eq!(numbers.land(start + 2), Some(false));
        assert_eq!((numbers.land(start), numbers.land(start + 3)), (None, None));
        numbers.noticed(notice(u32::MAX - 1, 1));
        assert!(
            calls
                .iter()
                .all(|&call| numbers.land(call).is_some()
                    == (call != start + 1 && call != start + 2))
        );
        assert!(numbers.calls.is_empty());
    }

    #[test]
    fn what_was_not_sent_is_not_over() {
        let mut numbers = starting_at(10);
        let call = numbers.take();
        for (first, last) in [(11, 20), (0, 9), (11, 9), (u32::MAX, u32::MAX)] {
            numbers.noticed(notice(first, last));
            // The third goes round all of them but this.
            assert_eq!(numbers.land(call), None, "{first} to {last}");
        }
        assert_eq!((numbers.land(9), numbers.land(11), numbers.land(u64::MAX)), (None, None, None));
        // The first notice stands.
        numbers.noticed(notice(10, 10));
        numbers.noticed(Notice { copied: true, ..notice(10, 10) });
        assert_eq!(numbers.land(call), Some(false));
    }

    proptest! {
        /// Each call is over once it was named, for ranges in any order and any state of the count.
        #[test]
        fn each_is_over_once_it_was_named(
            start in prop_oneof![
                Just(0), (1u64 << 32) - 40..(1 << 32) + 40, any::<u64>().prop_map(|at| at >> 8)
            ],
            steps in prop::collection::vec((0..4u8, 0..40u64, 0..12u64, any::<bool>()), 1..200),
        ) {
            let mut numbers = starting_at(start);
            // The state of each call, in the plainest way.
            let mut calls: Vec<(bool, Option<bool>)> = Vec::new();
            let mut landed = vec![];
            for (step, at, len, copied) in steps {
                let at = at.min(calls.len() as u64);
                match step {
                    0 | 1 => {
                        prop_assert_eq!(numbers.take(), start + calls.len() as u64);
                        calls.push((false, None));
                    }
                    2 => {
                        let (first, last) = (start + at, start + at + len);
                        numbers.noticed(Notice { first: first as u32, last: last as u32, copied });
                        for call in calls.iter_mut().skip(at as usize).take(len as usize + 1) {
                            call.1 = call.1.or(Some(copied));
                        }
                    }
                    _ => {
                        let expected = calls.get(at as usize).and_then(|call| call.1.filter(|_| !call.0));
                        prop_assert_eq!(numbers.land(start + at), expected);
                        if expected.is_some() {
                            calls[at as usize].0 = true;
                            landed.push(at);
                        }
                    }
                }
                let out = calls.iter().filter(|call| call.1.is_none()).count();
                prop_assert_eq!(numbers.out(), out);
                prop_assert_eq!(numbers.over(), calls.len() - out - landed.len());
                let first = calls.iter().position(|call| !call.0).unwrap_or(calls.len());
                prop_assert_eq!(numbers.base, start + first as u64);
            }
        }
    }
}
