//! The progress of a run, drawn once it has taken a second.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use pinfold_lab::runner::Progress;

use crate::progress::steps;

/// Steps of the whole bar.
const STEPS: u64 = 1000;
/// Shorter runs need no bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar that may not be drawn yet.
pub(super) struct Bar {
    start: Instant,
    drawn: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new() -> Bar {
        Bar { start: Instant::now(), drawn: None }
    }

    /// Shows how far the run is.
    pub(super) fn show(&mut self, progress: Progress<'_>) {
        if self.drawn.is_none() && self.start.elapsed() < PATIENCE {
            return;
        }
        let bar = self.drawn.get_or_insert_with(|| steps(STEPS).with_elapsed(self.start.elapsed()));
        bar.set_message(format!("{} {}", progress.id, progress.step));
        bar.set_position((progress.part * STEPS as f64) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.drawn {
            bar.finish_and_clear();
        }
    }
}
