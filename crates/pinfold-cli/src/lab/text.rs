//! Lists and results as text.

use std::{fmt::Write as _, path::Path};

use pinfold_lab::{
    agreement::Score,
    experiment::Paper,
    outcome::{Claim, Finding, Verdict},
    registry,
    runner::Ran,
    table,
};

use crate::fold::{Width, hanging};

/// All experiments, paper by paper.
pub(super) fn list(width: Width) -> String {
    let mut text = String::new();
    for paper in Paper::ALL {
        let experiments = registry::of(paper);
        if experiments.is_empty() {
            continue;
        }
        lines(&mut text, "", paper.title(), width);
        for one in experiments {
            lines(&mut text, &format!("  {:<14}", one.id), one.title, width);
            lines(&mut text, &format!("  {:<14}", ""), one.claim, width);
        }
        text.push('\n');
    }
    text
}

fn lines(text: &mut String, head: &str, rest: &str, width: Width) {
    for line in hanging(head, rest, width) {
        let _ = writeln!(text, "{line}");
    }
}

/// Score and claims of each result, and the table if there is one result.
pub(super) fn results(all: &[Ran], folder: &Path, width: Width) -> String {
    let mut text = String::new();
    for Ran { record, was_there } in all {
        let kept = if *was_there { ", kept from an earlier run" } else { "" };
        let _ = writeln!(text, "{}: {} in {:.2} s{kept}", record.id, record.depth, record.took_s);
        lines(&mut text, "  ", &Score::of(&record.outcome).words(), width);
        for claim in &record.outcome.claims {
            of_claim(&mut text, claim, width);
        }
        if all.len() == 1 {
            text += &table::text(&record.outcome);
            for note in &record.outcome.notes {
                lines(&mut text, "  ", note, width);
            }
        }
        text.push('\n');
    }
    let count = |verdict| {
        let claims = all.iter().flat_map(|ran| &ran.record.outcome.claims);
        claims.filter(|claim| claim.model.verdict == verdict).count()
    };
    let counts: Vec<String> = Verdict::ALL
        .into_iter()
        .filter(|&verdict| count(verdict) > 0)
        .map(|verdict| format!("{} {}", count(verdict), verdict.words()))
        .collect();
    let _ =
        writeln!(text, "claims in models: {}; results in {}", counts.join(", "), folder.display());
    text
}

fn of_claim(text: &mut String, claim: &Claim, width: Width) {
    lines(text, "  - ", &claim.sentence, width);
    for (place, Finding { verdict, why }) in [("model", &claim.model), ("here", &claim.here)] {
        lines(text, &format!("    {place}: "), &format!("{}: {why}", verdict.words()), width);
    }
}
