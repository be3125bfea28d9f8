//! `pinfold top`: the endpoints there are, and what they do.
//!
//! - [`args`]: the options.
//! - [`flow`]: totals and rates.
//! - [`json`], [`table`]: what comes out, for programs and for people; [`layout`]: in which columns;
//!   [`screen`]: on a terminal.
//!
//! All that is known comes from [`pinfold::status`].

mod args;
mod flow;
mod json;
mod layout;
mod screen;
mod table;

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use pinfold::status;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

pub(crate) use args::TopArgs;

use self::{flow::Flows, screen::Screen};
use crate::{exit, fold::width_of_stdout};

/// Of the time at most one part in so many goes into looking.
const LOOKING: u32 = 10;
/// Until the first rates are shown.
const FIRST: Duration = Duration::from_millis(250);

/// Runs `pinfold top`.
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => exit::failed(why),
    }
}

fn watch(args: &TopArgs) -> Result<(), String> {
    let again = args.again(io::stdout().is_terminal());
    let mut screen = (!args.json() && again.is_some()).then(Screen::default);
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
            return Err(match view.hidden {
                0 => format!("process {pid} has no endpoint"),
                _ => format!("process {pid} may not be looked into"),
            });
        }
        flows.look(&view, Instant::now());
        let shown = if args.json() {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let text = json::render(&view, &flows, time.as_millis() as u64);
            text.map_err(io::Error::from).and_then(|text| print(&text))
        } else {
            let size = screen.as_ref().map(Screen::size);
            let width = size.map_or_else(width_of_stdout, |(columns, _)| Some(columns));
            let lines = table::render(&view, &flows, again.is_some(), width);
            match (&mut screen, size) {
                (Some(screen), Some(size)) => screen.draw(&lines, size),
                _ => print(&(lines.join("\n") + "\n")),
            }
        };
        match shown {
            // Whoever read it has had enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            shown => shown.map_err(|error| format!("cannot write what was seen: {error}"))?,
        }
        let (Some(interval), Some(interrupted)) = (again, &interrupted) else { return Ok(()) };
        let left = interval.saturating_sub(began.elapsed());
        // The first table has no rates yet.
        let left = if first { left.min(FIRST) } else { left };
        let left = left.max(began.elapsed() * LOOKING);
        first = false;
        if !matches!(interrupted.recv_timeout(left), Err(mpsc::RecvTimeoutError::Timeout)) {
            if let Some(screen) = &screen {
                screen.end();
            }
            return Ok(());
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Says when somebody asks the program to end.
fn interrupts() -> Result<Receiver<i32>, String> {
    let failed = |error: io::Error| format!("cannot wait for signals: {error}");
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (say, said) = mpsc::channel();
    let listen = move || signals.forever().take_while(|signal| say.send(*signal).is_ok()).count();
    thread::Builder::new().name("signals".into()).spawn(listen).map_err(failed)?;
    Ok(said)
}
