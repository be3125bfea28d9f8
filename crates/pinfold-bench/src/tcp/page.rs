//! The results as a page: a plot and a table for each measure.

use std::fmt::Write as _;

use plotters::style::RGBColor;

use super::{
    cell::{Cell, Contestant},
    findings::Findings,
    record::in_unit,
    text,
};
use crate::{
    html::{
        self, escaped,
        plot::{self, Curve},
    },
    terms::What,
    units,
};

fn colour(who: Contestant) -> RGBColor {
    match who {
        Contestant::Sockets => RGBColor(120, 130, 140),
        Contestant::Spinning => RGBColor(214, 120, 24),
        Contestant::Ring => RGBColor(196, 52, 43),
        Contestant::Pinfold => RGBColor(40, 110, 230),
        Contestant::Encrypted => RGBColor(120, 70, 200),
        Contestant::Libfabric => RGBColor(60, 150, 80),
        Contestant::Ucx => RGBColor(120, 80, 190),
    }
}

/// All of it.
pub(super) fn page(found: &Findings) -> String {
    let machine = found.machine.line();
    let facts = text::facts(found).join(" ");
    let mut page = html::begin("pinfold perf tcp", &machine, &[&facts], found.took, &found.notes);
    html::list(&mut page, "Aims", &text::aims(found));
    for what in [What::Latency, What::Bandwidth] {
        let cells: Vec<Cell> = found.cells().into_iter().filter(|cell| cell.what == what).collect();
        if !cells.is_empty() {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(text::title(what)));
            page.push_str(&figure(found, what, &cells).unwrap_or_default());
            table(&mut page, found, &cells);
        }
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// `None` if there are not two sizes to draw a line between.
fn figure(found: &Findings, what: What, cells: &[Cell]) -> Option<String> {
    let curve = |who: Contestant| Curve {
        name: who.name().into(),
        colour: colour(who),
        dashed: who.is_foreign(),
        strong: who == Contestant::Pinfold,
        points: cells
            .iter()
            .filter_map(|cell| {
                let mean_ns = found.found(cell, who)?.mean_ns;
                Some((cell.bytes as f64, in_unit(what, cell.bytes, mean_ns)))
            })
            .collect(),
    };
    let curves: Vec<Curve> = Contestant::ALL.into_iter().map(curve).collect();
    let label = |value: f64| match what {
        What::Latency => units::time(value),
        _ => units::bandwidth(value),
    };
    let svg = plot::curves(&curves, &label)?;
    Some(format!(
        "<figure>\n<figcaption>Means; both axes are logarithmic.</figcaption>\n{}{svg}\n</figure>\n",
        plot::legend_of(&curves),
    ))
}

fn table(page: &mut String, found: &Findings, cells: &[Cell]) {
    page.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>size</th><th class=\"name\">who</th><th>mean</th><th>median</th>\
         <th>p99</th><th>of spinning</th><th>of best</th><th>samples</th><th class=\"name\">turns</th></tr>\n",
    );
    for cell in cells {
        for who in Contestant::ALL {
            let Some(it) = found.found(cell, who) else { continue };
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td class=\"name\">{}</td></tr>",
                units::bytes(cell.bytes),
                who.name(),
                text::value(cell, it.mean_ns),
                text::value(cell, it.median_ns),
                text::value(cell, it.p99_ns),
                text::times(it.of_spinning),
                text::times(it.of_best),
                it.samples,
                text::classes(it),
            );
        }
    }
    page.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::judge::{Found, Row},
        *,
    };
    use crate::{html::tests::balanced, machine::Machine};

    fn findings() -> Findings {
        let found = |ns: f64| Found {
            mean_ns: ns,
            median_ns: ns,
            p99_ns: 2.0 * ns,
            samples: 9,
            classes: [2, 0, 1],
            of_spinning: Some(1.1),
            of_best: Some(1.25),
        };
        let mut rows = Vec::new();
        for (what, bytes) in
            [(What::Latency, 8), (What::Bandwidth, 65_536), (What::Bandwidth, 1 << 20)]
        {
            let cell = Cell { what, bytes };
            rows.extend(Contestant::ALL.map(|who| Row {
                cell,
                who,
                found: Ok(found(bytes as f64)),
            }));
        }
        rows[Contestant::ALL.len() - 1].found = Err("no <tool>".into());
        let mut findings = Findings {
            machine: Machine { processor: "a <b> & c".into(), ..Machine::look([None; 2]) },
            hosts: 1,
            ground: "Over the loopback.",
            rows,
            hop_ns: 50.0,
            providers: vec![(Contestant::Libfabric, "<net>".into())],
            notes: Vec::new(),
            took: Duration::ZERO,
        };
        findings.notes = findings.reasons();
        findings
    }

    #[test]
    fn the_page_is_whole() {
        let found = findings();
        let whole = page(&found);
        balanced(&whole).unwrap();
        // One size of latency makes no line.
        assert_eq!(whole.matches("<svg").count(), 1);
        assert_eq!(whole.matches("<tr><td>").count(), 3 * Contestant::ALL.len() - 1);
        for part in [
            "libfabric go by its provider &lt;net&gt;",
            "a &lt;b&gt; &amp; c",
            "ucx has no figures for latency: no &lt;tool&gt;",
        ] {
            assert!(whole.contains(part), "{part}");
        }
        balanced(&page(&Findings { rows: Vec::new(), ..found })).unwrap();
    }

    #[test]
    fn aims_are_judged() {
        let mut found = findings();
        let lines = text::aims(&found);
        assert!(lines[0].contains("1.10 times") && lines[0].ends_with("met)"), "{lines:?}");
        assert!(lines[1].contains("1.25 times") && lines[1].ends_with("met)"), "{lines:?}");
        let text = text::text(&found);
        // A byte in a nanosecond is 10^9 in a second.
        for part in ["1.00 GB/s", "500 MB/s", "1.10x", "2 near, 1 mixed", "no <tool>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        for row in &mut found.rows {
            let Ok(it) = &mut row.found else { continue };
            (it.of_spinning, it.of_best) = (Some(1.2), Some(1.0));
        }
        assert!(text::aims(&found).iter().all(|line| line.ends_with("missed)")));
        found.rows.clear();
        assert_eq!(text::aims(&found).len(), 1);
    }
}
