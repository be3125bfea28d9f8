//! The findings of a run.

use std::time::Duration;

use super::{
    ring::Lap,
    samples::{Totals, Verdict},
};
use crate::machine::Machine;

/// All of it.
pub(super) struct Findings {
    pub(super) machine: Machine,
    /// Of the grid.
    pub(super) verdicts: Vec<Verdict>,
    /// Of the ring.
    pub(super) laps: Vec<Lap>,
    /// The distance between the cores, in words.
    pub(super) distance: Option<String>,
    /// Sentences the reader must see.
    pub(super) notes: Vec<String>,
    pub(super) took: Duration,
}

impl Findings {
    pub(super) fn totals(&self) -> Totals {
        Totals::of(&self.verdicts)
    }
}
