//! The report: one HTML file that needs nothing else. The machine and the verdicts come first, then
//! each experiment with its explanation, plots and table. Readable in light and dark, and on a
//! telephone.

use std::fmt::Write as _;

use pinfold_bench::html::{STYLE, escaped};

use crate::{
    agreement::Score,
    experiment::{Experiment, Paper},
    outcome::{Aim, Claim, Finding, Plot, Verdict},
    plot, registry,
    store::Record,
    table,
};

/// The style of what only this report has.
const OWN_STYLE: &str = include_str!("report.css");

/// The page of some results, which are in the order of the registry.
pub fn page(records: &[Record]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>pinfold lab</title>\n<style>\n{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n\
         <h1>pinfold lab</h1>\n"
    );
    head(&mut page, records);
    verdicts(&mut page, records);
    disagreements(&mut page, records);
    for paper in Paper::ALL {
        let here = || records.iter().filter_map(|record| Some((of(record)?, record)));
        let mut here = here().filter(|(one, _)| one.paper == paper).peekable();
        if here.peek().is_some() {
            let _ = writeln!(page, "<h2>{}</h2>", escaped(paper.title()));
        }
        here.for_each(|(one, record)| experiment(&mut page, one, record));
    }
    page.push_str("</body>\n</html>\n");
    page
}

fn of(record: &Record) -> Option<&'static Experiment> {
    registry::all().find(|one| one.id == record.id)
}

/// The machines, the depths, the words.
fn head(page: &mut String, records: &[Record]) {
    let mut machines: Vec<&str> = records.iter().map(|record| record.machine.as_str()).collect();
    machines.dedup();
    let took: f64 = records.iter().map(|record| record.took_s).sum();
    let depth = records.first().map_or(String::new(), |record| record.depth.to_string());
    let _ = writeln!(
        page,
        "<p class=\"facts\">pinfold {} on {}<br/>{} experiments, {depth}, {took:.1} s</p>",
        env!("CARGO_PKG_VERSION"),
        escaped(&machines.join("; ")),
        records.len(),
    );
    page.push_str(
        "<p class=\"hint\"><em>Paper</em> is the value that the paper states, <em>model</em> the \
         paper's hardware simulated from stated parameters, <em>here</em> a measurement on this \
         machine. A claim <em>holds</em> or <em>fails</em>; it is <em>fitted</em> where a \
         parameter was chosen for it, which reproduces nothing; and some <em>papers contradict \
         themselves</em>. Values that are fitted or contradicted count for nothing. In plots, \
         lines are the model, crosses the paper's stated points, dashed lines this machine.</p>\n",
    );
}

/// The table of all claims.
fn verdicts(page: &mut String, records: &[Record]) {
    page.push_str(
        "<h2>Verdicts</h2>\n<div class=\"scroll\"><table class=\"verdicts\">\n<tr>\
         <th class=\"name\">experiment</th><th class=\"name\">claim</th>\
         <th class=\"name\">model</th><th class=\"name\">here</th></tr>\n",
    );
    for record in records {
        for claim in &record.outcome.claims {
            let _ = writeln!(
                page,
                "<tr><td class=\"name\">{}</td><td class=\"name\">{}</td>{}{}</tr>",
                escaped(&record.id),
                escaped(&claim.sentence),
                verdict_cell(claim.model.verdict),
                verdict_cell(claim.here.verdict),
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn class_of(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Holds => "holds",
        Verdict::Fails => "fails",
        Verdict::Fitted => "fitted",
        Verdict::PaperContradictsItself => "contradicts",
        Verdict::NotMeasured => "not-measured",
    }
}

fn verdict_cell(verdict: Verdict) -> String {
    format!("<td class=\"name verdict {}\">{}</td>", class_of(verdict), verdict.words())
}

/// The claims that this machine contradicts.
fn disagreements(page: &mut String, records: &[Record]) {
    page.push_str("<h2>Where this machine disagrees with the papers</h2>\n<ul>\n");
    let mut is_none = true;
    for record in records {
        for claim in record.outcome.claims.iter().filter(|c| c.here.verdict == Verdict::Fails) {
            is_none = false;
            let (id, sentence) = (escaped(&record.id), escaped(&claim.sentence));
            let _ = writeln!(page, "<li>{id}: {sentence}: {}</li>", escaped(&claim.here.why));
        }
    }
    if is_none {
        page.push_str("<li>Nowhere, as far as it was measured.</li>\n");
    }
    page.push_str("</ul>\n");
}

fn experiment(page: &mut String, one: &Experiment, record: &Record) {
    let outcome = &record.outcome;
    let _ = writeln!(page, "<h3>{}: {}</h3>", escaped(one.id), escaped(one.title));
    let _ = writeln!(page, "<p>{}. The claim: {}.</p>", escaped(one.what), escaped(one.claim));
    let _ = writeln!(page, "<p class=\"facts\">{}.</p>", escaped(&Score::of(outcome).words()));
    page.push_str("<ul class=\"claims\">\n");
    outcome.claims.iter().for_each(|claim| finding(page, claim));
    page.push_str("</ul>\n");
    outcome.plots.iter().for_each(|plot| figure(page, plot));
    for note in &outcome.notes {
        let _ = writeln!(page, "<p>{}</p>", escaped(note));
    }
    values(page, record);
}

fn finding(page: &mut String, claim: &Claim) {
    let words = |Finding { verdict, why }: &Finding| {
        let colon = if why.is_empty() { "" } else { ": " };
        format!(
            "<b class=\"{}\">{}</b>{colon}{}",
            class_of(*verdict),
            verdict.words(),
            escaped(why)
        )
    };
    let _ = writeln!(
        page,
        "<li>{}.<br/>Model: {}.<br/>Here: {}.</li>",
        escaped(&claim.sentence),
        words(&claim.model),
        words(&claim.here)
    );
}

fn figure(page: &mut String, plot: &Plot) {
    let Some(svg) = plot::svg(plot) else { return };
    let item = |(name, (r, g, b)): (&str, (u8, u8, u8))| {
        format!("<li><b style=\"border-color: rgb({r}, {g}, {b})\"></b>{}</li>", escaped(name))
    };
    let items: String = plot::legend(plot).into_iter().map(item).collect();
    let _ = writeln!(
        page,
        "<figure>\n<figcaption>{}</figcaption>\n<ul class=\"legend\">{items}</ul>\n\
         <div class=\"scroll\">{svg}</div></figure>",
        escaped(&plot.title)
    );
}

/// The table, folded, and the notes on single values.
fn values(page: &mut String, record: &Record) {
    let (head, rows) = table::columns(&record.outcome);
    if rows.is_empty() {
        return;
    }
    let class = |at: usize| if table::is_number(head[at]) { "" } else { " class=\"name\"" };
    let _ = write!(
        page,
        "<details><summary>{} values</summary>\n<div class=\"scroll\"><table>\n<tr>",
        rows.len()
    );
    for (at, name) in head.iter().enumerate() {
        let _ = write!(page, "<th{}>{name}</th>", class(at));
    }
    page.push_str("</tr>\n");
    for row in &rows {
        page.push_str("<tr>");
        for (at, text) in row.iter().enumerate() {
            let _ = write!(page, "<td{}>{}</td>", class(at), escaped(text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n<ul>\n");
    for value in &record.outcome.values {
        let why = match &value.aim {
            Aim::Contradicted(why) => Some(why),
            _ => None,
        };
        for text in why.into_iter().chain(&value.note) {
            let _ = writeln!(page, "<li>{}: {}.</li>", escaped(&value.name()), escaped(text));
        }
    }
    page.push_str("</ul></details>\n");
}
