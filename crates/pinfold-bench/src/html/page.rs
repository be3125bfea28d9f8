//! The page.

use std::fmt::Write as _;

use super::{STYLE, escaped, plot};
use crate::{
    behind::behind,
    class::Class,
    compare::{Row, rows},
    findings::Findings,
    marks,
    record::Record,
    table::{self, Theme},
    terms::{Group, Setting, What},
    units,
};

/// All of it.
pub(super) fn page(findings: &Findings) -> String {
    let records = findings.collected.records();
    let rows = rows(&records, |cell, id| findings.collected.path_taken(cell, id));
    let mut page = String::new();
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>pinfold perf</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>pinfold perf</h1>\n"
    );
    head(&mut page, findings);
    worst(&mut page, &rows);
    for class in Class::ALL {
        if records.iter().any(|record| record.class == class) {
            plots(&mut page, findings, &records, &rows, class);
        }
    }
    summary(&mut page, &rows, findings.touched);
    every(&mut page, &records);
    page.push_str("</body>\n</html>\n");
    page
}

/// The measurements, the machine, and facts that readers must know.
fn head(page: &mut String, findings: &Findings) {
    let _ = writeln!(
        page,
        "<p class=\"facts\">pinfold {} on {}<br/>{}<br/>{} Every run's contents were checked. \
         It took {}.</p>",
        env!("CARGO_PKG_VERSION"),
        escaped(&findings.machine.line()),
        escaped(&findings.distance()),
        escaped(findings.payload()),
        units::seconds(findings.took),
    );
    for note in &findings.notes {
        let _ = writeln!(page, "<p class=\"note\">{}</p>", escaped(note));
    }
    page.push_str(
        "<p class=\"hint\">Two processes exchange messages. All subjects took turns in the same \
         run. <em>line</em>, <em>ring</em> and <em>memcpy</em> (dashed) are what the bare machine \
         does: a cache line bounced between the cores, a ring in shared memory without tags, \
         matching or checks, and a copy within one process; so is <em>mapping</em>, a copy out of \
         memory of the other side that this side maps. With <em>arena</em> Pinfold's messages lie \
         in memory that the other side can map, otherwise in ordinary memory; with <em>handoff</em> \
         they are such memory, given away; with <em>put</em> they are written into memory of the \
         other side; with <em>get</em> they are read out of memory of the other side; with \
         <em>fetch-add</em> numbers are added to a word there, with <em>contended</em> by both sides \
         at once; with <em>write</em> and <em>read</em> it is by an address of the other side's, in an \
         arena, which is mapped, or in ordinary memory, which the kernel reaches, or, with \
         <em>write-agent</em> and <em>read-agent</em>, the other side's agent; with <em>active</em> a request goes to a handler and its answer comes back, and a \
         rate is that of calls. <em>cma</em> (process_vm_readv), <em>cma-write</em> \
         (process_vm_writev, to a place that both know), <em>pipe</em>, <em>unix</em> and <em>tcp</em> are what one would use instead of Pinfold. \
         <em>near</em> and <em>far</em> say how far apart the two cores were during a run: a \
         virtual machine may change that at any time. Only runs of the same class are \
         compared.</p>\n",
    );
}

/// The rows in which Pinfold is behind, the worst first.
fn worst(page: &mut String, rows: &[Row]) {
    let behind = behind(rows);
    let _ = writeln!(page, "<h2>Where Pinfold is behind</h2>");
    let _ = writeln!(page, "<p class=\"hint\">{}.</p>", escaped(&behind.summary()));
    let line = |(ratio, row): (f64, &Row)| {
        vec![("bad", table::ratio_text(ratio)), ("name", table::comparison(row))]
    };
    if behind.count > 0 {
        table_of(page, &["vs best", "where"], behind.worst.into_iter().map(line));
    }
}

/// The plots of one class.
fn plots(page: &mut String, findings: &Findings, records: &[Record], rows: &[Row], class: Class) {
    let (mut section, mut sparse) = (String::new(), Vec::new());
    let whats = [What::Latency, What::Bandwidth, What::Bidirectional, What::Rate];
    let drawn = |theme: &Theme| whats.contains(&theme.what) && theme.setting == Setting::Alone;
    for theme in Theme::all().filter(drawn) {
        let here = of(records, theme, class);
        let what = theme.what;
        if here.is_empty() {
            continue;
        }
        if !is_worth_drawing(records, theme, class) {
            sparse.push(what.name());
            continue;
        }
        let says = says(rows, theme, class);
        let heading = heading(theme, findings.touched);
        if what == What::Rate {
            if let Some(svg) = plot::bars(&here) {
                figure(&mut section, &heading, &says, "", &svg);
            }
        } else if let Some(svg) = plot::over_size(&here, what) {
            figure(&mut section, &heading, &says, &plot::legend(&here), &svg);
        }
    }
    if !sparse.is_empty() {
        let _ = writeln!(
            section,
            "<p class=\"hint\">Seen in too few runs to draw: {}. What there is stands in the \
             last table.</p>",
            sparse.join(", ")
        );
    }
    if !section.is_empty() {
        let hop = findings.hop_ns(class).filter(|_| class != Class::Mixed);
        let hop = hop.map_or(String::new(), |hop| format!("{hop:.0} ns from core to core, "));
        let runs = findings.collected.runs(class);
        let title = match class {
            Class::Near => "Cores near each other",
            Class::Far => "Cores far apart",
            Class::Mixed => "Cores that moved meanwhile, or were neither near nor far",
        };
        let _ = write!(page, "<h2 class=\"{class}\">{title}: {hop}{runs} runs</h2>\n{section}");
    }
}

/// The records of a theme and class.
fn of(records: &[Record], theme: Theme, class: Class) -> Vec<&Record> {
    records.iter().filter(|r| theme.has(r.cell()) && r.class == class).collect()
}

/// Returns whether a class has half of the records at least, or more than any other class: a plot
/// of a few stray runs would show lines where there are none.
fn is_worth_drawing(records: &[Record], theme: Theme, class: Class) -> bool {
    let mut all: Vec<_> = Class::ALL.iter().flat_map(|&class| of(records, theme, class)).collect();
    all.sort_by_key(|r| (r.size, r.id()));
    all.dedup_by_key(|r| (r.size, r.id()));
    let most = Class::ALL.into_iter().max_by_key(|&class| {
        // Of classes with as many, the first.
        (of(records, theme, class).len(), std::cmp::Reverse(class))
    });
    2 * of(records, theme, class).len() >= all.len() || most == Some(class)
}

/// A sentence about what a plot shows.
fn says(rows: &[Row], theme: Theme, class: Class) -> String {
    let mut text = match theme.what {
        What::Rate => String::from("Means."),
        _ => String::from("Means; both axes are logarithmic."),
    };
    for group in Group::ALL {
        let here = rows
            .iter()
            .filter(|row| theme.has(row.cell) && (row.group, row.class) == (group, class));
        let mut ratios: Vec<(f64, usize)> =
            here.filter_map(|row| Some((row.against_best()?, row.cell.size))).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        let said = |(ratio, size): (f64, usize)| {
            format!("{} at {}", table::ratio_text(ratio), units::bytes(size))
        };
        let beside = match group {
            Group::Heap => "Pinfold beside the best of cma, pipe, unix and tcp:",
            Group::Arena => "From an arena, beside the best of those and ring:",
            Group::Given => "Given away, beside the same:",
            Group::Region => {
                "Written into a region, beside the best of those of ordinary memory and cma-write:"
            }
            Group::Read => "Read out of a region, beside the best of cma, pipe, unix and tcp:",
            Group::Contended => "Added by both, beside the same:",
            Group::WriteMapped => "Written by address, mapped, beside what a region is:",
            Group::WriteKernel => "Written by address, by the kernel, beside the same:",
            Group::WriteAgent => "Written by address, by the other side's agent, beside the same:",
            Group::ReadMapped => "Read by address, mapped, beside the same:",
            Group::ReadKernel => "Read by address, by the kernel, beside the same:",
            Group::ReadAgent => "Read by address, by the other side's agent, beside the same:",
            Group::Active => "Active messages, beside unix:",
        };
        match ratios[..] {
            [] => {}
            [only] => {
                let _ = write!(text, " {beside} {}.", said(only));
            }
            [least, .., most] => {
                let _ = write!(text, " {beside} {} to {}.", said(least), said(most));
            }
        }
    }
    text
}

/// The heading of a plot or a table.
fn heading(theme: Theme, all_touched: bool) -> String {
    let heading = match theme.what {
        What::Latency => "Latency: one message, one way, over its size. Lower is better.",
        What::Bandwidth => "Bandwidth: a stream one way, over the message size. Higher is better.",
        What::Bidirectional => "Both directions at once, their sum. Higher is better.",
        What::Rate => "Rate: 8-byte messages one way. Longer is better.",
        What::Cpu => "Processor time of both processes, per message; from 4 KiB on per gigabyte.",
    };
    let lines = std::iter::once(heading).chain(theme.circumstances(all_touched));
    lines.map(|line| line.trim_end_matches([':', '.'])).collect::<Vec<_>>().join(". ") + "."
}

fn figure(page: &mut String, title: &str, says: &str, legend: &str, svg: &str) {
    let _ = writeln!(
        page,
        "<h3>{title}</h3>\n<figure>\n<figcaption>{says}</figcaption>\n{legend}\
         <div class=\"scroll\">{svg}</div></figure>"
    );
}

/// Pinfold beside the rest.
fn summary(page: &mut String, rows: &[Row], all_touched: bool) {
    page.push_str("<h2>Pinfold beside the rest</h2>\n");
    page.push_str(
        "<p class=\"hint\">Means: all the time over all messages. <em>median</em> and <em>p99</em> are \
         Pinfold's, of samples; where a message takes below a microsecond, a sample is the mean of 64 \
         round trips. <em>vs best</em>: how many times better Pinfold's mean is than that of the \
         best alternative of the same class; below 1 it is worse. <em>of floor</em>: what part of \
         the performance of the floor it reaches. <em>!</em>: a mean and a median in this row differ \
         by more than 1.5 times. <em>?</em>: a figure in this row rests on fewer than 100 samples, \
         although its messages are short.</p>\n",
    );
    for theme in Theme::all() {
        let here: Vec<&Row> = rows.iter().filter(|row| theme.has(row.cell)).collect();
        if here.is_empty() {
            continue;
        }
        let _ = writeln!(page, "<h3>{}</h3>", heading(theme, all_touched));
        let names = [
            "size", "class", "memory", "memcpy", "floor", "best", "Pinfold", "median", "p99",
            "vs best", "of floor", "marks",
        ];
        table_of(page, &names, here.iter().map(|row| summary_row(row)));
        for line in here.iter().filter_map(|row| table::uneven(row)) {
            let _ = writeln!(page, "<p class=\"hint\">! {}</p>", escaped(&line));
        }
    }
}

/// A cell's CSS class and text.
type Field = (&'static str, String);

fn summary_row(row: &Row) -> Vec<Field> {
    let show = |record: &Option<Record>| record.as_ref().map_or("–".into(), table::value);
    let named = |record: &Option<Record>| {
        let named = |r: &Record| format!("{} {}", table::value(r), r.subject.name());
        record.as_ref().map_or("–".into(), named)
    };
    let ratio = row.against_best();
    let of = |value: fn(&Record) -> f64| {
        let shown = |r: &Record| table::with_unit(r.what, r.size, value(r));
        row.pinfold.as_ref().map_or("–".into(), shown)
    };
    let mark = match ratio {
        Some(1.02..) => "good",
        Some(..0.98) => "bad",
        _ => "",
    };
    let path = row.path.unwrap_or_default();
    vec![
        ("", units::bytes(row.cell.size)),
        ("", row.class.to_string()),
        ("", row.group.name().into()),
        ("", show(&row.memcpy)),
        ("", named(&row.floor)),
        ("", named(&row.best)),
        ("", format!("{} {path}", show(&row.pinfold))),
        ("", of(|r| r.median)),
        ("", of(|r| r.p99)),
        (mark, ratio.map_or("–".into(), table::ratio_text)),
        ("", row.of_floor().map_or("–".into(), |part| format!("{:.0} %", part * 100.0))),
        ("", marks::of(row.records())),
    ]
}

/// Every record.
fn every(page: &mut String, records: &[Record]) {
    page.push_str("<h2>Every subject</h2>\n");
    page.push_str(
        "<p class=\"hint\"><em>p99</em>: what 99 % of the samples reached or bettered.</p>\n",
    );
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|r| (r.what, r.setting, r.touched, r.size, r.class, r.id()));
    let names = [
        "measure", "size", "class", "touched", "setting", "subject", "mean", "median", "p99",
        "samples", "marks",
    ];
    let row = |r: &Record| {
        vec![
            ("name", r.what.name().to_string()),
            ("", units::bytes(r.size)),
            ("", r.class.to_string()),
            ("", if r.touched { "yes" } else { "no" }.into()),
            ("", r.setting.name().into()),
            ("name", r.id().to_string()),
            ("", table::value(r)),
            ("", table::with_unit(r.what, r.size, r.median)),
            ("", table::with_unit(r.what, r.size, r.p99)),
            ("", r.n.to_string()),
            ("", marks::of(std::iter::once(r))),
        ]
    };
    table_of(page, &names, sorted.into_iter().map(row));
}

fn table_of(page: &mut String, names: &[&str], rows: impl Iterator<Item = Vec<Field>>) {
    page.push_str("<div class=\"scroll\"><table>\n<tr>");
    for name in names {
        let class =
            if matches!(*name, "measure" | "subject" | "where") { " class=\"name\"" } else { "" };
        let _ = write!(page, "<th{class}>{name}</th>");
    }
    page.push_str("</tr>\n");
    for row in rows {
        page.push_str("<tr>");
        for (class, text) in row {
            let class =
                if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            let _ = write!(page, "<td{class}>{}</td>", escaped(&text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}
