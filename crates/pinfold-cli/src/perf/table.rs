//! The results on standard output.

use std::fmt::Write as _;

use super::{
    args::Output,
    compare::{Row, rows},
    fail::{Fail, Result},
    findings::Findings,
    record::Record,
    terms::What,
    units,
};
use crate::{output, progress};

/// Prints what was found, as asked for.
pub(crate) fn print(findings: &Findings, output: &Output) -> Result<()> {
    let text = if output.json {
        findings.notes.iter().for_each(progress::say);
        json(&findings.collected.records())?
    } else {
        text(findings, output)
    };
    put(&text)
}

/// Writes `text` to standard output.
///
/// # Errors
/// [`Fail::Lost`].
pub(crate) fn put(text: &str) -> Result<()> {
    Ok(output::put("the results", text)?)
}

/// The failure to show what was found in one of two ways; the second's is said if both failed.
pub(crate) fn shown(first: Result<()>, second: Result<()>) -> Result<()> {
    match (first, second) {
        (Err(why), Err(another)) => {
            progress::say(another);
            Err(why)
        }
        (first, second) => first.and(second),
    }
}

/// One object a line.
fn json(records: &[Record]) -> Result<String> {
    let mut text = String::new();
    for record in records {
        let line = serde_json::to_string(record).map_err(|why| Fail::Said(why.to_string()))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// All of it, for people.
fn text(findings: &Findings, output: &Output) -> String {
    let mut text = String::new();
    let machine = findings.machine.line();
    let _ = writeln!(text, "pinfold {} on {machine}", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "{}", findings.distance());
    let _ = writeln!(text, "{} Every run's contents were checked.", findings.payload());
    for note in &findings.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    let records = findings.collected.records();
    let all = rows(&records, |cell, id| findings.collected.path_taken(cell, id));
    for what in What::ALL {
        for touched in [false, true] {
            let wanted = |row: &&Row| (row.cell.what, row.cell.touched) == (what, touched);
            let here: Vec<&Row> = all.iter().filter(wanted).collect();
            if !here.is_empty() {
                summary(&mut text, &title(what, touched && !findings.touched), &here, output.color);
            }
        }
    }
    text.push_str(LEGEND);
    if output.full {
        full(&mut text, &records);
    }
    let _ = writeln!(text, "\nThis took {}.", units::seconds(findings.took));
    text
}

const LEGEND: &str = "
memory  where Pinfold's messages lie: in ordinary memory (heap), or in an arena, which the other side
        maps; or they are memory of an arena that is given away (given), whose bytes nobody copies;
        or they are written into a region of the other side, which sees them there (put), or read out
        of it (get), or numbers are added to a word of it, by one side (fetch-add) or by both at once
        (contended), all of them (region); or they are written to an address of the other side, or
        read there: where that is mapped (mapped), by the kernel (kernel) or by the other side's
        agent (agent), a rate being that of operations of one side, each after the one before; or
        they go to handlers: a request there and its answer back, or a stream of calls (active).
        What is not Pinfold has them in ordinary memory
floor   what the bare machine does: a cache line bounced between the cores (line), a ring in shared
        memory without tags, matching or checks (ring); for an arena, and for addresses that are
        mapped, a copy out of a mapping of the other side's memory (mapping); for what is given, the line
memcpy  a copy within one process, no message at all
best    the best of process_vm_readv (cma), pipe, Unix socket (unix), loopback TCP (tcp); for an
        arena and what is given the ring, too; for what is written into a region or to an address
        process_vm_writev to a place that both know (cma-write); for active messages the Unix socket
Pinfold tagged messages through send and recv_into, in a stream many at a time
vs best how many times better Pinfold is than that; below 1.00 it is worse
near    the cores are close to each other; far: they are not, in a virtual machine that may
        change at any time; only runs of the same class are compared
";

/// The heading of a measure's table; `touched` if that is not so for all of them.
fn title(what: What, touched: bool) -> String {
    let title = match what {
        What::Latency => "LATENCY: one message, one way (half a round trip). Less is better.",
        What::Rate => "RATE: 8-byte messages one way, millions a second. More is better.",
        What::Bandwidth => "BANDWIDTH: a stream one way, bytes a second. More is better.",
        What::Bidirectional => "BOTH DIRECTIONS AT ONCE, their sum. More is better.",
        What::Cpu => {
            "PROCESSOR TIME of both processes, in a stream, waiting asleep; per message, from 4 KiB \
             on per gigabyte.\nLess is better."
        }
    };
    let touched =
        if touched { "\nEvery message written before and read after it went:" } else { "" };
    format!("{title}{touched}")
}

/// One measure: a row for each size and class.
fn summary(text: &mut String, title: &str, rows: &[&Row], color: bool) {
    let _ = writeln!(text, "\n{title}");
    let _ = writeln!(
        text,
        "{:>8}  {:5} {:6} {:>10}  {:>17}  {:>17}  {:>22}  {:>8}  {:>7}",
        "size", "class", "memory", "memcpy", "floor", "best", "Pinfold", "vs best", "of floor"
    );
    for row in rows {
        let show = |record: Option<&Record>| record.map_or("-".into(), value);
        let named = |record: Option<&Record>, width: usize| {
            let named = |r: &Record| format!("{} {:width$}", value(r), r.subject.name());
            record.map_or("-".into(), named)
        };
        let pinfold = row
            .pinfold
            .as_ref()
            .map_or("-".into(), |record| format!("{} {:9}", value(record), row.path.unwrap_or("")));
        let against_best = match row.against_best() {
            Some(ratio) => painted(&format!("{:>8}", ratio_text(ratio)), ratio, color),
            None => format!("{:>8}", "-"),
        };
        let _ = writeln!(
            text,
            "{:>8}  {:5} {:6} {:>10}  {:>17}  {:>17}  {:>22}  {against_best}  {:>7}",
            units::bytes(row.cell.size),
            row.class,
            row.group.name(),
            show(row.memcpy.as_ref()),
            named(row.floor.as_ref(), 7),
            named(row.best.as_ref(), 9),
            pinfold,
            row.of_floor().map_or("-".into(), |part| format!("{:.0} %", part * 100.0)),
        );
    }
}

/// What a record's median is, with its unit.
pub(crate) fn value(record: &Record) -> String {
    with_unit(record.what, record.size, record.median)
}

/// A value of this measure, with a unit that suits it.
pub(crate) fn with_unit(what: What, size: usize, value: f64) -> String {
    match what {
        What::Latency => units::time(value),
        What::Cpu if size >= 4096 => format!("{}/GB", units::time(value / size as f64 * 1e9)),
        What::Cpu => units::time(value),
        What::Rate => format!("{} M/s", units::number(value)),
        What::Bandwidth | What::Bidirectional => units::bandwidth(value),
    }
}

/// `2.31x`.
pub(crate) fn ratio_text(ratio: f64) -> String {
    format!("{}x", units::number(ratio))
}

/// Green where Pinfold is better, red where it is worse, by more than the noise.
fn painted(text: &str, ratio: f64, color: bool) -> String {
    match (color, ratio) {
        (true, 1.02..) => format!("\x1b[32m{text}\x1b[0m"),
        (true, ..0.98) => format!("\x1b[31m{text}\x1b[0m"),
        _ => text.into(),
    }
}

/// Every record.
fn full(text: &mut String, records: &[Record]) {
    let _ = writeln!(
        text,
        "\nEVERY SUBJECT. p99: what 99 % of the samples reached or bettered.\n{:13} {:>8}  {:5}  \
         {:7}  {:18} {:>14} {:>14} {:>8}",
        "measure", "size", "class", "touched", "subject", "median", "p99", "samples"
    );
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|r| (r.what, r.touched, r.size, r.class, r.id()));
    for record in sorted {
        let _ = writeln!(
            text,
            "{:13} {:>8}  {:5}  {:7}  {:18} {:>14} {:>14} {:>8}",
            record.what.name(),
            units::bytes(record.size),
            record.class,
            if record.touched { "yes" } else { "no" },
            record.id(),
            value(record),
            with_unit(record.what, record.size, record.p99),
            record.n,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::testing;

    #[test]
    fn the_table_says_what_was_found() {
        let findings = testing::findings();
        let output = Output { json: false, html: None, full: true, color: false };
        let text = text(&findings, &output);
        assert!(!text.contains('\x1b'));
        // 8 bytes near: Pinfold 80 ns over inline, a pipe 800 ns, the line 50 ns.
        let row = text.lines().find(|line| line.contains("80.0 ns inline")).unwrap();
        for part in ["8 B", "near", "800 ns pipe", "50.0 ns line", "10.0x", "62 %"] {
            assert!(row.contains(part), "{part} in {row}");
        }
        // Nothing is compared across classes.
        let summaries = text.split_once("EVERY SUBJECT").unwrap().0;
        assert!(!summaries.contains("8 B  far"), "{text}");
        let alone = summaries.lines().find(|line| line.contains("8 B  mixed")).unwrap();
        // Where messages lie, and what is touched although not all is.
        let arena: Vec<&str> = summaries
            .lines()
            .filter(|line| line.contains("  near") && line.contains(" arena "))
            .collect();
        assert_eq!(arena.len(), 2, "{text}");
        assert!(arena[0].contains("mapping") && arena[0].contains("3.00x"), "{text}");
        assert!(summaries.contains("written before and read after it went:"), "{text}");
        assert!(alone.contains("-") && !alone.contains("x "), "{alone}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn colours_follow_the_ratio() {
        assert_eq!(painted("a", 2.0, false), "a");
        assert!(painted("a", 2.0, true).contains("32m"));
        assert!(painted("a", 0.5, true).contains("31m"));
        assert_eq!(painted("a", 1.0, true), "a");
    }
}
