//! One case: all algorithms in turn, then the better ones again and again, so that whatever disturbs the
//! machine disturbs all of them alike.

use pinfold_sys::block::{Algorithm, Stores};

use super::{Bench, case::Case};

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

/// Measures `case` in about `share_ns`. `None` if it cannot be made here.
pub(super) fn survey(
    bench: &mut impl Bench,
    case: &Case,
    algorithms: &[Algorithm],
    share_ns: u64,
) -> Option<Losses> {
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
    let mut times: Vec<(Algorithm, Vec<f64>)> =
        finalists.into_iter().map(|at| (algorithms[at], Vec::new())).collect();
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && bench.now_ns() - start > share_ns {
            break;
        }
        for (algorithm, times) in &mut times {
            times.push(bench.run(case, *algorithm)?);
        }
    }
    Some(losses(algorithms, &first, &mut times))
}

/// Those that stayed in are compared by their medians, the others by what they took in the first rounds.
fn losses(algorithms: &[Algorithm], first: &[f64], times: &mut [(Algorithm, Vec<f64>)]) -> Losses {
    let medians: Vec<(Algorithm, f64)> = times
        .iter_mut()
        .map(|(algorithm, times)| {
            times.sort_by(f64::total_cmp);
            (*algorithm, times[times.len() / 2])
        })
        .collect();
    let best = medians.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
    let best_first = first.iter().copied().fold(f64::INFINITY, f64::min);
    Losses::from_fn(|algorithm| {
        let median = medians.iter().find(|it| it.0 == algorithm).map(|(_, ns)| ns / best);
        let at = algorithms.iter().position(|it| *it == algorithm);
        let loss = median.or_else(|| at.map(|at| first[at] / best_first)).unwrap_or(f64::INFINITY);
        // A clock too coarse to see anything has nothing to say against anybody.
        if loss.is_nan() { 1.0 } else { loss }
    })
}
