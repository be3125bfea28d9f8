//! `bmo-predict`: which predictor tells best if the destination of a copy is used again, on
//! recorded programs. Beyond the paper.

use std::collections::HashMap;

use pinfold::copy::{Site, Stores};

use crate::{
    LabError,
    experiment::Run,
    models::{
        again::{Again, watch},
        copying::{Before, Way, per_byte, processor::OPTERON_250},
        hierarchy::{Hierarchy, LINE},
        predictor::{Fixed, History, LastTime, Predictor, TwoBit},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::{
        replay::{self, Recording},
        touched::sites,
    },
};

const ID: &str = "bmo-predict";
const NOT_HERE: &str = "no cache here can be watched line by line";
const RECORDED: [Recording; 6] =
    [replay::COMPILE, replay::SPOOL, replay::PIPE, replay::BULK, replay::CHAT, replay::SESSIONS];
const PREDICTORS: [&str; 6] =
    ["never", "always", "as last time", "2-bit counter", "history of four", "the library's site"];
/// The positions of some among them.
const NEVER: usize = 0;
const ALWAYS: usize = 1;
const LAST: usize = 2;
const LIBRARY: usize = 5;
/// Longer blocks cost as much a byte as these.
const LONGEST: u64 = 64 << 10;
/// Into the cache, and past it.
const WAYS: [Way; 2] = [Way::LINES[0], Way::LINES[1]];

/// A copy: its site, its length, and if its destination was used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    site: u32,
    bytes: u64,
    is_used: bool,
}

/// The cycles of copies from memory to memory, by way and size: alone, and with the destination
/// read next.
struct Times {
    seed: u64,
    known: HashMap<(bool, u64), [f64; 2]>,
}

impl Times {
    /// Cycles of a copy into the cache or past it, with the reading if its destination is used.
    fn cycles(&mut self, into: bool, copy: Made) -> f64 {
        let class = copy.bytes.next_power_of_two().clamp(LINE, LONGEST);
        let seed = self.seed;
        let each = self.known.entry((into, class)).or_insert_with(|| {
            let before = (Before::Uncached, Before::Uncached);
            per_byte(&OPTERON_250, WAYS[usize::from(!into)], before, class, seed)
        });
        each[usize::from(copy.is_used)] * copy.bytes as f64
    }
}

/// A way of the library's to learn: it sees times, not uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Into,
    Past,
}

impl Kind {
    fn stores(self) -> Stores {
        match self {
            Kind::Into => Stores::Temporal,
            Kind::Past => Stores::Streaming,
        }
    }
}

/// The right predictions, and the cycles of all copies as predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    right: u64,
    cycles: f64,
}

impl Score {
    fn count(&mut self, times: &mut Times, copy: Made, said: bool) {
        self.right += u64::from(said == copy.is_used);
        self.cycles += times.cycles(said, copy);
    }
}

/// A predictor that is told of each outcome.
fn told(times: &mut Times, copies: &[Made], mut predictor: impl Predictor) -> Score {
    let mut score = Score::default();
    for &copy in copies {
        score.count(times, copy, predictor.predict(copy.site));
        predictor.learn(copy.site, copy.is_used);
    }
    score
}

/// The library's own knowledge of a site: the times of its copies by either kind of stores, with
/// their reader's. Where it does not learn, copies are short, and go into the cache.
fn by_library(times: &mut Times, copies: &[Made]) -> Score {
    let (mut sites, mut score) = (HashMap::<u32, Site<Kind>>::new(), Score::default());
    for &copy in copies {
        let site = sites.entry(copy.site).or_default();
        let choice = site.next(copy.bytes as usize, || [Kind::Into, Kind::Past]);
        let into = choice.is_none_or(|choice| choice.algorithm.stores() == Stores::Temporal);
        score.count(times, copy, into);
        if let Some(choice) = choice.filter(|choice| choice.timed) {
            let ns = times.cycles(into, copy) * 1000.0 / OPTERON_250.mhz;
            site.observe(copy.bytes as usize, choice.algorithm, ns as u64);
        }
    }
    score
}

/// The copies of a recording of a line or more.
fn copies(of: &Recording) -> Result<Vec<Made>, LabError> {
    let failed = |why| LabError::Failed { id: ID, why: format!("{why}") };
    let all = replay::copies(of).map_err(failed)?;
    let sites = sites(of).map_err(failed)?;
    let with = &OPTERON_250;
    let again = watch(&mut Hierarchy::new(with.first, with.second, with.sharing), &all);
    let one = |((copy, site), again): ((&replay::Copied, u32), Again)| Made {
        site,
        bytes: copy.bytes,
        is_used: again.is_used(),
    };
    let copies = all.iter().zip(sites).zip(again).map(one);
    Ok(copies.filter(|copy| copy.bytes >= LINE).collect())
}

/// All predictors' scores, in the order of [`PREDICTORS`].
fn scores(times: &mut Times, copies: &[Made]) -> [Score; PREDICTORS.len()] {
    [
        told(times, copies, Fixed(false)),
        told(times, copies, Fixed(true)),
        told(times, copies, LastTime::default()),
        told(times, copies, TwoBit::default()),
        told(times, copies, History::default()),
        by_library(times, copies),
    ]
}

/// Runs the experiment.
///
/// # Errors
/// A recording is damaged.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut times = Times { seed: run.seed(), known: HashMap::new() };
    let mut outcome = Outcome::new();
    let axis = "1 compile, 2 mail spool, 3 pipe, 4 bulk sender, 5 chat, 6 sockets";
    let mut right = Plot::new("Right predictions", Axis::linear(axis), Axis::linear("%"));
    let mut cycles =
        Plot::new("Time against the truth's", Axis::linear(axis), Axis::linear("% more"));
    let mut all = Vec::new();
    for (at, recording) in RECORDED.iter().enumerate() {
        run.progress(at as f64 / RECORDED.len() as f64, recording.name);
        let copies = copies(recording)?;
        let best = copies.iter().map(|&copy| {
            // The truth, and the cheaper way for it.
            times.cycles(true, copy).min(times.cycles(false, copy))
        });
        let best: f64 = best.sum();
        let count = copies.len().max(1) as f64;
        let used = copies.iter().filter(|copy| copy.is_used).count() as f64;
        let value = Value::new("destinations used again", recording.name, "", "%");
        outcome.values.push(value.model(100.0 * used / count));
        let mut shares = [[0.0; 2]; PREDICTORS.len()];
        let scores = scores(&mut times, &copies);
        for ((share, score), name) in shares.iter_mut().zip(scores).zip(PREDICTORS) {
            *share = [100.0 * score.right as f64 / count, 100.0 * (score.cycles / best - 1.0)];
            let value = Value::new("right predictions", name, recording.name, "%");
            outcome.values.push(value.model(share[0]));
            let value = Value::new("time beyond the best way's", name, recording.name, "%");
            outcome.values.push(value.model(share[1]));
        }
        all.push((recording.name, shares));
    }
    for (at, name) in PREDICTORS.into_iter().enumerate() {
        for (plot, of) in [(&mut right, 0), (&mut cycles, 1)] {
            let points = all.iter().enumerate().map(|(x, it)| (x as f64 + 1.0, it.1[at][of]));
            plot.add(name, Column::Model, points.collect());
        }
    }
    outcome.plots = vec![right, cycles];
    judge(&mut outcome, &all);
    outcome.note(
        "Ours: the paper proposes to learn by the caller. A site here is a program's calls of one \
         kind on one descriptor, as far as a recording tells callers apart. A destination is used \
         again if later copies read or overwrite more than half of its lines while the Opteron's \
         caches have them; what programs do with their data between calls is not in a recording, \
         so that this is less than all uses. Each predictor is told the outcome of a copy before \
         the next one of its site, earlier than any hardware could know it.",
    );
    outcome.note(
        "The times are `bmo-copybench`'s and `bmo-reuse`'s, from memory to memory: stores into the \
         cache or past it, and the destination read next if it is used again. The library's site \
         learns from times alone, a few copies of which it has timed, and does not ask for uses: \
         where both ways take as long, it has nothing to learn, and its predictions are worth as \
         much. Copies below 1 KB it does not learn about.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, all: &[(&str, [[f64; 2]; PREDICTORS.len()])]) {
    let list = |at: usize, of: usize| -> String {
        let each: Vec<String> = all.iter().map(|(_, it)| format!("{:.1}", it[at][of])).collect();
        each.join(", ")
    };
    let mean = |at: usize| all.iter().map(|it| it.1[at][0]).sum::<f64>() / all.len().max(1) as f64;
    let by_site = LAST..LIBRARY;
    let fixed = mean(NEVER).max(mean(ALWAYS));
    let words: Vec<String> =
        by_site.clone().map(|at| format!("{}: {} %", PREDICTORS[at], list(at, 0))).collect();
    outcome.claims.push(Claim::modelled(
        "each predictor by site is right more often than the better fixed guess, on the mean of \
         the programs",
        Finding::of(by_site.clone().all(|at| mean(at) > fixed), words.join("; ")),
        NOT_HERE,
    ));
    let means: Vec<String> =
        (0..PREDICTORS.len()).map(|at| format!("{} {:.1} %", PREDICTORS[at], mean(at))).collect();
    outcome.claims.push(Claim::modelled(
        "a history of four outcomes is right less often than the last one or a 2-bit counter",
        Finding::of(
            mean(LAST + 2) < mean(LAST) && mean(LAST + 2) < mean(LAST + 1),
            means.join(", "),
        ),
        NOT_HERE,
    ));
    let time = |at: usize| all.iter().map(|it| it.1[at][1]).sum::<f64>() / all.len().max(1) as f64;
    outcome.claims.push(Claim::modelled(
        "to be right is not to be fast: the library's site, which learns by time, loses less of it \
         than any predictor of reuse",
        Finding::of(
            by_site.clone().all(|at| time(LIBRARY) < time(at)),
            format!(
                "{:.1} % on the mean ({} %); always into the cache {:.1} %, always past it {:.1} %",
                time(LIBRARY),
                list(LIBRARY, 1),
                time(ALWAYS),
                time(NEVER)
            ),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_of_the_copies() {
        let mut times = Times { seed: 1, known: HashMap::new() };
        let copy = |at: u64| Made { site: 0, bytes: 4096, is_used: at.is_multiple_of(2) };
        let all: Vec<Made> = (0..100).map(copy).collect();
        let scores = scores(&mut times, &all);
        let right = scores.map(|it| it.right);
        assert_eq!(right[..3], [50, 50, 0]);
        assert!(right[4] > 80, "{right:?}");
        let cycles: f64 = all.iter().map(|it| times.cycles(true, *it)).sum();
        assert!((scores[ALWAYS].cycles / cycles - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_librarys_site_finds_the_faster_kind() {
        // Nothing is used again, and past the cache is faster by a third.
        let mut times = Times { seed: 1, known: HashMap::new() };
        let copy = Made { site: 3, bytes: 16 << 10, is_used: false };
        assert!(times.cycles(false, copy) < 0.9 * times.cycles(true, copy));
        let score = by_library(&mut times, &[copy; 400]);
        assert!(score.right > 360, "{score:?}");
    }
}
