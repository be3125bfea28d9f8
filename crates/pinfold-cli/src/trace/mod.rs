//! `pinfold trace`: recording programs' buffers, and working with traces. Recorder, files and
//! totals are in [`pinfold_lab::trace`].
//!
//! - [`args`]: the options. [`record`]: running a program. [`place`]: input and output.

mod args;
mod place;
mod record;

use std::{fmt::Write as _, path::Path, process::ExitCode};

use pinfold_lab::trace::{
    Event, TraceError,
    forms::{self, Form},
    summary::{Row, Summary},
};
use serde_json::json;

pub(crate) use args::TraceArgs;

use self::{
    args::{Action, ConvertArgs, CutArgs, PrintArgs, SummaryArgs},
    place::Out,
};
use crate::{
    exit::{self, End},
    output::put,
};

/// Runs `pinfold trace`.
#[inline(never)]
pub(crate) fn run(args: &TraceArgs) -> ExitCode {
    exit::end(match &args.action {
        Action::Record(args) => return record::run(args),
        Action::Print(args) => print(args),
        Action::Summary(args) => summary(args),
        Action::Cut(args) => cut(args),
        Action::Convert(args) => convert(args),
    })
}

/// The end of a command that stopped at an error in a trace.
fn failed(file: &Path, why: &TraceError) -> End {
    End::Failed(format!("{}: {why}", file.display()))
}

/// Writes the chosen events of a trace.
fn rewrite(file: &Path, to: Form, out: &Path, takes: impl Fn(&Event) -> bool) -> Result<(), End> {
    let input = place::open(file)?;
    let mut out = Out::new(out)?;
    let done = (|| {
        let mut writer = forms::Writer::new(to, &mut out)?;
        forms::read(input, |event| if takes(event) { writer.event(event) } else { Ok(()) })?;
        writer.finish()
    })();
    out.end(done.map_err(|why| failed(file, &why)))
}

fn cut(args: &CutArgs) -> Result<(), End> {
    let cut = args.choice.cut();
    rewrite(&args.file, args.to, &args.out, |event| cut.takes(event))
}

fn convert(args: &ConvertArgs) -> Result<(), End> {
    rewrite(&args.file, args.to, &args.out, |_| true)
}

fn print(args: &PrintArgs) -> Result<(), End> {
    let (input, cut) = (place::open(&args.file)?, args.choice.cut());
    let mut out = Out::new(Path::new("-"))?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let done = forms::read(input, |event| {
        if left > 0 && cut.takes(event) {
            left -= 1;
            let written = std::io::Write::write_all(&mut out, line(event).as_bytes());
            return written.map_err(TraceError::Write);
        }
        Ok(())
    });
    out.end(done.map_err(|why| failed(&args.file, &why)))
}

/// An event: time, program, call, object, memory, result.
fn line(event: &Event) -> String {
    let (thread, object) = (&event.thread, &event.object);
    let mut text = format!(
        "{:>13.6} {}[{}/{}] {} {} {} ",
        event.at_ns as f64 / 1e9,
        thread.name.escape_debug(),
        thread.pid,
        thread.tid,
        event.call,
        event.fd,
        object.kind,
    );
    if !object.name.is_empty() {
        let _ = write!(text, "{} ", object.name.escape_debug());
    }
    for it in &event.segments {
        let _ = write!(text, "{:#x}+{} ", it.address, it.bytes);
    }
    let _ = writeln!(text, "= {}", event.result);
    text
}

fn summary(args: &SummaryArgs) -> Result<(), End> {
    let (input, cut) = (place::open(&args.file)?, args.choice.cut());
    let mut summary = Summary::default();
    let done = forms::read(input, |event| {
        if cut.takes(event) {
            summary.add(event);
        }
        Ok(())
    });
    // The totals of a trace that was cut off are worth seeing, too.
    if done.is_ok() || summary.events > 0 {
        put("the summary", &totals(&summary, args.json))?;
    }
    done.map_err(|why| failed(&args.file, &why))
}

fn totals(summary: &Summary, is_json: bool) -> String {
    let rows = summary.rows();
    if is_json {
        return rows.iter().map(|row| format!("{}\n", json!(row))).collect();
    }
    let mut text = format!(
        "{:>8} {:<16} {:<7} {:<16} {:>9} {:>7} {:>14} {:>9} {:>8}\n",
        "pid", "process", "kind", "call", "calls", "failed", "bytes", "buffers", "reused"
    );
    for row in &rows {
        let Row { pid, process, kind, call, calls, failed, bytes, buffers, reused, .. } = row;
        let (process, more) = (process.escape_debug(), if row.is_at_least { "+" } else { "" });
        let _ = writeln!(
            text,
            "{pid:>8} {process:<16} {kind:<7} {call:<16} {calls:>9} {failed:>7} {bytes:>14} \
             {:>9} {reused:>8}",
            format!("{buffers}{more}"),
        );
    }
    let seconds = summary.last_ns as f64 / 1e9;
    let _ = writeln!(text, "{} calls; the last one ended after {seconds:.6} s", summary.events);
    text
}
