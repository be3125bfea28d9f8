//! `bmo-profile`: how much kernels copy, and what for (Table 3.1).

use super::tables::PROGRAMS;
use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const NOT_HERE: &str = "a kernel's copies cannot be profiled without privilege";
const KINDS: [&str; 4] = ["bzero", "bcopy", "copyin", "copyout"];

/// The share of all cycles that are the kernel's, percent: what two columns of the table imply.
fn of_kernel([kernel, total]: [f64; 2]) -> f64 {
    100.0 * total / kernel
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    run.progress(0.0, "table");
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Table 3.1: share of cycles that copies take",
        Axis::linear("1 compile, 2 PostMark, 3 bw_pipe, 4 Netperf, 5 Chat"),
        Axis::linear("%"),
    );
    let not = "not predicted: it is a profile of one kernel, and the programs' own";
    let (mut kernel, mut total, mut implied) = (Vec::new(), Vec::new(), Vec::new());
    for (at, program) in PROGRAMS.iter().enumerate() {
        for (kind, share) in KINDS.into_iter().zip(program.kinds) {
            let value = Value::new("copies by type", program.name, kind, "%");
            outcome.values.push(value.paper(share, "Table 3.1").note(not));
        }
        for (of, share) in ["kernel", "all"].into_iter().zip(program.cycles) {
            let value = Value::new("cycles spent copying", program.name, of, "%");
            outcome.values.push(value.paper(share, "Table 3.1").note(not));
        }
        let share = of_kernel(program.cycles);
        let value = Value::new("cycles of the kernel", program.name, "all", "%");
        outcome.values.push(value.model(share).fitted());
        kernel.push((at as f64 + 1.0, program.cycles[0]));
        total.push((at as f64 + 1.0, program.cycles[1]));
        implied.push((at as f64 + 1.0, share));
    }
    let most = implied.iter().map(|it| it.1).fold(0.0, f64::max);
    let least = implied.iter().map(|it| it.1).fold(f64::INFINITY, f64::min);
    plot.add("of the kernel's", Column::Paper, kernel);
    plot.add("of all", Column::Paper, total);
    plot.add("the kernel's of all, implied", Column::Model, implied);
    outcome.plots.push(plot);
    outcome.claims = vec![
        Claim::modelled(
            "up to half of the time and more goes to block memory operations of the kernel",
            Finding::not_measured(
                "a profile cannot be predicted from the paper's parameters; its table has 3.1 to \
                 74.0 %",
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "the table's two shares fit together",
            Finding::of(
                most <= 100.0,
                format!("they imply that {least:.0} to {most:.0} % of all cycles are the kernel's"),
            ),
            NOT_HERE,
        ),
    ];
    outcome.note(
        "This experiment is the paper's table and no reproduction: its kernel, FreeBSD on an \
         Opteron, and its runs of five programs are not at hand, and nothing in the paper would \
         let a model predict how often they copy. The shares are what `bmo-select` takes its \
         bounds from. The one number that is derived is arithmetic, and marked fitted.",
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_share_is_implied() {
        assert!((of_kernel([50.0, 25.0]) - 50.0).abs() < 1e-12);
    }
}
