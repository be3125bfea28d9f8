//! The results, for people.

use std::fmt::Write as _;

use super::{
    cell::name,
    findings::Findings,
    record,
    ring::Lap,
    samples::{Totals, Verdict},
};
use crate::units;

/// The grid: the cells that miss an aim, or `all`, then how many do.
pub(super) fn grid(found: &Findings, all: bool) -> String {
    let mut text = head(found);
    let shown: Vec<&Verdict> = found.verdicts.iter().filter(|it| all || !it.meets()).collect();
    if !shown.is_empty() {
        let what = if all { "ALL CELLS" } else { "CELLS THAT MISS AN AIM" };
        let _ = writeln!(
            text,
            "\n{what}: time of a copy with the reading after it, and the plan's speed over the others';\n\
             then the same of what a site has learnt, which began with the plan's choice.\n\
             {:>8}  {:8}  {:11}  {:10}  {:10}  {:5}  {:>8}  {:>8}  {:26}  {:>8}  {:26}  {:>7}  {:>7}  {:>8}  {:>7}  {:>7}  {:>6}",
            "size",
            "source",
            "destination",
            "reader",
            "placement",
            "class",
            "libc",
            "plan",
            "",
            "best",
            "",
            "of best",
            "of libc",
            "learnt",
            "of best",
            "of libc",
            "rounds"
        );
        // The worst first.
        let mut shown = shown;
        if !all {
            let worst = |it: &Verdict| (it.of_best / 0.90).min(it.of_libc / 0.95);
            shown.sort_by(|a, b| worst(a).total_cmp(&worst(b)));
        }
        shown.iter().for_each(|it| row(&mut text, it));
    }
    totals(&mut text, &found.totals());
    let _ = writeln!(text, "\nThis took {}.", units::seconds(found.took));
    text
}

/// The lines before any table.
fn head(found: &Findings) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "pinfold {} on {}", env!("CARGO_PKG_VERSION"), found.machine.line());
    let _ = writeln!(text, "The plan: {}. Every copy was checked.", plan());
    if let Some(distance) = &found.distance {
        let _ = writeln!(text, "{distance}");
    }
    for note in &found.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

/// The origin of the plan, for people.
pub(super) fn plan() -> &'static str {
    match record::origin() {
        "variable" => "one algorithm for everything, by PINFOLD_COPY",
        "tuned" => "measured on this machine by pinfold tune",
        _ => "the defaults; pinfold tune measures",
    }
}

fn row(text: &mut String, it: &Verdict) {
    let percent =
        |part: f64, met: bool| format!("{:.0} %{}", part * 100.0, if met { ' ' } else { '!' });
    let _ = writeln!(
        text,
        "{:>8}  {:8}  {:11}  {:10}  {:10}  {:5}  {:>8}  {:>8}  {:26}  {:>8}  {:26}  {:>7}  {:>7}  {:>8}  {:>7}  {:>7}  {:>6}",
        units::bytes(it.cell.size),
        name(it.cell.source),
        name(it.cell.destination),
        name(it.cell.reader),
        name(it.cell.placement),
        it.class.map_or("-", |class| class.name()),
        units::time(it.libc_ns),
        units::time(it.plan.ns),
        it.plan.algorithm.to_string(),
        units::time(it.best.ns),
        it.best.algorithm.to_string(),
        percent(it.of_best, it.meets_best()),
        percent(it.of_libc, it.meets_libc()),
        // The aims are the plan's: nothing is marked.
        it.learnt.map_or("-".into(), |it| units::time(it.ns)),
        it.learnt.map_or("-".into(), |of| percent(of.of_best, true)),
        it.learnt.map_or("-".into(), |of| percent(of.of_libc, true)),
        it.rounds,
    );
}

fn totals(text: &mut String, it: &Totals) {
    text.push_str("\nTOTALS\n");
    for line in lines(it) {
        let _ = writeln!(text, "  {line}");
    }
}

/// The totals, a sentence each.
pub(super) fn lines(it: &Totals) -> Vec<String> {
    let times = |gain: Option<f64>| gain.map_or("?".into(), |gain| format!("{gain:.2}"));
    let mut lines = vec![
        format!(
            "{} of {} cells: the plan is within 10 % of the best algorithm",
            it.meet_best, it.cells
        ),
        format!("{} of {} cells: no more than 5 % slower than libc", it.meet_libc, it.cells),
        format!(
            "{} and {} of them, where a site has learnt from the copies of its cell (from 1 KiB on)",
            it.learnt_meet_best, it.learnt_meet_libc
        ),
    ];
    if it.short > 0 {
        let (met, all) = (it.short_meet_libc, it.short);
        lines.push(format!(
            "{met} of {all} cells below 256 bytes: no more than 5 % slower than libc"
        ));
    }
    if it.apart > 0 {
        lines.push(format!(
            "{} times as fast as libc, geometric mean over {} cells where a side is uncached or another \
             core reads (aim: 1.3); the best algorithm in each cell: {}",
            times(it.apart_gain),
            it.apart,
            times(it.apart_best_gain),
        ));
    }
    lines
}

/// The ring.
pub(super) fn ring(found: &Findings) -> String {
    let mut text = head(found);
    let _ = writeln!(
        text,
        "\nA RING OF TWO COPIES between two cores: bytes a second. In, then out; learnt as the \
         library's\nlanes do it, which hear of their readers' time. The last two are no copies, but bounds: what arrives is \
         only read;\nand lines are only written, with zeros, and read.\n\
         {:>8}  {:>8}  {:26}  {:26}  {:26}  {:5}  {:>7}  {:>10}  {:>7}  {:>6}",
        "size", "chunk", "who", "in", "out", "class", "hop", "bandwidth", "of libc", "rounds"
    );
    for Lap { size, chunk, name, copies, class, hop_ns, rounds, gb_s, of_libc, .. } in &found.laps {
        let _ = writeln!(
            text,
            "{:>8}  {:>8}  {name:26}  {:26}  {:26}  {:5}  {:>7}  {:>10}  {:>7}  {rounds:>6}",
            units::bytes(*size),
            units::bytes(*chunk),
            copies.into.to_string(),
            copies.out_of.map_or("-".into(), |it| it.to_string()),
            class.name(),
            units::time(*hop_ns),
            units::bandwidth(gb_s * 1e3),
            format!("{of_libc:.2}x"),
        );
    }
    let _ = writeln!(text, "\nThis took {}.", units::seconds(found.took));
    text
}
