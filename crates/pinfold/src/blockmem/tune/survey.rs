//! One case: all algorithms in turn, then the better ones again and again, so that whatever disturbs the
//! machine disturbs all of them alike.

use pinfold_sys::block::{Algorithm, Stores};

use super::{Bench, case::Case};
use crate::blockmem::{Reader, class::Class};

/// Rounds of all, if there is time: the better of two tells who is out.
const FIRST_ROUNDS: usize = 2;

/// Who takes so many times as long as the best of its kind in those is out.
const HOPELESS: f64 = 1.5;

/// How many of each kind of stores stay in, at most.
const FINALISTS: usize = 5;

/// Who takes less than so many times as long as the best may be as good; of those the simplest stay in.
const ALIKE: f64 = 1.1;

/// Rounds of those that stay in, if there is time.
const ROUNDS_MAX: usize = 15;

/// And also if there is none.
const ROUNDS_MIN: usize = 3;

/// How many times as long as the best each algorithm takes, by its number; infinite for those that were
/// not tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Losses([f64; Algorithm::COUNT]);

impl Losses {
    /// Those that make `loss` of each algorithm.
    pub(super) fn from_fn(mut loss: impl FnMut(Algorithm) -> f64) -> Losses {
        let mut losses = [f64::INFINITY; Algorithm::COUNT];
        for algorithm in Algorithm::all() {
            losses[usize::from(algorithm.id())] = loss(algorithm);
        }
        Losses(losses)
    }

    pub(super) fn of(&self, algorithm: Algorithm) -> f64 {
        self.0[usize::from(algorithm.id())]
    }
}

/// A round of those that stayed in.
struct Round {
    /// How far apart the cores were, where two take part.
    class: Option<Class>,
    ns: Vec<f64>,
}

/// What came out of a case.
pub(super) struct Surveyed {
    /// How far apart the cores were, where two take part.
    pub(super) class: Option<Class>,
    pub(super) losses: Losses,
}

/// Measures `case` in about `share_ns`. `None` if it cannot be made here.
pub(super) fn survey(
    bench: &mut impl Bench,
    case: &Case,
    algorithms: &[Algorithm],
    share_ns: u64,
) -> Option<Surveyed> {
    let start = bench.now_ns();
    // The first of all also brings in pages and code.
    bench.run(case, *algorithms.first()?)?;
    let mut first: Vec<f64> = vec![f64::INFINITY; algorithms.len()];
    for round in 0..FIRST_ROUNDS {
        if round > 0 && bench.now_ns() - start > share_ns / 2 {
            break;
        }
        for (first, &algorithm) in first.iter_mut().zip(algorithms) {
            *first = first.min(bench.run(case, algorithm)?);
        }
    }
    let finalists = finalists(algorithms, &first);
    let two = case.situation.reader == Reader::OtherCore;
    let hop_ns = |bench: &mut _| if two { Bench::hop_ns(bench) } else { None };
    let mut rounds: Vec<Round> = Vec::new();
    let mut before = hop_ns(bench);
    for turn in 0..ROUNDS_MAX {
        if turn >= ROUNDS_MIN && bench.now_ns() - start > share_ns {
            break;
        }
        let mut ns = vec![0.0; finalists.len()];
        // Nobody always comes after the same one.
        for place in 0..finalists.len() {
            let at = (place + turn) % finalists.len();
            ns[at] = bench.run(case, algorithms[finalists[at]])?;
        }
        let after = hop_ns(bench);
        let class = before.zip(after).map(|(before, after)| Class::of(before, after));
        rounds.push(Round { class, ns });
        before = after;
    }
    let class = most(&rounds);
    rounds.retain(|round| round.class == class);
    Some(Surveyed { class, losses: losses(algorithms, &first, &finalists, &rounds) })
}

/// The class that most of the rounds had; one that is neither near nor far only if all had.
fn most(rounds: &[Round]) -> Option<Class> {
    let of = |class: Class| rounds.iter().filter(|round| round.class == Some(class)).count();
    let clear = [Class::Near, Class::Far].into_iter().filter(|class| of(*class) > 0);
    clear.max_by_key(|class| of(*class)).or_else(|| rounds.first()?.class)
}

/// Those that may be the best, by what they took in the first rounds.
fn finalists(algorithms: &[Algorithm], first: &[f64]) -> Vec<usize> {
    let mut finalists = Vec::new();
    for kind in [Stores::Temporal, Stores::Streaming] {
        let of_kind = || (0..first.len()).filter(|&at| algorithms[at].stores() == kind);
        let best = of_kind().map(|at| first[at]).fold(f64::INFINITY, f64::min);
        let mut able: Vec<usize> = of_kind().filter(|&at| first[at] <= best * HOPELESS).collect();
        // The simplest are listed first, and stay so.
        able.sort_by(|&a, &b| {
            let rank = |at: usize| if first[at] <= best * ALIKE { 0.0 } else { first[at] };
            rank(a).total_cmp(&rank(b))
        });
        finalists.extend(able.into_iter().take(FINALISTS));
    }
    // What all others are compared to.
    let libc = algorithms.iter().position(|algorithm| *algorithm == Algorithm::LIBC);
    finalists.extend(libc.filter(|libc| !finalists.contains(libc)));
    finalists
}

/// Those that stayed in are compared round by round, each with what the round took in the middle, so that
/// a slow moment counts for nobody; the others by what they took in the first rounds.
fn losses(
    algorithms: &[Algorithm],
    first: &[f64],
    finalists: &[usize],
    rounds: &[Round],
) -> Losses {
    let middles: Vec<f64> = rounds.iter().map(|round| median(round.ns.clone())).collect();
    let medians: Vec<f64> = (0..finalists.len())
        .map(|at| {
            let ratios = rounds.iter().zip(&middles).map(|(round, middle)| round.ns[at] / middle);
            median(ratios.collect())
        })
        .collect();
    let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
    let best_first = first.iter().copied().fold(f64::INFINITY, f64::min);
    Losses::from_fn(|algorithm| {
        let Some(at) = algorithms.iter().position(|it| *it == algorithm) else {
            return f64::INFINITY;
        };
        let loss = match finalists.iter().position(|it| *it == at) {
            Some(finalist) => medians[finalist] / best,
            None => first[at] / best_first,
        };
        // A clock too coarse to see anything has nothing to say against anybody.
        if loss.is_nan() { 1.0 } else { loss }
    })
}

/// The middle one.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
