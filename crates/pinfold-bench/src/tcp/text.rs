//! The results, for people.

use std::fmt::Write as _;

use super::{
    cell::{Cell, Contestant},
    findings::{Findings, LATENCY_AIM, STREAM_AIM},
    judge::Found,
    record::in_unit,
};
use crate::{class::Class, terms::What, units};

/// All of it.
pub(super) fn text(found: &Findings) -> String {
    let mut text = format!("pinfold {} on {}\n", env!("CARGO_PKG_VERSION"), found.machine.line());
    for line in facts(found) {
        let _ = writeln!(text, "{line}");
    }
    for note in &found.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    for what in [What::Latency, What::Bandwidth] {
        let cells: Vec<Cell> = found.cells().into_iter().filter(|cell| cell.what == what).collect();
        if !cells.is_empty() {
            table(&mut text, found, what, &cells);
        }
    }
    text.push_str("\nAIMS\n");
    for line in aims(found) {
        let _ = writeln!(text, "  {line}");
    }
    let _ = writeln!(text, "\nThis took {}.", units::seconds(found.took));
    text
}

/// Facts that one must know to read it.
pub(super) fn facts(found: &Findings) -> Vec<String> {
    let mut facts = vec![
        format!("{} From core to core a cache line takes {}.", found.ground, units::time(found.hop_ns)),
        "Every message was written before it was sent and checked after it arrived (not timed), but for UCX's."
            .into(),
    ];
    let by = |(who, provider): &(Contestant, String)| {
        format!("The messages of {} go by its provider {provider}.", who.name())
    };
    facts.extend(found.providers.iter().map(by));
    facts
}

/// The heading of a measure.
pub(super) fn title(what: What) -> &'static str {
    match what {
        What::Latency => "LATENCY: one message, one way (half a round trip). Less is better.",
        _ => "STREAM: one way, bytes a second. More is better.",
    }
}

/// A time in the unit of a measure.
pub(super) fn value(cell: &Cell, ns: f64) -> String {
    match cell.what {
        What::Latency => units::time(ns),
        what => units::bandwidth(in_unit(what, cell.bytes, ns)),
    }
}

/// The distances between the cores, by turns: `9 near, 2 far`.
pub(super) fn classes(found: &Found) -> String {
    let part = |(class, count): (Class, usize)| (count > 0).then(|| format!("{count} {class}"));
    let parts = Class::ALL.into_iter().zip(found.classes).filter_map(part);
    parts.collect::<Vec<_>>().join(", ")
}

/// `1.23x`, or a dash.
pub(super) fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}x"))
}

fn table(text: &mut String, found: &Findings, what: What, cells: &[Cell]) {
    let _ = writeln!(
        text,
        "\n{}\n{:>8}  {:9} {:>10}  {:>10}  {:>10}  {:>11}  {:>7}  {:>8}  turns",
        title(what),
        "size",
        "",
        "mean",
        "median",
        "p99",
        "of spinning",
        "of best",
        "samples"
    );
    for cell in cells {
        for who in Contestant::ALL {
            let Some(it) = found.found(cell, who) else { continue };
            let _ = writeln!(
                text,
                "{:>8}  {:9} {:>10}  {:>10}  {:>10}  {:>11}  {:>7}  {:>8}  {}",
                units::bytes(cell.bytes),
                who.name(),
                value(cell, it.mean_ns),
                value(cell, it.median_ns),
                value(cell, it.p99_ns),
                times(it.of_spinning),
                times(it.of_best),
                it.samples,
                classes(it),
            );
        }
    }
}

/// The results of the aims, a sentence each.
pub(super) fn aims(found: &Findings) -> Vec<String> {
    let totals = found.totals();
    let says = |met: bool| if met { "met" } else { "missed" };
    let mut lines = Vec::new();
    if let Some(of) = totals.latency_of_spinning {
        lines.push(format!(
            "8 B take {of:.2} times as long as by spinning sockets (aim: at most {LATENCY_AIM}, {})",
            says(of <= LATENCY_AIM)
        ));
    }
    if let Some(of) = totals.stream_of_best {
        lines.push(format!(
            "a stream of 1 MiB has {of:.2} times the bandwidth of the best other (aim: at least {STREAM_AIM}, {})",
            says(of >= STREAM_AIM)
        ));
    }
    if lines.is_empty() {
        lines.push(
            "they are about 8 B to and fro and streams of 1 MiB, which were not measured".into(),
        );
    }
    lines
}
