//! `pinfold tune`: measures the copy algorithm that suits each block, and keeps the table for this
//! machine.
//!
//! - [`args`]: the options.
//! - [`report`]: the output, the same for machines and for people; [`text`]: for people.

mod args;
mod report;
mod text;

use std::{env, path::PathBuf, process::ExitCode, time::Instant};

pub use args::TuneArgs;
use pinfold::copy::{self, Algorithm, Found, Machine, Origin, tuned};

use self::report::{Measuring, Report};
use crate::{
    busy,
    console::{
        exit::{self, End},
        fold::width_of_stdout,
        output::put,
        progress::{say, steps},
    },
    load::{Conditions, Load, Meter},
};

/// Steps of the progress bar.
const STEPS: u64 = 1000;

/// Runs `pinfold tune`.
#[inline(never)]
pub fn run(args: &TuneArgs) -> ExitCode {
    exit::end(if args.show { print(args, &show()) } else { measure(args) })
}

/// Measures, keeps and prints.
fn measure(args: &TuneArgs) -> Result<(), End> {
    let machine = Machine::this();
    // An error is better reported now than after all that work.
    let file = if args.dry_run { tuned::file(&machine) } else { Some(place(&machine)?) };
    let start = Instant::now();
    let bar = steps(STEPS);
    // An earlier run may know distances between cores that are not seen this time.
    let before = file.as_deref().and_then(|file| tuned::load(file, &machine).ok());
    let (mut meter, mut load) = (None, Load::NONE);
    let found = copy::tune(args.budget(), before.as_ref(), |done| {
        // The thread that measures calls this.
        load = meter.get_or_insert_with(Meter::start).read();
        bar.set_position((f64::from(done) * STEPS as f64) as u64);
    });
    bar.finish_and_clear();
    let Found { tuned, measured, cases, has_other_core, gain } =
        found.map_err(|why| format!("cannot measure: {why}"))?;
    let stored = match &file {
        Some(file) if !args.dry_run => tuned::store(file, &machine, &tuned).map_err(|error| {
            format!("cannot keep the table in {}: {error}; it is only printed", file.display())
        }),
        _ => Ok(()),
    };
    let took = start.elapsed();
    let conditions = Conditions {
        wall_ns: took.as_nanos() as u64,
        sides: [load, Load::NONE],
        one_core: !has_other_core,
        ..Conditions::default()
    };
    let withheld = busy::conditions(&conditions, None);
    let report = Report {
        origin: "measured",
        kept: stored.is_ok() && !args.dry_run,
        measured_s: Some(tuned.measured_s),
        seen: Some(tuned.seen),
        measuring: Some(Measuring {
            seconds: took.as_secs_f64(),
            cases,
            measured,
            other_core: has_other_core,
            gain: withheld.is_none().then_some(gain),
            withheld,
        }),
        ..Report::new(machine, file.as_deref(), tuned.table)
    };
    let printed = print(args, &report);
    if env::var_os("PINFOLD_COPY").is_some() {
        say(
            "PINFOLD_COPY is set here, and comes before the table; unset it to use what was measured",
        );
    }
    match (printed, stored) {
        (Err(lost), Err(why)) => {
            say(why);
            Err(lost)
        }
        (printed, stored) => printed.and(stored.map_err(End::Failed)),
    }
}

/// The file that the table can be kept in.
fn place(machine: &Machine) -> Result<PathBuf, String> {
    let hint = "set XDG_CONFIG_HOME to a directory that you can write to, or use --dry-run";
    let file = tuned::file(machine).ok_or_else(|| {
        format!("no place to keep the table: XDG_CONFIG_HOME and HOME name none; {hint}")
    })?;
    match tuned::can_store(&file) {
        Ok(()) => Ok(file),
        Err(error) => Err(format!("cannot keep the table in {}: {error}; {hint}", file.display())),
    }
}

/// The report of the table in force.
fn show() -> Report {
    let (plan, machine) = (copy::plan(), Machine::this());
    let file = tuned::file(&machine);
    let loaded = file.as_deref().map(|file| tuned::load(file, &machine));
    let mut ignored = Vec::new();
    let (origin, measured_s) = match plan.origin() {
        Origin::Variable(_) => ("variable", None),
        Origin::Tuned { measured_s, .. } => ("tuned", Some(*measured_s)),
        Origin::Defaults => ("defaults", None),
    };
    if let Some(name) = env::var_os("PINFOLD_COPY").filter(|_| origin != "variable") {
        let name = name.to_string_lossy();
        ignored.push(match name.parse::<Algorithm>() {
            Ok(lacking) => format!("PINFOLD_COPY={lacking}: this processor cannot do that"),
            Err(unknown) => format!("PINFOLD_COPY: {unknown}"),
        });
    }
    let kept = loaded.as_ref().is_some_and(Result::is_ok);
    if let (Some(file), Some(Err(error))) = (&file, &loaded)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        ignored.push(format!("{}: {error}; 'pinfold tune' makes a new one", file.display()));
    } else if let (Some(file), "variable", true) = (&file, origin, kept) {
        ignored.push(format!("{}: PINFOLD_COPY comes first", file.display()));
    }
    let seen = loaded.and_then(Result::ok).map(|tuned| tuned.seen).filter(|_| origin == "tuned");
    let table = plan.table().clone();
    Report {
        origin,
        kept,
        measured_s,
        seen,
        ignored,
        ..Report::new(machine, file.as_deref(), table)
    }
}

fn print(args: &TuneArgs, report: &Report) -> Result<(), End> {
    let text = if args.json {
        let text = serde_json::to_string_pretty(report);
        text.map_err(|why| format!("cannot write the report: {why}"))? + "\n"
    } else {
        text::render(report, width_of_stdout())
    };
    put("the report", &text).map_err(End::Lost)
}
