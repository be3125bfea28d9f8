//! The measures of a subject.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A measure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The time of one message: half a round trip
    Latency,
    /// Bytes a second in one direction
    Bandwidth,
    /// Bytes a second with both directions busy, their sum
    Bidirectional,
    /// 8-byte messages a second in one direction
    Rate,
    /// Processor time of both processes per message, waiting asleep
    Cpu,
}

impl What {
    /// All of them, in the order they run.
    pub(crate) const ALL: [What; 5] =
        [What::Latency, What::Rate, What::Bandwidth, What::Bidirectional, What::Cpu];

    /// The name that options and records use.
    pub const fn name(self) -> &'static str {
        match self {
            What::Latency => "latency",
            What::Bandwidth => "bandwidth",
            What::Bidirectional => "bidirectional",
            What::Rate => "rate",
            What::Cpu => "cpu",
        }
    }
}
