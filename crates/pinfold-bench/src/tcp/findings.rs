//! The findings of a run.

use std::time::Duration;

use super::{
    cell::{Cell, Contestant},
    judge::{Found, Row},
};
use crate::{machine::Machine, terms::What};

/// The messages that the aims are about.
const SHORT: Cell = Cell { what: What::Latency, bytes: 8 };
const LONG: Cell = Cell { what: What::Bandwidth, bytes: 1 << 20 };

/// The aims: at most so many times the latency of spinning sockets...
pub(super) const LATENCY_AIM: f64 = 1.15;
/// ...and at least so many times the bandwidth of the best other.
pub(super) const STREAM_AIM: f64 = 1.05;

/// All of it.
pub(super) struct Findings {
    pub(super) machine: Machine,
    pub(super) hosts: u8,
    /// The place of the run, in a sentence.
    pub(super) ground: &'static str,
    pub(super) rows: Vec<Row>,
    /// The usual hop from core to core, nanoseconds.
    pub(super) hop_ns: f64,
    /// The provider that carries a contestant's messages, where there is a choice.
    pub(super) providers: Vec<(Contestant, String)>,
    /// Sentences the reader must see.
    pub(super) notes: Vec<String>,
    pub(super) took: Duration,
}

/// The results of Pinfold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Totals {
    pub(super) latency_of_spinning: Option<f64>,
    pub(super) stream_of_best: Option<f64>,
}

impl Findings {
    pub(super) fn found(&self, cell: &Cell, who: Contestant) -> Option<&Found> {
        let row = self.rows.iter().find(|row| row.cell == *cell && row.who == who)?;
        row.found.as_ref().ok()
    }

    pub(super) fn provider(&self, who: Contestant) -> Option<&str> {
        let provider = self.providers.iter().find(|provider| provider.0 == who)?;
        Some(&provider.1)
    }

    /// Each once, in the order of the rows.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = self.rows.iter().map(|row| row.cell).collect();
        cells.dedup();
        cells
    }

    pub(super) fn totals(&self) -> Totals {
        let pinfold = |cell| self.found(cell, Contestant::Pinfold);
        Totals {
            latency_of_spinning: pinfold(&SHORT).and_then(|it| it.of_spinning),
            stream_of_best: pinfold(&LONG).and_then(|it| it.of_best),
        }
    }

    /// The reasons for gaps, each once.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        for row in &self.rows {
            if let Err(why) = &row.found {
                let what = if row.cell.what == What::Latency { "latency" } else { "streams" };
                let reason = format!("{} has no figures for {what}: {why}", row.who.name());
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
        }
        reasons
    }
}
