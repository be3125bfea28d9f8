//! The results as a page: GB/s over size for each state, then the tables.

use std::fmt::Write as _;

use clap::ValueEnum;
use plotters::style::RGBColor;

use super::{
    cell::{Cell, Destination, Next, Place, Source, name},
    findings::Findings,
    samples::Verdict,
    text,
};
use crate::{
    html::{
        self, escaped,
        plot::{self, Curve},
    },
    units,
};

/// A line drawn of a state: name, colour, whether dashed, and its time.
type Line = (&'static str, RGBColor, bool, fn(&Verdict) -> Option<f64>);

const LINES: [Line; 4] = [
    ("libc", RGBColor(120, 130, 140), true, |it| Some(it.libc_ns)),
    ("best temporal", RGBColor(60, 150, 80), false, |it| Some(it.temporal.ns)),
    ("best streaming", RGBColor(214, 120, 24), false, |it| it.streaming.map(|it| it.ns)),
    ("plan", RGBColor(40, 110, 230), false, |it| Some(it.plan.ns)),
];

/// All of it.
pub(super) fn page(found: &Findings) -> String {
    let plan = format!("The plan: {}. Every copy was checked.", text::plan());
    let machine = found.machine.line();
    let facts = [&*plan, found.distance.as_deref().unwrap_or_default()];
    let mut page = html::begin("pinfold perf copy", &machine, &facts, found.took, &found.notes);
    html::list(&mut page, "Totals", &text::lines(&found.totals()));
    plots(&mut page, &found.verdicts);
    let missing: Vec<&Verdict> = found.verdicts.iter().filter(|it| !it.meets()).collect();
    table(&mut page, "Cells that miss an aim", &missing);
    table(&mut page, "All cells", &found.verdicts.iter().collect::<Vec<_>>());
    page.push_str("</body>\n</html>\n");
    page
}

/// A plot for each state and placement.
fn plots(page: &mut String, verdicts: &[Verdict]) {
    for &reader in Next::value_variants() {
        let title = match reader {
            Next::Me => "Read by the core that copies",
            Next::OtherCore => "Read by another core",
            Next::Nobody => "Not read",
        };
        let mut section = String::new();
        for &source in Source::value_variants() {
            for &destination in Destination::value_variants() {
                for &placement in Place::value_variants() {
                    let state = Cell { size: 0, source, destination, reader, placement };
                    let here: Vec<&Verdict> =
                        verdicts.iter().filter(|it| Cell { size: 0, ..it.cell } == state).collect();
                    section += &figure(&state, &here).unwrap_or_default();
                }
            }
        }
        if !section.is_empty() {
            let _ = write!(page, "<h2>{title}</h2>\n{section}");
        }
    }
}

/// `None` if there are not two sizes to draw a line between.
fn figure(state: &Cell, here: &[&Verdict]) -> Option<String> {
    let curves: Vec<Curve> = LINES
        .iter()
        .map(|&(label, colour, dashed, ns)| Curve {
            name: label.into(),
            colour,
            dashed,
            strong: label == "plan",
            points: here
                .iter()
                .filter_map(|it| Some((it.cell.size as f64, it.cell.size as f64 / ns(it)?)))
                .collect(),
        })
        .collect();
    let svg = plot::curves(&curves, &|gb_s| units::bandwidth(gb_s * 1e3))?;
    Some(format!(
        "<h3>Source {}, destination {}, {}</h3>\n<figure>\n<figcaption>Bytes a second, the reading \
         included; both axes are logarithmic.</figcaption>\n{}{svg}\n</figure>\n",
        name(state.source),
        name(state.destination),
        name(state.placement),
        plot::legend_of(&curves),
    ))
}

fn table(page: &mut String, title: &str, rows: &[&Verdict]) {
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<h2>{title}</h2>\n<div class=\"scroll\"><table>\n<tr><th>size</th>\
         <th class=\"name\">source</th><th class=\"name\">destination</th>\
         <th class=\"name\">reader</th><th class=\"name\">placement</th><th class=\"name\">class</th>\
         <th>libc</th><th>plan</th><th class=\"name\"></th><th>best</th><th class=\"name\"></th>\
         <th>of best</th><th>of libc</th>\
         <th>learnt</th><th>of best</th><th>of libc</th><th>rounds</th></tr>\n"
    );
    for it in rows {
        let named = |text: &str| format!("<td class=\"name\">{}</td>", escaped(text));
        let percent = |part: f64, met: bool| {
            let class = if met { "good" } else { "bad" };
            format!("<td class=\"{class}\">{:.0} %</td>", part * 100.0)
        };
        let _ = write!(page, "<tr><td>{}</td>", units::bytes(it.cell.size));
        page.push_str(&named(&name(it.cell.source)));
        page.push_str(&named(&name(it.cell.destination)));
        page.push_str(&named(&name(it.cell.reader)));
        page.push_str(&named(&name(it.cell.placement)));
        page.push_str(&named(it.class.map_or("", |class| class.name())));
        let _ = write!(page, "<td>{}</td>", units::time(it.libc_ns));
        for timed in [it.plan, it.best] {
            let _ = write!(page, "<td>{}</td>", units::time(timed.ns));
            page.push_str(&named(&timed.algorithm.to_string()));
        }
        page.push_str(&percent(it.of_best, it.meets_best()));
        page.push_str(&percent(it.of_libc, it.meets_libc()));
        match it.learnt {
            Some(learnt) => {
                let _ = write!(page, "<td>{}</td>", units::time(learnt.ns));
                page.push_str(&percent(learnt.of_best, it.learnt_meets_best()));
                page.push_str(&percent(learnt.of_libc, it.learnt_meets_libc()));
            }
            None => page.push_str("<td></td><td></td><td></td>"),
        }
        let _ = writeln!(page, "<td>{}</td></tr>", it.rounds);
    }
    page.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::{
        super::samples::tests::{cell, verdict},
        *,
    };
    use crate::{html::tests::balanced, machine::Machine};

    #[test]
    fn the_page_is_whole() {
        let verdicts = vec![
            verdict(cell(64, Next::Me), [10.0, 10.0, 9.0, 8.0]),
            verdict(cell(4096, Next::Me), [100.0, 50.0, 50.0, 60.0]),
            verdict(cell(4096, Next::OtherCore), [100.0, 50.0, 50.0, 60.0]),
        ];
        let mut found = Findings {
            machine: Machine { processor: "a <b> & c".into(), ..Machine::look([None; 2]) },
            verdicts,
            laps: Vec::new(),
            distance: None,
            notes: vec!["no <room>".into()],
            took: std::time::Duration::ZERO,
        };
        let whole = page(&found);
        balanced(&whole).unwrap();
        // One state has two sizes to draw a line between.
        assert_eq!(whole.matches("<svg").count(), 1);
        assert_eq!(whole.matches("<tr><td>").count(), 1 + 3);
        for part in ["a &lt;b&gt; &amp; c", "no &lt;room&gt;", "best streaming", "CELLS"] {
            assert_eq!(whole.contains(part), part != "CELLS", "{part}");
        }
        found.verdicts.clear();
        balanced(&page(&found)).unwrap();
    }
}
