//! This machine.

use pinfold::copy::Stores;

use super::SHOWN;
use crate::{
    experiment::Run,
    here::blocks::{Before, algorithm, cost},
    models::copying::{Grain, Way},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const PLACES: [(&str, (Before, Before)); 5] = [
    ("both cached", (Before::Clean, Before::Clean)),
    ("both cached, destination dirty", (Before::Clean, Before::Dirty)),
    ("destination cached", (Before::Uncached, Before::Clean)),
    ("source cached", (Before::Clean, Before::Uncached)),
    ("neither cached", (Before::Uncached, Before::Uncached)),
];
const SENTENCE: &str = "the best stores depend on where the blocks are: past the cache with the \
                        destination uncached, into it with both cached";

/// Adds what this machine does, if it is to be measured: ticks of its time stamp counter.
pub(super) fn add(run: &mut Run<'_>, outcome: &mut Outcome) {
    let model = Finding::not_measured("a claim about this machine; those above are the models'");
    let claim = |here| Claim { sentence: SENTENCE.into(), model: model.clone(), here };
    let here = match run.here() {
        false => Finding::not_measured("this machine was not to be measured"),
        true => measured(run, outcome).unwrap_or_else(Finding::not_measured),
    };
    outcome.claims.push(claim(here));
}

fn measured(run: &mut Run<'_>, outcome: &mut Outcome) -> Result<Finding, String> {
    let turns = run.pick(15, 101);
    let sizes: Vec<u64> =
        run.pick(vec![1 << 10, SHOWN, 1 << 20], (8..=22).map(|at| 1 << at).collect());
    let mut best = Vec::new();
    for (words, before) in PLACES {
        let mut plot = Plot::new(
            &format!("this machine, {words}"),
            Axis::log("bytes"),
            Axis::linear("ticks a byte"),
        );
        let mut least = [f64::INFINITY; 2];
        for way in Way::LINES.into_iter().flat_map(|way| [way, way.by_words()]) {
            let algorithm = algorithm(way.prefetch, way.stores, way.grain == Grain::Word)?;
            let mut points = Vec::new();
            for &size in &sizes {
                // Long blocks need fewer repetitions.
                let turns = if size > SHOWN { turns / 3 } else { turns };
                let ticks = cost(algorithm, before, size as usize, turns)?.copy;
                points.push((size as f64, ticks));
                if size == SHOWN {
                    let series = format!("this machine, {words}");
                    let value = Value::new("copy", &series, way.words(), "ticks/B");
                    outcome.values.push(value.here(ticks));
                    let at = usize::from(way.stores == Stores::Streaming);
                    least[at] = least[at].min(ticks);
                }
            }
            plot.add(&way.words(), Column::Here, points);
        }
        outcome.plots.push(plot);
        best.push((words, least));
    }
    let holds = |(words, [into, past]): &(&str, [f64; 2])| match *words {
        "both cached" | "both cached, destination dirty" => into < past,
        "source cached" | "neither cached" => past < into,
        _ => true,
    };
    let told = best.iter().map(|(words, [into, past])| {
        format!("{words}: {into:.3} into the cache, {past:.3} past it")
    });
    let why = format!("ticks a byte of 64 KB; {}", told.collect::<Vec<_>>().join("; "));
    Ok(Finding::of(best.iter().all(holds), why))
}
