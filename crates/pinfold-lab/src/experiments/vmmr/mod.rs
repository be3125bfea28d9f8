//! Experiments of virtual memory MTU reassembly.

use crate::experiment::Experiment;

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[];
