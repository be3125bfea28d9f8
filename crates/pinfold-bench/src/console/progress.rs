//! Output on stderr. Progress, for a person who waits, is drawn on a terminal only.

use std::{
    fmt::Display,
    io::{IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Prints a line on stderr. If that is closed, the line is lost.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "pinfold: {text}");
}

/// A bar over `steps` steps, with the current task beside it.
///
/// It has no thread of its own, which would disturb the measurements.
pub fn steps(steps: u64) -> ProgressBar {
    start(Some(steps), "{bar:30} {percent:>3} % {elapsed} of about {duration}  {msg}")
}

/// A bar over `total` bytes, or a running count if the total is not known.
pub fn bytes(total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(_) => {
            start(total, "{bar:30} {bytes} of {total_bytes} ({bytes_per_sec}, {eta})  {msg}")
        }
        None => start(None, "{spinner} {bytes} ({bytes_per_sec}) in {elapsed}  {msg}"),
    };
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn start(total: Option<u64>, template: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(5)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(total, target);
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}
