//! `vmmr-partial`: the cache for supervisor space alone, or for the page table (section 4.1).

use super::{
    Times,
    total::{CURVES, all, at},
};
use crate::{
    LabError,
    agreement::WITHIN,
    experiment::Run,
    models::ppc601::machine::Caching,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const ID: &str = "vmmr-partial";
const NOT_HERE: &str = "this machine's first-level cache cannot be kept from a part of memory";
/// The position of the worst search among the curves.
const WORST: usize = 3;

/// A caching in part, and the one that it is compared with.
struct Pair {
    name: &'static str,
    part: Caching,
    whole: bool,
    like: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        name: "kernel cached",
        part: Caching { supervisor: true, page_table: false },
        whole: true,
        like: "all cached",
    },
    Pair {
        name: "page table cached",
        part: Caching { supervisor: false, page_table: true },
        whole: false,
        like: "nothing cached",
    },
];

/// By how much two times differ, a part of the second.
fn apart(part: f64, whole: f64) -> f64 {
    (part / whole - 1.0).abs()
}

/// Runs the experiment.
///
/// # Errors
/// The library's bitmap or the page table had no room.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let mut plot = Plot::new("The cache for a part of memory", Axis::log("pages"), Axis::log("µs"));
    // For each pair: the most that the curves but the worst search differ, and that the latter
    // differs, with the size.
    let mut found = Vec::new();
    for pair in &PAIRS {
        let (part, whole) = (all(run, ID, pair.part)?, all(run, ID, pair.whole)?);
        let (mut others, mut worst) = (0f64, (0f64, 0u32));
        for (part, whole) in part.iter().zip(&whole) {
            for (curve, (name, of)) in CURVES.into_iter().enumerate() {
                let ratio = of(part) / of(whole);
                let value = Value::new(
                    &format!("{} against {}", pair.name, pair.like),
                    name,
                    at(part.pages),
                    "",
                );
                outcome.values.push(value.model(ratio));
                let by = apart(of(part), of(whole));
                if curve != WORST {
                    others = others.max(by);
                } else if by > worst.0 {
                    worst = (by, part.pages);
                }
            }
        }
        for (name, of) in [CURVES[2], CURVES[WORST]] {
            let points = |all: &[Times]| {
                all.iter().map(|times| (f64::from(times.pages), of(times))).collect::<Vec<_>>()
            };
            plot.add(&format!("{name}, {}", pair.name), Column::Model, points(&part));
            plot.add(&format!("{name}, {}", pair.like), Column::Model, points(&whole));
        }
        found.push((others, worst));
    }
    for (pair, (others, _)) in PAIRS.iter().zip(&found) {
        outcome.claims.push(Claim::modelled(
            format!(
                "copies and remapping without the worst search take as long with the {} as with {}",
                pair.name, pair.like
            ),
            Finding::of(
                *others <= WITHIN,
                format!("they differ by {:.1} % at most", others * 100.0),
            ),
            NOT_HERE,
        ));
    }
    for (pair, (_, worst)) in PAIRS.iter().zip(&found) {
        outcome.claims.push(Claim::modelled(
            format!("so does the worst search with the {}", pair.name),
            Finding::of(
                worst.0 <= WITHIN,
                format!("it differs by up to {:.1} %, at {}", worst.0 * 100.0, at(worst.1)),
            ),
            NOT_HERE,
        ));
    }
    outcome.plots.push(plot);
    outcome.note(format!(
        "The paper calls the tests with a part of memory cached indistinguishable from those with \
         all or nothing cached, and shows no curve; the model takes {:.0} % for that. Page table \
         space is the page table and the bitmap (section 2.2), whose lines the model then fetches \
         word by word, supervisor space all else: code, data, stack.",
        WITHIN * 100.0
    ));
    outcome.note(
        "The model distinguishes kernel caching from total caching, which the paper does not. An \
         entry takes five single accesses to its group, 90 cycles, where the cache fetches the \
         group's line in 48 and writes it back in 37, but the latter only once 512 groups are \
         dirty: so the difference is largest at 256 pages and smaller for more. And the worst \
         search for one page reads 2,048 words of the bitmap with next to no work for each, each \
         an access of its own in place of a sixteenth of a line. Times of single accesses and of \
         lines were fitted to copies, which say nothing about their ratio; but no ratio for which \
         Figure 5 is as slow as it is would hide the worst search. The paper's conclusion, that \
         accesses to page table and bitmap dominate nowhere, holds where code is not cached, and \
         perhaps for Figures 4 and 5 as drawn, over five decades of time.",
    );
    Ok(outcome)
}
