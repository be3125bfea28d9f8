//! Experiments of the pin-down cache of PM.

use crate::experiment::Experiment;

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[];
