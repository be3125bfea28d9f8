//! Progress on standard error while a transfer runs.
//!
//! It is a bar on a terminal; elsewhere, in a log for instance, a line now and then, and none for
//! transfers of less than a second.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{HumanBytes, ProgressBar};

use super::name::RelativeName;
use crate::progress;

/// Time of the first line if there is no terminal.
const FIRST_LINE: Duration = Duration::from_secs(1);

/// Time between lines after the first.
const NEXT_LINE: Duration = Duration::from_secs(10);

/// Shows the progress of a transfer.
pub(super) struct Meter {
    started: Instant,
    total: Option<u64>,
    show: Show,
}

enum Show {
    Nothing,
    Bar(ProgressBar),
    Lines { next: Instant },
}

impl Meter {
    /// Starts the clock. `total`: the bytes to come, if known.
    pub(super) fn start(quiet: bool, total: Option<u64>) -> Meter {
        let started = Instant::now();
        let show = if quiet {
            Show::Nothing
        } else if std::io::stderr().is_terminal() {
            Show::Bar(progress::bytes(total))
        } else {
            Show::Lines { next: started + FIRST_LINE }
        };
        Meter { started, total, show }
    }

    /// The file that is being moved.
    pub(super) fn file(&self, name: &RelativeName) {
        if let Show::Bar(bar) = &self.show {
            bar.set_message(name.to_string());
        }
    }

    /// The number of bytes that have been moved.
    pub(super) fn at(&mut self, bytes: u64) {
        match &mut self.show {
            Show::Nothing => {}
            Show::Bar(bar) => bar.set_position(bytes),
            Show::Lines { next } => {
                let now = Instant::now();
                if now < *next {
                    return;
                }
                *next = now + NEXT_LINE;
                let rate = bytes as f64 / (now - self.started).as_secs_f64().max(1e-9);
                let mut line = HumanBytes(bytes).to_string();
                if let Some(total) = self.total {
                    line.push_str(&format!(" of {}", HumanBytes(total)));
                }
                progress::say(format_args!("{line} so far, {}/s", HumanBytes(rate as u64)));
            }
        }
    }

    /// The time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Drop for Meter {
    /// Removes the bar, so that the next text has a line of its own.
    fn drop(&mut self) {
        if let Show::Bar(bar) = &self.show {
            bar.finish_and_clear();
        }
    }
}
