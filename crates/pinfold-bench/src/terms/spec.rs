//! The specification of one run, for both processes.

use serde::{Deserialize, Serialize};

use super::{memory::Memory, setting::Setting, side::Side, what::What};

/// Bytes of the messages that are in flight at once in each direction when both are busy.
const WINDOW_BYTES: usize = 256 << 10;
/// Longer messages, bytes, fill both directions one at a time.
const OVERLAP_BYTES: usize = 4 << 20;

/// The specification of one run, for both processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The number of the subject among those that were set up.
    pub(crate) subject: usize,
    pub(crate) what: What,
    /// Bytes in a message.
    pub(crate) size: usize,
    pub(crate) touched: bool,
    pub(crate) setting: Setting,
    /// The memory that the messages lie in.
    pub(crate) memory: Memory,
    /// The seed of the run: no two runs have the same; the contents of messages follow from it.
    pub(crate) run: u64,
    /// Samples before the timed part, at most.
    pub(crate) warm_up: u64,
    /// Samples in the timed part, at most.
    pub(crate) samples: u64,
    /// Messages (round trips for latency) in a sample: the time is looked at between samples.
    pub(crate) per_sample: u64,
}

impl Spec {
    /// The number of the first message of this run that `side` sends. Numbers of different runs
    /// and sides do not meet.
    pub(crate) fn first_number(&self, side: Side) -> u64 {
        self.run << 33 | u64::from(side == Side::Second) << 32
    }

    /// The number of messages that have memory of their own.
    pub(crate) fn memories(&self) -> usize {
        match self.what {
            What::Latency => 1,
            _ if self.touched => self.per_sample.next_power_of_two() as usize,
            // A few messages are in flight each way, so that neither direction waits for the other.
            What::Bidirectional => {
                let least = if self.size <= OVERLAP_BYTES { 4 } else { 1 };
                1 << (WINDOW_BYTES / self.size.max(1)).clamp(least, 64).ilog2()
            }
            _ => 1,
        }
    }
}
