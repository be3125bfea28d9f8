//! The results on standard output.

use std::{fmt::Write as _, path::PathBuf};

use super::{
    args::Output,
    behind::behind,
    compare::{Row, rows},
    fail::{Fail, Result},
    findings::Findings,
    html, marks,
    record::Record,
    terms::{Cell, Kind, Setting, What},
    units,
};
use crate::console::{output, progress};

/// Prints the findings, as asked for.
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

/// A file that may be wanted, and its contents.
pub(crate) type Wanted<'a> = (&'a Option<PathBuf>, &'a dyn Fn() -> Result<String>);

/// Shows results as text, and in the files that were asked for, each with contents of its own. If
/// one way fails, the others still show them.
pub(crate) fn show(text: &str, files: &[Wanted<'_>]) -> Result<()> {
    let written = files.iter().map(|(file, contents)| match file {
        Some(file) => html::put(&contents()?, file),
        None => Ok(()),
    });
    written.fold(put(text), shown)
}

/// The failure to show the findings in one of two ways; if both failed, the second's.
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

/// All tables, for people.
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
    worst(&mut text, &all, output.color);
    for theme in Theme::all() {
        let here: Vec<&Row> = all.iter().filter(|row| theme.has(row.cell)).collect();
        if !here.is_empty() {
            summary(&mut text, &title(theme, findings.touched), &here, output.color);
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
memcpy  a copy within one process, no message at all; --full and --html show it
best    the best of process_vm_readv (cma), pipe, Unix socket (unix), loopback TCP (tcp); for an
        arena and what is given the ring, too; for what is written into a region or to an address
        process_vm_writev to a place that both know (cma-write); for active messages the Unix socket
Pinfold tagged messages through send and recv_into, in a stream many at a time
        Every figure is a mean: all the time over all messages. median and p99 are Pinfold's, of
        samples; where a message takes below a microsecond, a sample is the mean of 64 round trips
vs best how many times better Pinfold's mean is than that of the best; below 1.00 it is worse
!       a mean and a median in this row differ by more than 1.5 times
?       a figure in this row rests on fewer than 100 samples, although its messages are short
        The settings of a table are said in its heading; --settings and --help tell more of them
near    the cores are close to each other; far: they are not, in a virtual machine that may
        change at any time; only runs of the same class are compared
";

/// The properties that the rows of one table share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) what: What,
    pub(crate) setting: Setting,
    pub(crate) touched: bool,
}

impl Theme {
    /// All of them, in the order of their tables.
    pub(crate) fn all() -> impl Iterator<Item = Theme> {
        let of = |what| Setting::ALL.map(|setting| (what, setting));
        What::ALL.into_iter().flat_map(of).flat_map(|(what, setting)| {
            [false, true].map(|touched| Theme { what, setting, touched })
        })
    }

    /// Returns whether a row belongs to it.
    pub(crate) fn has(self, cell: Cell) -> bool {
        self == Theme { what: cell.what, setting: cell.setting, touched: cell.touched }
    }

    /// The lines below its heading: that messages are touched, if not `all_touched` are, and the
    /// circumstances under which they go.
    pub(crate) fn circumstances(self, all_touched: bool) -> impl Iterator<Item = &'static str> {
        let touched = (self.touched && !all_touched)
            .then_some("Every message written before and read after it went:");
        let setting = (self.setting != Setting::Alone).then_some(self.setting.title());
        setting.into_iter().chain(touched)
    }
}

/// The heading of a table.
fn title(theme: Theme, all_touched: bool) -> String {
    let title = match theme.what {
        What::Latency => "LATENCY: one message, one way (half a round trip). Less is better.",
        What::Rate => "RATE: 8-byte messages one way, millions a second. More is better.",
        What::Bandwidth => "BANDWIDTH: a stream one way, bytes a second. More is better.",
        What::Bidirectional => "BOTH DIRECTIONS AT ONCE, their sum. More is better.",
        What::Cpu if theme.setting == Setting::Paced => {
            "PROCESSOR TIME of both processes per message, the sender's own sleeps among it. Less is better."
        }
        What::Cpu => {
            "PROCESSOR TIME of both processes, in a stream, waiting asleep; per message, from 4 KiB \
             on per gigabyte.\nLess is better."
        }
    };
    let lines = std::iter::once(title).chain(theme.circumstances(all_touched));
    lines.collect::<Vec<_>>().join("\n")
}

/// The rows in which Pinfold is behind, the worst first.
fn worst(text: &mut String, rows: &[Row], color: bool) {
    let behind = behind(rows);
    let _ = writeln!(text, "\nWHERE PINFOLD IS BEHIND: {}.", behind.summary());
    for (ratio, row) in &behind.worst {
        let ratio = painted(&format!("{:>8}", ratio_text(*ratio)), *ratio, color);
        let line = format!("{ratio}  {} {}", comparison(row), marks::of(row.records()));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// The comparison that a row makes, in words.
pub(crate) fn comparison(row: &Row) -> String {
    let named = |record: Option<&Record>, name: &str| {
        record.map_or("-".into(), |record| format!("{} {name}", value(record)))
    };
    let best = row.best.as_ref();
    format!(
        "{} {}: {}, beside {}",
        row.cell.what.name(),
        place(row),
        named(row.pinfold.as_ref(), row.path.unwrap_or("pinfold")),
        named(best, best.map_or("", |best| best.subject.name())),
    )
}

/// The place of a row within its measure, in words.
fn place(row: &Row) -> String {
    let touched = if row.cell.touched { ", touched" } else { "" };
    let size = units::bytes(row.cell.size);
    let setting = match row.cell.setting {
        Setting::Alone => String::new(),
        other => format!(", {}", other.name()),
    };
    format!("{size}, {}, {}{touched}{setting}", row.group.name(), row.class)
}

/// Columns of a measure's table.
struct Columns {
    /// For a value.
    value: usize,
    /// For the floor.
    floor: usize,
}

impl Columns {
    /// So that lines have 120 characters at most.
    const fn of(what: What) -> Columns {
        match what {
            // Processor time is given for a gigabyte, which takes a column more; and it has no
            // floor.
            What::Cpu => Columns { value: 10, floor: 15 },
            _ => Columns { value: 9, floor: 17 },
        }
    }
}

/// Columns for a mean and the name of an alternative or a path.
const NAMED: usize = 19;

/// One measure: a row for each size and class.
fn summary(text: &mut String, title: &str, rows: &[&Row], color: bool) {
    let Some(what) = rows.first().map(|row| row.cell.what) else { return };
    let Columns { value: values, floor: floors } = Columns::of(what);
    let _ = writeln!(text, "\n{title}");
    let _ = writeln!(
        text,
        "{:>8} {:5} {:6} {:>floors$} {:>NAMED$} {:>NAMED$} {:>values$} {:>values$} {:>7} {:>8}",
        "size",
        "class",
        "memory",
        "floor",
        "best",
        "Pinfold",
        "median",
        "p99",
        "vs best",
        "of floor"
    );
    for row in rows {
        let against_best = match row.against_best() {
            Some(ratio) => painted(&format!("{:>7}", ratio_text(ratio)), ratio, color),
            None => format!("{:>7}", "-"),
        };
        let of = |value: fn(&Record) -> f64| {
            let shown = |r: &Record| with_unit(r.what, r.size, value(r));
            row.pinfold.as_ref().map_or("-".into(), shown)
        };
        let named = |record: Option<&Record>, name: &str, width: usize| {
            let names = width - values - 1;
            record.map_or("-".into(), |r| format!("{:>values$} {name:names$}", value(r)))
        };
        let (floor, best) = (row.floor.as_ref(), row.best.as_ref());
        let line = format!(
            "{:>8} {:5} {:6} {:>floors$} {:>NAMED$} {:>NAMED$} {:>values$} {:>values$} \
             {against_best} {:>8} {}",
            units::bytes(row.cell.size),
            row.class,
            row.group.name(),
            named(floor, floor.map_or("", |r| r.subject.name()), floors),
            named(best, best.map_or("", |r| r.subject.name()), NAMED),
            named(row.pinfold.as_ref(), row.path.unwrap_or(""), NAMED),
            of(|r| r.median),
            of(|r| r.p99),
            row.of_floor().map_or("-".into(), |part| format!("{:.0} %", part * 100.0)),
            marks::of(row.records()),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for line in rows.iter().filter_map(|row| uneven(row)) {
        let _ = writeln!(text, "! {line}");
    }
}

/// The means of a row that are far from their medians, in words.
pub(crate) fn uneven(row: &Row) -> Option<String> {
    let of = |record: &Record| {
        let worse = ratio_text(marks::unevenness(record)?);
        Some(match record.subject {
            Kind::Pinfold => format!("Pinfold {worse}"),
            other => format!("{} {worse}", other.name()),
        })
    };
    let said: Vec<String> = row.records().filter_map(of).collect();
    let place = place(row);
    (!said.is_empty())
        .then(|| format!("{place}: worse in the mean than in the middle: {}", said.join(", ")))
}

/// The mean of a record, with its unit.
pub(crate) fn value(record: &Record) -> String {
    with_unit(record.what, record.size, record.mean)
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

/// Green if Pinfold is better, red if it is worse, by more than the noise.
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
         {:7}  {:9} {:18} {:>12} {:>12} {:>12} {:>8}",
        "measure",
        "size",
        "class",
        "touched",
        "setting",
        "subject",
        "mean",
        "median",
        "p99",
        "samples"
    );
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|r| (r.what, r.setting, r.touched, r.size, r.class, r.id()));
    for record in sorted {
        let _ = writeln!(
            text,
            "{:13} {:>8}  {:5}  {:7}  {:9} {:18} {:>12} {:>12} {:>12} {:>8} {}",
            record.what.name(),
            units::bytes(record.size),
            record.class,
            if record.touched { "yes" } else { "no" },
            record.setting.name(),
            record.id(),
            value(record),
            with_unit(record.what, record.size, record.median),
            with_unit(record.what, record.size, record.p99),
            record.n,
            marks::of(std::iter::once(record)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        class::Class,
        terms::{Id, Route},
        testing,
    };

    #[test]
    fn the_table_says_what_was_found() {
        let findings = testing::findings();
        let output = Output { json: false, html: None, full: true, color: false };
        let text = text(&findings, &output);
        assert!(!text.contains('\x1b'));
        // 8 bytes near: Pinfold 80, 80 and 160 ns over inline, a pipe 800 ns, the line 50 ns.
        let row = text.lines().find(|line| line.contains(" 107 ns inline")).unwrap();
        for part in
            ["8 B", "near", "800 ns pipe", "50.0 ns line", "80.0 ns", "160 ns", "7.50x", "47 %"]
        {
            assert!(row.contains(part), "{part} in {row}");
        }
        // All figures rest on few samples.
        assert!(row.ends_with(" ?"), "{row}");
        // Circumstances that are out of the ordinary have a table of their own.
        let beside = text.split_once("Beside a third process").unwrap().1;
        assert!(beside.lines().nth(2).unwrap().contains("9.00 µs auto"), "{text}");
        // Nothing is compared across classes.
        let summaries = text.split_once("EVERY SUBJECT").unwrap().0;
        assert!(!summaries.contains("8 B far"), "{text}");
        let alone = summaries.lines().find(|line| line.contains(" 25.0 M/s auto")).unwrap();
        // The memory of messages, and the rows that are touched although not all are.
        let arena: Vec<&str> = summaries
            .lines()
            .filter(|line| line.contains(" near ") && line.contains(" arena "))
            .collect();
        assert_eq!(arena.len(), 2, "{text}");
        assert!(arena[0].contains("mapping") && arena[0].contains("3.00x"), "{text}");
        assert!(summaries.contains("written before and read after it went:"), "{text}");
        assert!(alone.contains("-") && !alone.contains("x "), "{alone}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn where_pinfold_is_behind_comes_first() {
        let output = Output { json: false, html: None, full: false, color: false };
        let text = text(&testing::findings(), &output);
        let (before, after) = text.split_once("WHERE PINFOLD IS BEHIND: in ").unwrap();
        assert!(!before.contains("LATENCY"), "{text}");
        let listed: Vec<&str> = after.lines().skip(1).take_while(|line| !line.is_empty()).collect();
        let stream =
            listed.iter().find(|line| line.contains("bandwidth 1 MiB, heap, near")).unwrap();
        assert!(listed.iter().any(|line| line.contains("latency 8 B, heap, mixed, neighbour")));
        for part in ["0.50x", "5.24 GB/s", "beside 10.5 GB/s cma"] {
            assert!(stream.contains(part), "{stream}");
        }
    }

    #[test]
    fn stalls_are_named_below_their_table() {
        let mut findings = testing::findings();
        let cell = Cell::alone(What::Latency, 8, false);
        // One message of a thousand takes a millisecond.
        let mut ps = vec![80_000; 999];
        ps.push(1_000_000_000);
        let auto = Id::pinfold(Route::Auto);
        findings.collected.add(cell, auto, Class::Near, &testing::samples(&ps));
        let output = Output { json: false, html: None, full: true, color: false };
        let text = text(&findings, &output);
        let row = text.lines().find(|line| line.contains("8 B near ")).unwrap();
        assert!(row.contains("1.08 µs inline") && row.contains("80.0 ns"), "{row}");
        assert!(row.contains("0.74x") && row.ends_with("?!"), "{row}");
        let named = text.lines().find(|line| line.starts_with("! ")).unwrap();
        assert!(
            named.contains("8 B, heap, near: worse in the mean than in the middle: Pinfold 13.5x"),
            "{named}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn the_widest_row_fits() {
        let mut findings = testing::findings();
        let cell = Cell::alone(What::Cpu, 123_457, false);
        let auto = Id::pinfold(Route::Auto);
        findings.collected.add(cell, auto, Class::Mixed, &testing::samples(&[123_456_789_000]));
        findings.collected.add(
            cell,
            Id::plain(Kind::Unix),
            Class::Mixed,
            &testing::samples(&[10, 123_456_789_000]),
        );
        let output = Output { json: false, html: None, full: true, color: false };
        let text = text(&findings, &output);
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
