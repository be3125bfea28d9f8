//! Experiments of Calhoun's block memory operations.

use crate::experiment::Experiment;

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[];
