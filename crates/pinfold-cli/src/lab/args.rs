//! The options of `pinfold lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use pinfold_lab::experiment::{Depth, SEED};

/// Reproduce the results of the papers behind Pinfold, by model and on this machine
#[derive(Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Subcommand)]
pub(super) enum Action {
    List(ListArgs),
    Run(RunArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
    Size(super::size::SizeArgs),
    Workload(super::workload::WorkloadArgs),
    /// A process of a workload, started by `pinfold lab workload`
    #[command(hide = true)]
    Rank,
    #[command(hide = true)]
    Sends(super::workload::SendsArgs),
}

/// List all experiments, with their claims
#[derive(Args)]
pub(super) struct ListArgs {
    /// Print one JSON object a line
    #[arg(long)]
    pub(super) json: bool,
}

/// Run experiments, and keep their results
///
/// A result that is there already, of the same version, seed and depth, and of this machine, is not
/// got again: a run that was interrupted goes on where it was.
#[derive(Args)]
#[command(after_help = RUN_AFTER)]
pub(super) struct RunArgs {
    /// Experiments, papers (such as ape for all of its experiments), or all
    #[arg(required = true, value_name = "ID")]
    pub(super) ids: Vec<String>,

    #[command(flatten)]
    pub(super) terms: TermsArgs,

    /// The folder that the results are kept in
    #[arg(long, value_name = "DIR", default_value = "pinfold-lab")]
    pub(super) out: PathBuf,

    /// Print one JSON object a line instead of text
    #[arg(long)]
    pub(super) json: bool,
}

/// The terms of results.
#[derive(Args)]
pub(super) struct TermsArgs {
    /// Enough to judge every claim, in seconds; the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// All points of the papers' axes, and longer measurements
    #[arg(long)]
    full: bool,

    /// The models alone; nothing is measured on this machine
    #[arg(long)]
    pub(super) no_here: bool,

    /// The seed of all randomness in models
    #[arg(long, value_name = "NUMBER", default_value_t = SEED)]
    pub(super) seed: u64,

    /// Run what is there already, too
    #[arg(long)]
    pub(super) again: bool,
}

impl TermsArgs {
    /// How much is run.
    pub(super) fn depth(&self) -> Depth {
        if self.full { Depth::Full } else { Depth::Quick }
    }
}

const RUN_AFTER: &str = "\
Examples:
  pinfold lab run ape-system
  pinfold lab run all --quick
  pinfold lab run pm --full --out results --json | jq .outcome.claims

Text: for each experiment its score and claims, and the table if it is the only one.
Files in the folder of --out: ID-DEPTH.json, and the table as ID-DEPTH.csv.

Fields of --json, which are those of the files, too:
  format, id, version, depth, seed, here (whether this machine was to be measured), machine, took_s
  outcome.values   quantity, series, at, unit; paper (value, place), model, here: null where there
                   is none; aim: predicted, fitted (counts for nothing), or contradicted (why); note
  outcome.claims   sentence; model and here: verdict (holds, fails, fitted,
                   paper_contradicts_itself or not_measured) and why
  outcome.plots, outcome.notes

Exit status:
  0  every claim that a model can judge holds there
  1  a claim fails in its model, or an experiment failed, or a result could not be kept or printed
  2  the command line makes no sense, or names an experiment that is none";

/// Write all results into one HTML file, running what is not there yet
#[derive(Args)]
#[command(after_help = REPORT_AFTER)]
pub(super) struct ReportArgs {
    #[command(flatten)]
    pub(super) terms: TermsArgs,

    /// The folder of the results, as run has made it
    #[arg(long, value_name = "DIR", default_value = "pinfold-lab")]
    pub(super) results: PathBuf,

    /// The page; it needs no other file
    #[arg(long, value_name = "FILE", default_value = "pinfold-lab.html")]
    pub(super) out: PathBuf,
}

const REPORT_AFTER: &str = "\
Examples:
  pinfold lab report
  pinfold lab report --full --out lab.html

Exit status: as that of pinfold lab run; the page is written even if a claim fails.";

/// Name what differs between two results, or two folders of results
#[derive(Args)]
#[command(after_help = COMPARE_AFTER)]
pub(super) struct CompareArgs {
    /// A file or a folder of results
    #[arg(value_name = "A")]
    pub(super) one: PathBuf,

    /// Another one
    #[arg(value_name = "B")]
    pub(super) two: PathBuf,

    /// Measurements of machines that differ by less than so many per cent are taken as alike
    #[arg(long, value_name = "PERCENT", default_value_t = 10.0)]
    pub(super) noise: f64,
}

const COMPARE_AFTER: &str = "\
Examples:
  pinfold lab compare before after
  pinfold lab compare pinfold-lab/pm-pin-quick.json other/pm-pin-quick.json --noise 5

Exit status:
  0  nothing differs
  1  something differs; each difference is a line: the first's value / the second's
  2  the command line makes no sense, or a path has no results";
