//! The times of long messages to and from one peer, from which its paths are chosen.
//!
//! The clock is read here; what the times mean is the policy's
//! ([`policy::route`](crate::policy::route)).

use pinfold_sys::cpu::clock;

use crate::policy::route::{Asking, CostModel, Half, Halves, Learner, Path, TOLD_FROM, halves};

/// The longest time that a peer is believed to have spent on a message, ns.
pub(crate) const TOOK_NS_MAX: u64 = 1 << 40;

/// The messages between which one was sent.
#[derive(Debug, PartialEq, Eq)]
enum Met {
    /// Others to the same peer ended while it was on its way: what it waits for costs nothing.
    Others,
    /// It answers a long message, as each does in a dialogue: the peer waits for all of it.
    Answer,
    Nothing,
}

/// The times of one peer's messages.
pub(crate) struct PeerTimes {
    pub learner: Learner,
    /// The time that asking and answering adds to a transfer out of this side's memory.
    asking: Asking,
    /// Messages through the ring, both sides of each.
    halves: Halves,
    /// When the last message to it had gone, ticks.
    last_end: u64,
    /// When the last long message from it had come, ticks.
    last_arrival: u64,
    /// Ticks in which long messages from it came, by now and when the last message to it had gone.
    received: u64,
    received_at_end: u64,
}

impl PeerTimes {
    /// The times of a peer of which nothing is known but the costs of the machine.
    pub(crate) fn new(model: &CostModel) -> PeerTimes {
        PeerTimes {
            learner: Learner::new(model),
            asking: Asking::new(),
            halves: Halves::default(),
            last_end: 0,
            last_arrival: 0,
            received: 0,
            received_at_end: 0,
        }
    }

    /// Returns whether a message that has to be announced, and for which the ring was chosen, is
    /// better sent through the ring nevertheless.
    pub(crate) fn prefers_ring(&self, len: u64, window: u64) -> bool {
        // Messages of this length are always announced; that time has been learnt.
        let is_weighed = len > window / 2;
        let ring = self.learner.predict(Path::Eager, len) + self.asking.average() as f64;
        is_weighed || ring < self.learner.predict(Path::Cma, len)
    }

    /// Message `sid` of `len` bytes is written into the ring, its first piece at `first_out`.
    /// Learns the time of the last message that the receiver has reported.
    pub(crate) fn learn_eager(
        &mut self,
        (sid, len): (u32, u64),
        (started, first_out): (u64, u64),
        announced: bool,
        took_there: u64,
    ) {
        let lead = match self.meets(started) {
            Met::Answer => clock::ns_of(first_out.saturating_sub(started)) + self.asking.one_way(),
            Met::Nothing | Met::Others => 0,
        };
        let here = self.sample_ns(started);
        let asking = if announced { self.asking.average() } else { 0 };
        if len < TOLD_FROM {
            return self.learner.observe(Path::Eager, len, here);
        }
        self.halves.sent(halves::number(sid, len), Half { len, ns: here, lead, asking });
        if let Some(whole) = self.halves.hear(took_there) {
            self.learner.observe(Path::Eager, whole.len, whole.ns);
        }
    }

    /// Learns the time of a message out of this side's memory by `path`: the receiver's account,
    /// and the time that asking and answering adds.
    pub(crate) fn learn_rendezvous(&mut self, path: Path, len: u64, started: u64, took_ns: u64) {
        let took = took_ns.min(TOOK_NS_MAX);
        let met = self.meets(started);
        let added = self.sample_ns(started).saturating_sub(took);
        let asking = match met {
            // Asking took its time while others went.
            Met::Others => 0,
            // The notice of the end travels beside the answer.
            Met::Answer => self.asking.observe(added) - self.asking.one_way(),
            Met::Nothing => self.asking.observe(added),
        };
        self.learner.observe(path, len, took + asking);
    }

    /// The messages that one to this peer, which `started`, met on its way. To be asked before its
    /// end is taken note of.
    fn meets(&self, started: u64) -> Met {
        if self.last_end > started {
            Met::Others
        } else if self.last_arrival > self.last_end {
            Met::Answer
        } else {
            Met::Nothing
        }
    }

    /// Ns since a message to this peer `started`.
    fn sample_ns(&mut self, started: u64) -> u64 {
        self.received_at_end = self.received;
        clock::ns_of(lap(started, &mut self.last_end))
    }

    /// Ns since a long message began to come, at `started`.
    pub(crate) fn arrival_lap_ns(&mut self, started: u64) -> u64 {
        let ticks = lap(started, &mut self.last_arrival);
        self.received += ticks;
        clock::ns_of(ticks)
    }

    /// When a message that was announced at `announced` would have begun to go, had this side not
    /// been taking messages in: that it cannot do both at once is part of what the ring costs.
    pub(crate) fn would_have_begun(&self, announced: u64) -> u64 {
        let now = clock::ticks();
        let waited = now.saturating_sub(announced.max(self.last_end));
        now - waited.min(self.received - self.received_at_end)
    }
}

/// Ticks from `started`, or from the end of the message before, if that was later, until now:
/// messages that overlap share their time.
fn lap(started: u64, last_end: &mut u64) -> u64 {
    let now = clock::ticks();
    let ticks = now.saturating_sub(started.max(*last_end));
    *last_end = now;
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_meets_is_told_apart() {
        let mut times = PeerTimes::new(&CostModel::DEFAULT);
        assert_eq!(times.meets(10), Met::Nothing);
        times.last_end = 20;
        // A stream, one message after the other.
        assert_eq!(times.meets(20), Met::Nothing);
        // Another one ended after it had started.
        assert_eq!(times.meets(19), Met::Others);
        times.last_arrival = 30;
        assert_eq!(times.meets(31), Met::Answer);
        times.last_end = 40;
        assert_eq!(times.meets(40), Met::Nothing);
    }

    /// In a dialogue the ring's time has the first piece's in it, and the kernel's not the notice
    /// of the end.
    #[test]
    fn a_dialogue_counts_what_its_receiver_waits_for() {
        const LEN: u64 = TOLD_FROM;
        let told = |is_answer: bool| {
            let mut times = PeerTimes::new(&CostModel::DEFAULT);
            let mut took_there = 0;
            for _ in 0..40 {
                if is_answer {
                    times.arrival_lap_ns(clock::ticks());
                }
                let started = clock::ticks();
                let first_out = started + 4 * clock::ticks_per_us();
                times.learn_eager((0, LEN), (started, first_out), false, took_there);
                took_there = crate::wire::sample::answer(halves::number(0, LEN), 10_000);
            }
            times.learner.predict(Path::Eager, LEN)
        };
        let [stream, dialogue] = [told(false), told(true)];
        assert!(dialogue > stream * 1.2, "{stream} {dialogue}");
    }
}
