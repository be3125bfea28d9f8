//! `pinfold top`: the endpoints of this host, and their traffic.
//!
//! - [`args`]: the options.
//! - [`flow`]: totals and rates.
//! - [`json`], [`table`]: the output, for programs and for people; [`layout`]: its columns;
//!   [`screen`]: on a terminal. [`prometheus`]: as metrics, in the format of [`exposition`].
//!
//! All its facts come from [`pinfold::status`].

mod args;
mod exposition;
mod flow;
mod json;
mod layout;
mod prometheus;
mod screen;
mod table;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub(crate) use args::TopArgs;
use pinfold::status;

use self::{args::Form, flow::Flows, screen::Screen};
use crate::{
    exit::{self, End},
    fold::width_of_stdout,
    output::{self, Lost},
    signals,
};

/// Looking takes at most one part in so many of the time.
const LOOKING: u32 = 10;
/// Time until the first rates are shown.
const FIRST: Duration = Duration::from_millis(250);

/// Runs `pinfold top`.
#[inline(never)]
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    exit::end(watch(args))
}

fn watch(args: &TopArgs) -> Result<(), End> {
    let again = args.again(io::stdout().is_terminal());
    let mut screen = (args.form() == Form::Table && again.is_some()).then(Screen::default);
    // Otherwise the first signal ends the program, as usual.
    let interrupted = if again.is_some() { Some(interrupts()?) } else { None };
    let mut flows = Flows::default();
    let mut first = screen.is_some();
    loop {
        let began = Instant::now();
        let view = match args.pid {
            Some(pid) => status::endpoints_of(pid),
            None => status::endpoints(),
        };
        let view = view.map_err(|error| error.to_string())?;
        if let Some(pid) = args.pid
            && view.endpoints.is_empty()
            && view.troubles.is_empty()
        {
            return Err(End::Failed(match view.hidden {
                0 => format!("process {pid} has no endpoint"),
                _ => format!("process {pid} may not be looked into"),
            }));
        }
        flows.look(&view, Instant::now());
        match args.form() {
            Form::Prometheus => print(&prometheus::render(&view))?,
            Form::Json => {
                let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let text = json::render(&view, &flows, time.as_millis() as u64);
                print(&text.map_err(|why| format!("cannot write what was seen: {why}"))?)?;
            }
            Form::Table => {
                let size = screen.as_ref().map(Screen::size);
                let width = size.map_or_else(width_of_stdout, |(columns, _)| Some(columns));
                let lines = table::render(&view, &flows, again.is_some(), width);
                match (&mut screen, size) {
                    (Some(screen), Some(size)) => print(&screen.text(&lines, size))?,
                    _ => print(&(lines.join("\n") + "\n"))?,
                }
            }
        }
        let (Some(interval), Some(interrupted)) = (again, &interrupted) else { return Ok(()) };
        let left = interval.saturating_sub(began.elapsed());
        // The first table has no rates yet.
        let left = if first { left.min(FIRST) } else { left };
        let left = left.max(began.elapsed() * LOOKING);
        first = false;
        if !matches!(interrupted.recv_timeout(left), Err(mpsc::RecvTimeoutError::Timeout)) {
            if screen.is_some() {
                // The terminal itself may be gone.
                let _ = print(screen::END);
            }
            return Ok(());
        }
    }
}

/// Prints in one piece, so that a table is never cut off by the program's end.
fn print(text: &str) -> Result<(), Lost> {
    output::put("what was seen", text)
}

/// The signals that ask the program to end.
fn interrupts() -> Result<Receiver<i32>, String> {
    let failed = |error: io::Error| format!("cannot wait for signals: {error}");
    let mut signals = signals::take().map_err(failed)?;
    let (say, said) = mpsc::channel();
    let listen = move || signals.forever().take_while(|signal| say.send(*signal).is_ok()).count();
    thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(said)
}
