//! `bmo-rdma`: parallel programs over plain messages, offload and RDMA (Table 7.3).

use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
};

const NOT_HERE: &str = "a cluster with such interfaces is not at hand";
/// A program, and its time with offload and with RDMA against the time without.
const PROGRAMS: [(&str, f64, f64); 5] = [
    ("bt", 1.06, 0.982),
    ("is", 0.982, 0.293),
    ("lu", 1.02, 0.848),
    ("mg", 1.38, 0.831),
    ("sp", 0.988, 0.877),
];

/// The least share of a program's time that its messages took, percent, if RDMA brought it to a
/// part `rdma`: RDMA can take no more away than that.
fn messages_min(rdma: f64) -> f64 {
    100.0 * (1.0 - rdma)
}

/// The mean saving of RDMA, percent.
fn mean_saving() -> f64 {
    let all = PROGRAMS.iter().map(|it| messages_min(it.2));
    all.sum::<f64>() / PROGRAMS.len() as f64
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    run.progress(0.0, "programs");
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Table 7.3: time against that of plain messages",
        Axis::linear("1 bt, 2 is, 3 lu, 4 mg, 5 sp"),
        Axis::linear(""),
    );
    let not = "not predicted: neither the sizes and numbers of a program's messages, nor the \
               latency of an interface, nor the share of the time that goes to messages is stated";
    for (program, offload, rdma) in PROGRAMS {
        for (series, stated) in [("TSO", offload), ("RDMA", rdma)] {
            let value = Value::new("time against the base's", series, program, "");
            outcome.values.push(value.paper(stated, "Table 7.3").note(not));
        }
        let value = Value::new("time that messages took, at least", "base", program, "%");
        outcome.values.push(value.model(messages_min(rdma)).fitted());
    }
    let points = |of: fn(&(&str, f64, f64)) -> f64| {
        PROGRAMS.iter().enumerate().map(|(at, it)| (at as f64 + 1.0, of(it))).collect()
    };
    plot.add("TSO", Column::Paper, points(|it| it.1));
    plot.add("RDMA", Column::Paper, points(|it| it.2));
    outcome.plots.push(plot);
    let value = Value::new("mean saving", "RDMA", "", "%").paper(23.0, "section 7.2.1");
    outcome.values.push(value.model(mean_saving()).fitted());
    let contradicts = |why: &str| Finding::new(Verdict::PaperContradictsItself, why);
    outcome.claims = vec![
        Claim::modelled(
            "RDMA beats plain messages in all five programs",
            Finding::not_measured(
                "nothing that the paper states lets a model predict a program's time; by its table \
                 all five are below 1",
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "RDMA saves 18 to 71 %",
            contradicts("by Table 7.3 it saves 1.8 % with bt, 71 % with is"),
            NOT_HERE,
        ),
        Claim::modelled(
            "offload saves 12 to 18 % in the two programs in which it saves anything",
            contradicts("by Table 7.3 these are is with 1.8 % and sp with 1.2 %"),
            NOT_HERE,
        ),
        Claim::modelled(
            "offload costs 2 % with bt and up to 38 % with mg",
            contradicts("by Table 7.3 it costs 6 % with bt; the 2 % are of lu"),
            NOT_HERE,
        ),
    ];
    outcome.note(
        "This experiment is a table and no reproduction. A model of an interface's cost needs the \
         messages of the five programs and the latencies of the interfaces. The programs' \
         communication is known from elsewhere, the interfaces' latency and the class, the number \
         of nodes and the link are not stated. One number for each program, the share of its \
         messages, would fit each value exactly, and would say nothing. The one thing that \
         follows is a bound: RDMA cannot take away more than the messages took, so that with is \
         they took at least 71 % of the time. It and the mean of the savings are arithmetic on the \
         paper's own values, and marked fitted for that.",
    );
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_text_and_the_ranges_are_not() {
        assert!((mean_saving() - 23.38).abs() < 0.01);
        let least = PROGRAMS.iter().map(|it| messages_min(it.2)).fold(f64::MAX, f64::min);
        assert!((least - 1.8).abs() < 1e-9, "not 18");
    }
}
