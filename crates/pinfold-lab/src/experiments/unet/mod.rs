//! Experiments of U-Net/MM.

use crate::experiment::Experiment;

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[];
