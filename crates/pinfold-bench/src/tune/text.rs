//! The report, for people.

use std::{
    fmt::Write as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use pinfold::copy::tuned::Seen;

use super::report::{Measuring, ProbeReport, Report};
use crate::{
    console::fold::{Width, hanging},
    units,
};

/// The whole report, in lines that fit into `width`, but for the table's.
pub(super) fn render(report: &Report, width: Width) -> String {
    let mut text = String::new();
    let mut said = |head: &str, what: &str| {
        for line in hanging(head, what, width) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        }
    };
    said(&format!("pinfold {}: ", report.version), &origin(report));
    if let Some(measuring) = &report.measuring {
        said("  ", &how(measuring));
    }
    if let Some(seen) = report.seen.as_ref().filter(|seen| **seen != Seen::default()) {
        said("  ", &distance(seen));
    }
    for ignored in &report.ignored {
        said("  ignored: ", ignored);
    }
    said("  probe: ", &probe(&report.probe));
    let _ = write!(text, "\n{}", report.table);
    text
}

fn origin(report: &Report) -> String {
    let file = report.file.as_ref().map_or(String::new(), |file| file.display().to_string());
    match report.origin {
        "measured" if report.kept => format!("measured, and kept in {file}."),
        "measured" => "measured, and not kept.".into(),
        "tuned" => format!("measured {} and kept in {file}.", ago(report.measured_s)),
        "variable" => "one algorithm for everything, by PINFOLD_COPY.".into(),
        _ => "nothing was measured here: the defaults. 'pinfold tune' measures.".into(),
    }
}

fn ago(measured_s: Option<u64>) -> String {
    let then = UNIX_EPOCH + Duration::from_secs(measured_s.unwrap_or(0));
    match SystemTime::now().duration_since(then).map_or(0, |ago| ago.as_secs() / (24 * 3600)) {
        0 => "within the last day".into(),
        1 => "a day ago".into(),
        days => format!("{days} days ago"),
    }
}

fn how(it: &Measuring) -> String {
    let took = units::seconds(Duration::from_secs_f64(it.seconds));
    let mut parts = format!("{} of {} cases in {took}", it.measured, it.cases);
    if let Some(gain) = it.gain {
        let gain = units::number(gain);
        parts += "; where one side is uncached or another core reads, ";
        parts += &format!("{gain} times as fast as libc");
    }
    if let Some(why) = &it.withheld {
        parts += &format!("; how much faster than libc is withheld: {why}");
    }
    if it.measured < it.cases {
        parts += "; the others go with their neighbours, more --seconds measure them, too";
    }
    if !it.other_core {
        parts += "; there is no second processor, so the defaults hold for another core";
    }
    parts + "."
}

/// The distance of the other core.
fn distance(it: &Seen) -> String {
    let Seen { near, far, mixed } = it;
    let what = match (near, far) {
        (0, 0) => "neither near nor far, and the choice is for that",
        (_, 0) => "always near; for a far one, the defaults had a say",
        (0, _) => "always far; for a near one, the defaults had a say",
        _ => "near and far, and what is chosen is good for both",
    };
    format!("the other core was {what} ({near} cases near, {far} far, {mixed} neither).")
}

fn probe(it: &ProbeReport) -> String {
    match (it.accuracy, it.accuracy_partly, it.cost_cached_ns, it.cost_uncached_ns) {
        (Some(all), Some(partly), Some(hit), Some(miss)) => format!(
            "tells cached blocks from others: right about {:.1} % of them, {:.0} % where parts are \
             cached; {} a look at one that is cached, {} at another.",
            all * 100.0,
            partly * 100.0,
            units::time(hit),
            units::time(miss),
        ),
        _ => {
            let why = it.why.as_deref().unwrap_or("unknown");
            format!("cannot tell cached blocks from others, and is not used: {why}.")
        }
    }
}
