//! The findings of a run.

use std::time::Duration;

use pinfold::route::SentFrom;

use super::{
    cell::{Cell, Contestant},
    lock::Lock,
    measure::{Found, Row},
    verify::Verified,
};
use crate::machine::Machine;

/// The message that the aims are about.
const LONG: usize = 63_000;

/// All of it.
pub(super) struct Findings {
    pub(super) machine: Machine,
    pub(super) core: Option<usize>,
    pub(super) rows: Vec<Row>,
    pub(super) locks: Vec<Lock>,
    pub(super) verified: Vec<Verified>,
    /// Sent to be measured.
    pub(super) messages: u64,
    /// Sentences the reader must see.
    pub(super) notes: Vec<String>,
    pub(super) took: Duration,
}

/// The results of automatic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Totals {
    pub(super) messages: u64,
    /// Of automatic over the best mode, for the worst row.
    pub(super) worst: Option<(Cell, f64)>,
    /// Of automatic over two-copy, the longest message in one piece.
    pub(super) memory_of_two_copy: Option<f64>,
    pub(super) cache_of_two_copy: Option<f64>,
}

impl Findings {
    pub(super) fn found(&self, cell: &Cell, who: Contestant) -> Option<&Found> {
        let row = self.rows.iter().find(|row| row.cell == *cell && row.who == who)?;
        row.found.as_ref().ok()
    }

    /// Each once, in the order of the rows.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.rows.iter().map(|row| row.cell).collect();
        cells.dedup();
        cells
    }

    pub(super) fn totals(&self) -> Totals {
        let automatic = |cell: &Cell| self.found(cell, Contestant::Automatic);
        let cells = self.cells();
        let of_best = |cell: &Cell| Some((*cell, automatic(cell)?.of_best?));
        let long = |from| automatic(&Cell { bytes: LONG, pieces: 1, from })?.of_two_copy;
        Totals {
            messages: self.messages,
            worst: cells.iter().filter_map(of_best).max_by(|a, b| a.1.total_cmp(&b.1)),
            memory_of_two_copy: long(SentFrom::Memory),
            cache_of_two_copy: long(SentFrom::Cache),
        }
    }
}
