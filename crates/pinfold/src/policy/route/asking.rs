//! The time that asking the receiver of a message, and its answer, add to the copy.

/// The time assumed before any was seen, ns.
const ASSUMED_NS: u64 = 1000;

/// The most that is counted, ns: some ten cache-line hops between the far cores of a virtual
/// machine, and a look of each side. A longer time means a receiver that was late, and would be
/// late by any path.
const MOST_NS: u64 = 2500;

/// The time that asking and answering adds to the messages to one peer, ns, averaged.
#[derive(Debug)]
pub(crate) struct Asking(u64);

impl Asking {
    /// The assumed time.
    pub(crate) fn new() -> Asking {
        Asking(ASSUMED_NS)
    }

    /// The time that asking and answering adds to a message on average, ns.
    pub(crate) fn average(&self) -> u64 {
        self.0
    }

    /// The time that one of the two ways takes of that, ns.
    pub(crate) fn one_way(&self) -> u64 {
        self.0 / 2
    }

    /// A message took `added_ns` more than its receiver spent on it. Returns the time to count for
    /// it: the average of such messages. No single one counts for much.
    pub(crate) fn observe(&mut self, added_ns: u64) -> u64 {
        let counted = added_ns.min(4 * self.0 + 10).min(MOST_NS);
        self.0 = (7 * self.0 + counted) / 8;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Path,
        policy::route::{CostModel, Learner, Permissions, choose},
    };

    #[test]
    fn it_follows_what_is_seen() {
        let mut asking = Asking::new();
        for _ in 0..40 {
            asking.observe(300);
        }
        assert!((290..=310).contains(&asking.observe(300)));
        // A message that was late by a millisecond.
        assert!(asking.observe(1_000_000) < 500);
    }

    /// A receiver that works on each message before it asks for the next one; more after those that
    /// it copied itself, as they lie in its cache.
    #[test]
    fn a_late_receiver_says_nothing_about_the_path() {
        const MIB: u64 = 1 << 20;
        let (mut learner, mut asking) = (Learner::new(&CostModel::DEFAULT), Asking::new());
        let may = Permissions::new(|_| Ok(()));
        let mut slower = 0;
        for number in 0..2000 {
            let path = choose(MIB, true, &may, &mut learner).unwrap().receipt.path;
            let (took, late) = match path {
                Path::Mapped => (40_000, 130_000),
                Path::Cma => (80_000, 60_000),
                _ => (120_000, 60_000),
            };
            slower += u32::from(path != Path::Mapped && number >= 100);
            // Some are slow, as when cores are lent to others.
            let stall = if number % 11 < 3 { 2 } else { 1 };
            learner.observe(path, MIB, took * stall + asking.observe(late));
        }
        let seen = learner.predict(Path::Cma, MIB) / learner.predict(Path::Mapped, MIB);
        assert!((1.7..2.5).contains(&seen), "{seen} times as long");
        // The tries now and then.
        assert!(slower < 2000 / 30, "{slower} of 2000 took a slower path");
    }
}
