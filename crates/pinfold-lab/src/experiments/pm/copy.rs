//! `pm-copy`: bandwidth of copies beyond the cache (Table 1).

use crate::{
    LabError,
    experiment::Run,
    here::copying::{Bandwidth, beyond_caches},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

/// The machines of Table 1: minimum and maximum, MB/s.
const TABLE_1: [(&str, f64, f64); 5] = [
    ("SS20/71, 75 MHz", 13.2, 25.8),
    ("Ultra SPARC, 170 MHz", 188.0, 205.5),
    ("Alpha PC, 433 MHz", 79.6, 124.4),
    ("Pentium, 166 MHz", 31.0, 31.5),
    ("Pentium Pro, 200 MHz", 52.3, 48.7),
];
/// PM's bandwidth without copies (section 2), MB/s.
const NETWORK: f64 = 119.0;
/// A network of today, 100 Gbit/s, MB/s.
const NETWORK_TODAY: f64 = 12_500.0;

/// Runs the experiment.
///
/// # Errors
/// A byte of a copy came out wrong.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    // More than the last cache of most machines; the report says how much.
    let (bytes, turns) = run.pick((64 << 20, 2), (256 << 20, 15));
    let here = match run.here() {
        true => Some(beyond_caches(bytes, turns)),
        false => None,
    };
    let here = here.transpose().map_err(|why| LabError::Failed { id: "pm-copy", why })?;
    let mut outcome = Outcome::new();
    for (machine, least, most) in TABLE_1 {
        for (at, rate) in [("minimum", least), ("maximum", most)] {
            let value = Value::new("copying", machine, at, "MB/s").paper(rate, "Table 1");
            outcome.values.push(match least > most {
                true => value.contradicted("the table's minimum is above its maximum"),
                false => value,
            });
        }
    }
    if let Some(Bandwidth { least, most }) = here {
        for (at, rate) in [("minimum", least), ("maximum", most)] {
            outcome.values.push(Value::new("copying", "this machine", at, "MB/s").here(rate));
        }
    }
    outcome.plots.push(plot(here));
    let below = TABLE_1.iter().filter(|row| row.1.max(row.2) < NETWORK).count();
    let not_modelled = |why: String| {
        let none = "no memory system of the five machines is described, so there is no model";
        format!("{none}; {why}")
    };
    let spread = 205.5 / 13.2;
    let claim = Claim::modelled(
        "copying is slower than the network",
        Finding::not_measured(not_modelled(format!(
            "by Table 1 itself it is on {below} of 5 machines, whatever the alignment (119 MB/s)"
        ))),
        "it was not asked for",
    );
    outcome.claims = vec![
        match here {
            None => claim,
            Some(Bandwidth { most, .. }) => claim.and_here(Finding::of(
                most < NETWORK_TODAY,
                format!("{most:.0} MB/s at best, against {NETWORK_TODAY:.0} MB/s of 100 Gbit/s"),
            )),
        },
        Claim::modelled(
            "the bandwidth of copies depends heavily on the machine",
            Finding::not_measured(not_modelled(format!(
                "by Table 1 itself the fastest copies {spread:.0} times as fast as the slowest"
            ))),
            "one machine cannot tell",
        ),
    ];
    outcome.note(format!(
        "Here, blocks of {} MiB are copied by the library's plan for uncached blocks, to four \
         offsets within a line; every copy is checked. The paper's row of the Pentium Pro has its \
         columns the wrong way round, 52.3 and 48.7; pm-band and pm-mpi take the mean.",
        bytes >> 20
    ));
    Ok(outcome)
}

fn plot(here: Option<Bandwidth>) -> Plot {
    let mut plot = Plot::new(
        "Table 1: copies beyond the cache. 1 SS20/71, 2 Ultra SPARC, 3 Alpha PC, 4 Pentium, 5 \
         Pentium Pro, 6 this machine",
        Axis::linear("machine"),
        Axis::log("MB/s"),
    );
    let machines = || (1..).map(f64::from).zip(TABLE_1);
    let least: Vec<_> = machines().map(|(at, row)| (at, row.1.min(row.2))).collect();
    let most: Vec<_> = machines().map(|(at, row)| (at, row.1.max(row.2))).collect();
    plot.add("minimum", Column::Paper, least);
    plot.add("maximum", Column::Paper, most);
    if let Some(Bandwidth { least, most }) = here {
        plot.add("minimum", Column::Here, vec![(6.0, least)]);
        plot.add("maximum", Column::Here, vec![(6.0, most)]);
    }
    plot
}
