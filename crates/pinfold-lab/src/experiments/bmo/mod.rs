//! Experiments of block memory operations.

mod engine;

use crate::experiment::{Experiment, Paper};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "bmo-engine",
    paper: Paper::Bmo,
    title: "a copy engine in the memory controller",
    what: "Figure 6.2: the part of DDR400's bandwidth that copies of blocks through a buffer reach",
    claim: "a buffer of 1 KB is enough for over 90 % of the memory's peak",
    run: engine::run,
}];
