//! Virtual time: events that happen in the order of their times, and events of the same time in the
//! order in which they were planned.

use std::{cmp::Ordering, collections::BinaryHeap};

/// A moment or a duration of virtual time, picoseconds: 213 days at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// So many nanoseconds, rounded to picoseconds; negative ones are none.
    pub fn from_ns(ns: f64) -> Time {
        Time((ns * 1e3).round().max(0.0) as u64)
    }

    /// So many microseconds.
    pub fn from_us(us: f64) -> Time {
        Time::from_ns(us * 1e3)
    }

    /// Nanoseconds.
    pub fn ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Microseconds.
    pub fn us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl std::ops::Add for Time {
    type Output = Time;

    fn add(self, more: Time) -> Time {
        Time(self.0.saturating_add(more.0))
    }
}

impl std::ops::Sub for Time {
    type Output = Time;

    /// The time between; none if `earlier` is later.
    fn sub(self, earlier: Time) -> Time {
        Time(self.0.saturating_sub(earlier.0))
    }
}

/// An event that is planned.
#[derive(Debug)]
struct Planned<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Planned<E> {}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Planned<E> {
    /// The earliest is the greatest, as the heap hands out the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

/// A clock and the events that are to come.
#[derive(Debug)]
pub struct Clock<E> {
    now: Time,
    planned: BinaryHeap<Planned<E>>,
    count: u64,
}

impl<E> Default for Clock<E> {
    fn default() -> Self {
        Clock { now: Time(0), planned: BinaryHeap::new(), count: 0 }
    }
}

impl<E> Clock<E> {
    /// A clock at time 0 without events.
    pub fn new() -> Clock<E> {
        Clock::default()
    }

    /// The time of the event that happened last.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Plans an event so long from now.
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.now + delay, event);
    }

    /// Plans an event for a moment; one that is over means now.
    pub fn at(&mut self, at: Time, event: E) {
        self.planned.push(Planned { at: at.max(self.now), number: self.count, event });
        self.count += 1;
    }

    /// Goes on to the next event, which happens now.
    pub fn next_event(&mut self) -> Option<E> {
        let next = self.planned.pop()?;
        self.now = next.at;
        Some(next.event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_event_of_the_past_happens_now() {
        let mut clock = Clock::new();
        clock.at(Time(10), 'a');
        assert_eq!(clock.next_event(), Some('a'));
        clock.at(Time(3), 'b');
        clock.after(Time(2), 'c');
        assert_eq!((clock.next_event(), clock.now()), (Some('b'), Time(10)));
        assert_eq!((clock.next_event(), clock.now()), (Some('c'), Time(12)));
        assert_eq!(clock.next_event(), None);
    }

    #[test]
    fn units() {
        assert_eq!(Time::from_us(1.5), Time(1_500_000));
        assert_eq!(Time::from_ns(-1.0), Time(0));
        assert_eq!(Time(2_000).ns(), 2.0);
        assert_eq!(Time(1) - Time(2), Time(0));
    }

    proptest! {
        #[test]
        fn events_come_as_a_stable_sort_has_them(times in prop::collection::vec(0u64..8, 0..50)) {
            let mut clock = Clock::new();
            let mut sorted: Vec<(u64, usize)> = times.iter().copied().zip(0..).collect();
            for &(at, event) in &sorted {
                clock.at(Time(at), event);
            }
            sorted.sort_by_key(|&(at, _)| at);
            for (at, event) in sorted {
                prop_assert_eq!(clock.next_event(), Some(event));
                prop_assert_eq!(clock.now(), Time(at));
            }
            prop_assert!(clock.next_event().is_none());
        }
    }
}
