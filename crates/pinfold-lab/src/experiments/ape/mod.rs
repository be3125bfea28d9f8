//! Experiments of the single-copy driver for the APE25.

use crate::experiment::Experiment;

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[];
