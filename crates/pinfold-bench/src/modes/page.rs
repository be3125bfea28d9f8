//! The results as a page: processor time over size for each kind of message, then the tables.

use std::fmt::Write as _;

use pinfold::route::SendMode;
use plotters::style::RGBColor;

use super::{
    cell::{Cell, Contestant},
    findings::Findings,
    text,
};
use crate::{
    html::{
        self, escaped,
        plot::{self, Curve},
    },
    units,
};

fn colour(who: Contestant) -> RGBColor {
    match who {
        Contestant::Mode(SendMode::Plain) => RGBColor(120, 130, 140),
        Contestant::Mode(SendMode::TwoCopy) => RGBColor(214, 120, 24),
        Contestant::Mode(SendMode::PerSend) => RGBColor(196, 52, 43),
        Contestant::Mode(SendMode::Cached) => RGBColor(60, 150, 80),
        Contestant::Mode(SendMode::Aligned) => RGBColor(120, 80, 190),
        Contestant::Automatic => RGBColor(40, 110, 230),
        Contestant::Unregistered => RGBColor(20, 160, 180),
    }
}

/// All of it.
pub(super) fn page(found: &Findings) -> String {
    let machine = found.machine.alone();
    let facts = text::facts(found).join(" ");
    let mut page =
        html::begin("pinfold perf send-modes", &machine, &[&facts], found.took, &found.notes);
    html::list(&mut page, "Totals", &text::totals(found));
    let checked: Vec<String> = found.verified.iter().map(text::checked).collect();
    html::list(&mut page, "Contents, with a receiver", &checked);
    let cells = found.cells();
    let mut groups = cells.clone();
    groups.dedup_by(|a, b| text::same(a, b));
    for group in groups {
        let here: Vec<Cell> =
            cells.iter().copied().filter(|cell| text::same(cell, &group)).collect();
        let _ = writeln!(page, "<h2>{}</h2>", escaped(&text::title(&group)));
        page.push_str(&figure(found, &here).unwrap_or_default());
        table(&mut page, found, &here);
        for reason in text::reasons(found, &here) {
            let _ = writeln!(page, "<p class=\"hint\">{}</p>", escaped(&reason));
        }
    }
    locks(&mut page, found);
    page.push_str("</body>\n</html>\n");
    page
}

/// `None` if there are not two sizes to draw a line between.
fn figure(found: &Findings, here: &[Cell]) -> Option<String> {
    let curve = |who: Contestant| Curve {
        name: who.name().into(),
        colour: colour(who),
        dashed: who.memory().is_none() && who == Contestant::Mode(SendMode::Plain),
        strong: who == Contestant::Automatic,
        points: here
            .iter()
            .filter_map(|cell| Some((cell.bytes as f64, found.found(cell, who)?.cpu_ns)))
            .collect(),
    };
    let curves: Vec<Curve> = Contestant::ALL.into_iter().map(curve).collect();
    let svg = plot::curves(&curves, &units::time)?;
    Some(format!(
        "<figure>\n<figcaption>Processor time of the sender for a message; both axes are \
         logarithmic.</figcaption>\n{}{svg}\n</figure>\n",
        plot::legend_of(&curves),
    ))
}

fn table(page: &mut String, found: &Findings, here: &[Cell]) {
    page.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>bytes</th><th class=\"name\">mode</th>\
         <th>processor time</th><th>time</th><th>for a GB</th><th>of two-copy</th><th>of best</th>\
         <th class=\"name\">took</th><th>rounds</th><th>notices</th><th>copied</th></tr>\n",
    );
    let ratio = |of: Option<f64>| of.map_or("–".into(), |of| format!("{of:.3}"));
    for cell in here {
        for who in Contestant::ALL {
            let Some(it) = found.found(cell, who) else { continue };
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td class=\"name\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                cell.bytes,
                who.name(),
                units::time(it.cpu_ns),
                units::time(it.elapsed_ns),
                units::time(it.cpu_ns * 1e9 / cell.bytes as f64),
                ratio(it.of_two_copy),
                ratio(it.of_best),
                it.took.name(),
                it.rounds,
                it.notified,
                it.copied,
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn locks(page: &mut String, found: &Findings) {
    let _ = write!(
        page,
        "<h2>Lock, copy, unlock</h2>\n<p class=\"hint\">{}.</p>\n<div class=\"scroll\"><table>\n<tr>",
        escaped(text::LOCK_HINT)
    );
    for name in text::LOCK {
        let _ = write!(page, "<th>{name}</th>");
    }
    page.push_str("</tr>\n");
    for it in &found.locks {
        page.push_str("<tr>");
        for field in text::lock(it) {
            let _ = write!(page, "<td>{}</td>", escaped(&field));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pinfold::route::SentFrom;

    use super::{
        super::{
            measure::{Found, Row},
            verify::Verified,
        },
        *,
    };
    use crate::{html::tests::balanced, machine::Machine};

    fn findings() -> Findings {
        let found = |ns: f64| Found {
            rounds: 3,
            cpu_ns: ns,
            elapsed_ns: ns,
            of_two_copy: Some(ns / 4000.0),
            of_best: Some(ns / 3000.0),
            took: SendMode::Cached,
            notified: 16,
            copied: 0,
        };
        let mut rows = Vec::new();
        for from in [SentFrom::Cache, SentFrom::Memory] {
            for bytes in [136, 63_000] {
                let cell = Cell { bytes, pieces: 1, from };
                rows.extend(Contestant::ALL.map(|who| Row { cell, who, found: Ok(found(3030.0)) }));
            }
        }
        rows[3].found = Err("no <ring>".into());
        rows[12].found = Ok(found(3600.0));
        Findings {
            machine: Machine { processor: "a <b> & c".into(), ..Machine::look([None; 2]) },
            core: Some(1),
            rows,
            locks: Vec::new(),
            verified: vec![Verified {
                mode: SendMode::Cached,
                messages: 5,
                bytes: 9,
                notified: 5,
                copied: 5,
                absent: None,
            }],
            messages: 448,
            notes: vec!["no <room>".into()],
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_page_is_whole() {
        let found = findings();
        let whole = page(&found);
        balanced(&whole).unwrap();
        assert_eq!(whole.matches("<svg").count(), 2);
        assert_eq!(whole.matches("<tr><td>").count(), 4 * 7 - 1);
        for part in ["a &lt;b&gt; &amp; c", "no &lt;room&gt;", "cached, 136 bytes: no &lt;ring&gt;"]
        {
            assert!(whole.contains(part), "{part}");
        }
        balanced(&page(&Findings { rows: Vec::new(), verified: Vec::new(), ..found })).unwrap();
    }

    #[test]
    fn the_worst_is_found_and_said() {
        let found = findings();
        let totals = found.totals();
        let (cell, of_best) = totals.worst.unwrap();
        assert_eq!((cell.bytes, cell.from, of_best), (63_000, SentFrom::Cache, 1.2));
        assert_eq!(totals.cache_of_two_copy, Some(0.9));
        assert_eq!(totals.memory_of_two_copy, Some(3030.0 / 4000.0));
        let text = text::text(&found);
        for part in ["at most 1.200 times", "5 of 5 that were not to be copied", "no <ring>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
