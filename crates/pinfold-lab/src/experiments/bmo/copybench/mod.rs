//! `bmo-copybench`: copies by the place of source and destination (Figures 4.2 and 4.4).

mod here;
mod opteron;
mod pentium;
mod plan;

use pinfold::copy::Stores;

use crate::{
    LabError,
    experiment::Run,
    models::copying::{Before, Way, per_byte, processor::Processor},
    outcome::{Axis, Column, Outcome, Plot, Value},
};

/// The size at which values are shown, bytes.
const SHOWN: u64 = 64 << 10;
/// The size from which on a copy is long enough to pay for its beginning, bytes (section 4.3 has 1
/// to 2 KB).
const LONG: u64 = 2 << 10;

/// The part of a figure.
#[derive(Clone, Copy)]
struct Part {
    /// Its heading.
    title: &'static str,
    /// The state in words.
    words: &'static str,
    /// The places of source and destination.
    before: (Before, Before),
}

const CACHED: Part = Part {
    title: "A: source and destination cached",
    words: "both cached",
    before: (Before::Cached, Before::Cached),
};
const TO_CACHED: Part = Part {
    title: "B: destination cached",
    words: "destination cached",
    before: (Before::Uncached, Before::Cached),
};
const FROM_CACHED: Part = Part {
    title: "C: source cached",
    words: "source cached",
    before: (Before::Cached, Before::Uncached),
};
const UNCACHED: Part = Part {
    title: "D: neither cached",
    words: "neither cached",
    before: (Before::Uncached, Before::Uncached),
};
const FOUR: [Part; 4] = [CACHED, TO_CACHED, FROM_CACHED, UNCACHED];

/// All times of a part.
struct Curves {
    part: Part,
    sizes: Vec<u64>,
    ways: Vec<(Way, Vec<f64>)>,
}

impl Curves {
    fn of(with: &Processor, part: Part, ways: &[Way], sizes: &[u64], seed: u64) -> Curves {
        let cycles = |way, size| per_byte(with, way, part.before, size, seed)[0];
        let curve = |&way: &Way| (way, sizes.iter().map(|&size| cycles(way, size)).collect());
        Curves { part, sizes: sizes.to_vec(), ways: ways.iter().map(curve).collect() }
    }

    /// Cycles a byte of a way at a size.
    fn at(&self, way: Way, size: u64) -> f64 {
        let at = self.sizes.iter().position(|&it| it == size);
        let curve = self.ways.iter().find(|it| it.0 == way);
        curve.zip(at).map_or(f64::NAN, |(curve, at)| curve.1[at])
    }

    /// The best of the ways with such stores at a size.
    fn best(&self, stores: Stores, size: u64) -> f64 {
        let ways = self.ways.iter().filter(|it| it.0.stores == stores);
        ways.map(|it| self.at(it.0, size)).fold(f64::INFINITY, f64::min)
    }

    /// The best of all at a size.
    fn least(&self, size: u64) -> f64 {
        self.best(Stores::Temporal, size).min(self.best(Stores::Streaming, size))
    }

    /// The sizes of copies that are long enough, and do not come near the size of the cache.
    fn long(&self) -> impl Iterator<Item = u64> {
        self.sizes.iter().copied().filter(|&size| (LONG..=256 << 10).contains(&size))
    }

    /// By which part the best copy past the cache is better than the best into it, at the size
    /// where it is most.
    fn most_better(&self) -> f64 {
        let better =
            |size| self.best(Stores::Temporal, size) / self.best(Stores::Streaming, size) - 1.0;
        self.long().map(better).fold(f64::NEG_INFINITY, f64::max)
    }

    fn show(&self, with: &Processor, figure: &str, outcome: &mut Outcome) {
        let title = format!("{figure}{}", self.part.title);
        let mut plot = Plot::new(&title, Axis::log("bytes"), Axis::linear("cycles a byte"));
        for (way, curve) in &self.ways {
            let points = self.sizes.iter().zip(curve);
            let points = points.map(|(size, cycles)| (*size as f64, *cycles)).collect();
            plot.add(&way.words(), Column::Model, points);
            let series = format!("{}, {}", with.name, self.part.words);
            let value = Value::new("copy", &series, way.words(), "cycles/B");
            outcome.values.push(value.model(self.at(*way, SHOWN)));
        }
        outcome.plots.push(plot);
    }
}

/// Sizes, powers of two.
fn sizes(run: &Run<'_>) -> Vec<u64> {
    let all = 8..=20;
    all.filter(|at| run.pick(at % 2 == 0 || *at == 13 || *at == 11, true))
        .map(|at| 1 << at)
        .collect()
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let sizes = sizes(run);
    let mut outcome = Outcome::new();
    opteron::add(run, &sizes, &mut outcome);
    run.progress(0.4, "Pentium 4");
    pentium::add(&sizes, run.seed(), &mut outcome);
    run.progress(0.7, "the library's choice");
    plan::add(run.seed(), &mut outcome);
    run.progress(0.8, "this machine");
    here::add(run, &mut outcome);
    Ok(outcome)
}
