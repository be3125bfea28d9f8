//! Processors: their features, their clocks and barriers, copying by their instructions.

pub mod affinity;
pub mod barrier;
pub mod block;
pub mod clock;
pub mod identify;
pub mod partner;
pub mod scheduled;
