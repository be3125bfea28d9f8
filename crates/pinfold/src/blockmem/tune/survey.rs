//! One case: all algorithms in turn, then the better ones again and again, so that whatever disturbs the
//! machine disturbs all of them alike.

use pinfold_sys::block::{Algorithm, Stores};

use super::{Bench, case::Case};

/// Who takes so many times as long as the best of its kind in the first round is out.
const HOPELESS: f64 = 1.5;

/// How many of each kind of stores stay in, at most.
const FINALISTS: usize = 5;

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
    let mut times: Vec<(Algorithm, Vec<f64>)> = Vec::with_capacity(algorithms.len());
    for &algorithm in algorithms {
        times.push((algorithm, vec![bench.run(case, algorithm)?]));
    }
    let first = |(_, times): &(Algorithm, Vec<f64>)| times[0];
    let mut finalists = Vec::new();
    for kind in [Stores::Temporal, Stores::Streaming] {
        let mut of_kind: Vec<usize> =
            (0..times.len()).filter(|&at| times[at].0.stores() == kind).collect();
        of_kind.sort_by(|&a, &b| first(&times[a]).total_cmp(&first(&times[b])));
        let limit = of_kind.first().map_or(0.0, |&at| first(&times[at]) * HOPELESS);
        finalists
            .extend(of_kind.into_iter().take(FINALISTS).filter(|&at| first(&times[at]) <= limit));
    }
    // What all others are compared to.
    let libc = times.iter().position(|(algorithm, _)| *algorithm == Algorithm::LIBC);
    finalists.extend(libc.filter(|libc| !finalists.contains(libc)));
    for round in 0..ROUNDS_MAX {
        if round >= ROUNDS_MIN && bench.now_ns() - start > share_ns {
            break;
        }
        for &at in &finalists {
            let (algorithm, times) = &mut times[at];
            times.push(bench.run(case, *algorithm)?);
        }
    }
    Some(losses(&mut times))
}

/// Those that were measured once are compared to the best of the first round, the others by their medians.
fn losses(times: &mut [(Algorithm, Vec<f64>)]) -> Losses {
    let best_first = times.iter().map(|(_, times)| times[0]).fold(f64::INFINITY, f64::min);
    let medians: Vec<(Algorithm, f64, bool)> = times
        .iter_mut()
        .map(|(algorithm, times)| {
            let once = times.len() == 1;
            // The first one is not of the same rounds as the others.
            let rest = if once { &mut times[..] } else { &mut times[1..] };
            rest.sort_by(f64::total_cmp);
            (*algorithm, rest[rest.len() / 2], once)
        })
        .collect();
    let best = medians.iter().filter(|it| !it.2).map(|it| it.1).fold(f64::INFINITY, f64::min);
    Losses::from_fn(|algorithm| {
        let Some((_, ns, once)) = medians.iter().find(|it| it.0 == algorithm) else {
            return f64::INFINITY;
        };
        // A clock too coarse to see anything has nothing to say against anybody.
        let loss = ns / if *once { best_first } else { best };
        if loss.is_nan() { 1.0 } else { loss }
    })
}
