//! `pinfold lab`: the papers' experiments. All that they are and do is in [`pinfold_lab`].
//!
//! - [`args`]: the options. [`text`]: results for people. [`bar`]: progress.
//! - [`workload`]: `pinfold lab workload`, parallel programs run by processes.
//! - [`size`]: `pinfold lab size`, its options and its text.

mod args;
mod bar;
mod size;
mod text;
mod workload;

use std::process::ExitCode;

use pinfold_bench::{html, machine::Machine};
use pinfold_lab::{
    LabError, compare,
    experiment::Experiment,
    registry, report,
    runner::{self, Ran},
    size::Wrong,
    store::{Store, Terms},
    table,
};
use serde_json::json;

pub(crate) use args::LabArgs;

use self::args::{Action, CompareArgs, ListArgs, ReportArgs, RunArgs, TermsArgs};
use crate::{
    exit::{self, End},
    fold::width_of_stdout,
    output::{Lost, put},
    progress::say,
};

/// The reason why there is no good result.
enum Fail {
    /// The command line names what is not there.
    Usage(LabError),
    /// The program that is to be sized makes no sense.
    Inputs(Wrong),
    /// The experiment or a file failed.
    Lab(LabError),
    /// A workload that makes no sense.
    Words(String),
    /// Claims fail in their models, or two results differ. It has been printed.
    Told,
    /// The output is lost.
    Lost(Lost),
    /// Anything else that needs a sentence.
    Said(String),
}

impl From<LabError> for Fail {
    fn from(why: LabError) -> Fail {
        match why {
            LabError::Unknown(_) | LabError::Nothing { .. } => Fail::Usage(why),
            why => Fail::Lab(why),
        }
    }
}

impl From<Wrong> for Fail {
    fn from(why: Wrong) -> Fail {
        Fail::Inputs(why)
    }
}

impl From<Lost> for Fail {
    fn from(lost: Lost) -> Fail {
        Fail::Lost(lost)
    }
}

/// Runs `pinfold lab`.
#[inline(never)]
pub(crate) fn run(args: &LabArgs) -> ExitCode {
    let done = match &args.action {
        Action::List(args) => list(args),
        Action::Run(args) => run_some(args),
        Action::Report(args) => report(args),
        Action::Compare(args) => compare(args),
        Action::Size(args) => size::size(args),
        Action::Workload(args) => workload::workload(args),
        Action::Rank => workload::rank(),
        Action::Sends(args) => workload::sends(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Fail::Usage(why)) => exit::usage(why),
        Err(Fail::Inputs(why)) => exit::usage(why),
        Err(Fail::Words(why)) => exit::usage(why),
        Err(Fail::Lab(why)) => exit::failed(why),
        Err(Fail::Told) => ExitCode::FAILURE,
        Err(Fail::Lost(lost)) => exit::end(Err(End::Lost(lost))),
        Err(Fail::Said(why)) => exit::failed(why),
    }
}

fn list(args: &ListArgs) -> Result<(), Fail> {
    let line = |one: &Experiment| {
        let object = json!({
            "id": one.id, "paper": one.paper.title(), "title": one.title, "what": one.what,
            "claim": one.claim,
        });
        format!("{object}\n")
    };
    let text: String = match args.json {
        true => registry::all().map(line).collect(),
        false => text::list(width_of_stdout()),
    };
    Ok(put("the list", &text)?)
}

fn run_some(args: &RunArgs) -> Result<(), Fail> {
    let experiments = registry::find(&args.ids)?;
    let all = results(&experiments, &args.terms, &Store::at(&args.out))?;
    let text = if args.json {
        let lines = all.iter().map(|ran| table::json(&ran.record));
        let lines: Result<String, _> = lines.collect();
        lines.map_err(|why| Fail::Said(format!("the results are no JSON: {why}")))?
    } else {
        text::results(&all, &args.out, width_of_stdout())
    };
    put("the results", &text)?;
    judge(&all)
}

/// The results of experiments: those that are kept, and new ones.
fn results(
    experiments: &[&'static Experiment],
    terms: &TermsArgs,
    store: &Store,
) -> Result<Vec<Ran>, LabError> {
    let machine = Machine::look([None; 2]).alone();
    let again = terms.again;
    let terms = Terms { depth: terms.depth(), seed: terms.seed, here: !terms.no_here, machine };
    let mut bar = bar::Bar::new();
    runner::run(experiments, &terms, store, again, &mut |progress| bar.show(progress))
}

/// Fails if a claim fails in its model.
fn judge(all: &[Ran]) -> Result<(), Fail> {
    let failed: Vec<&str> = all
        .iter()
        .filter(|ran| ran.record.outcome.is_failed())
        .map(|ran| ran.record.id.as_str())
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    say(format_args!("claims fail in the models of {}", failed.join(", ")));
    Err(Fail::Told)
}

fn report(args: &ReportArgs) -> Result<(), Fail> {
    let experiments: Vec<_> = registry::all().collect();
    let all = results(&experiments, &args.terms, &Store::at(&args.results))?;
    let records: Vec<_> = all.iter().map(|ran| ran.record.clone()).collect();
    let written = html::replace(&args.out, report::page(&records).as_bytes());
    let out = args.out.display();
    written.map_err(|why| Fail::Said(format!("cannot write {out}: {why}")))?;
    put("the report", &format!("{} experiments are in {out}\n", records.len()))?;
    judge(&all)
}

fn compare(args: &CompareArgs) -> Result<(), Fail> {
    let read = |path| compare::read(path).map_err(Fail::Usage);
    let (one, two) = (read(&args.one)?, read(&args.two)?);
    let lines = compare::differences(&one, &two, args.noise / 100.0);
    if lines.is_empty() {
        return Ok(put("the comparison", "nothing differs\n")?);
    }
    put("the comparison", &(lines.join("\n") + "\n"))?;
    Err(Fail::Told)
}
