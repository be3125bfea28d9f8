//! The load of other programs during a measurement. Facts; [`busy`](super::busy) judges them.

use pinfold_sys::cpu::scheduled::{self, Scheduled};
use serde::{Deserialize, Serialize};

/// The time of the threads of one process that measured, while they did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Time that it ran, nanoseconds.
    pub ran_ns: u64,
    /// Time that it could have run but had no processor, nanoseconds; `None` if that is not known.
    pub waited_ns: Option<u64>,
    /// The number of times that another process took its processor; `None` if that is not known.
    pub preempted: Option<u64>,
}

impl Load {
    /// The load of no time at all.
    pub const NONE: Load = Load { ran_ns: 0, waited_ns: Some(0), preempted: Some(0) };

    /// The load of both, one after the other.
    pub fn and(self, other: Load) -> Load {
        let sum = |one: Option<u64>, two: Option<u64>| Some(one?.saturating_add(two?));
        Load {
            ran_ns: self.ran_ns.saturating_add(other.ran_ns),
            waited_ns: sum(self.waited_ns, other.waited_ns),
            preempted: sum(self.preempted, other.preempted),
        }
    }
}

/// Measures the load of the calling thread, from [`Meter::start`] on.
pub struct Meter(Scheduled);

impl Meter {
    /// Begins.
    pub fn start() -> Meter {
        Meter(Scheduled::own())
    }

    /// The load since then.
    pub fn read(&self) -> Load {
        let (before, now) = (self.0, Scheduled::own());
        let since = |one: Option<u64>, two: Option<u64>| Some(two?.saturating_sub(one?));
        Load {
            ran_ns: now.ran_ns.saturating_sub(before.ran_ns),
            waited_ns: since(before.waited_ns, now.waited_ns),
            preempted: since(before.preempted, now.preempted),
        }
    }
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// Time measured, nanoseconds, without the set-ups in between.
    pub wall_ns: u64,
    /// The load of either process meanwhile.
    pub sides: [Load; 2],
    /// Time that the host let their processors wait, nanoseconds, and the time of which it is a
    /// part; `None` if that is not known.
    pub stolen: Option<(u64, u64)>,
    /// Both processes share one processor.
    pub one_core: bool,
}

impl Default for Conditions {
    fn default() -> Conditions {
        Conditions { wall_ns: 0, sides: [Load::NONE; 2], stolen: None, one_core: false }
    }
}

impl Conditions {
    /// Adds a run of so many nanoseconds.
    pub fn add(&mut self, wall_ns: u64, sides: [Load; 2]) {
        self.wall_ns = self.wall_ns.saturating_add(wall_ns);
        self.sides = [self.sides[0].and(sides[0]), self.sides[1].and(sides[1])];
    }
}

/// Time that the host has let the processors of both processes wait, nanoseconds.
pub fn stolen_ns(cores: [Option<usize>; 2]) -> Option<u64> {
    let mut cpus: Vec<usize> = cores.into_iter().collect::<Option<_>>()?;
    cpus.dedup();
    scheduled::stolen_ns(&cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_stays_so() {
        let one = Load { ran_ns: 5, waited_ns: Some(7), preempted: None };
        let two = Load { ran_ns: 6, waited_ns: Some(8), preempted: Some(9) };
        let both = Load { ran_ns: 11, waited_ns: Some(15), preempted: None };
        assert_eq!(one.and(two), both);
        let mut conditions = Conditions::default();
        conditions.add(20, [one, two]);
        conditions.add(30, [two, two]);
        assert_eq!((conditions.wall_ns, conditions.sides[0]), (50, both));
        assert_eq!(conditions.sides[1].preempted, Some(18));
    }

    #[test]
    fn a_meter_reads_what_has_passed() {
        let meter = Meter::start();
        let before = meter.read();
        let mut sum = 0u64;
        while meter.read().ran_ns < before.ran_ns + 1_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(meter.read().waited_ns >= before.waited_ns);
    }
}
