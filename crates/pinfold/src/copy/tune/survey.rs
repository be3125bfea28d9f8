//! One case: all algorithms in turn, then the better ones again and again, so that a disturbance of
//! the machine disturbs all of them alike.

use pinfold_sys::{
    cpu::block::{Algorithm, Isa, Prefetch, Stores},
    shuffle::Shuffle,
};

use super::{
    bench::Bench,
    case::{Case, LONG},
};
use crate::copy::{Reader, class::Class};

/// Rounds of all: the best of a few tells which are out. None is out for one, which anything may
/// have disturbed. Short blocks have more, if there is time: a disturbance is long beside them.
const FIRST_ROUNDS: usize = 2;
const FIRST_ROUNDS_SHORT: usize = 6;

/// Blocks of so many bytes are short.
const SHORT_MAX: usize = 64 << 10;

/// An algorithm that takes so many times as long as the best of its kind in those is out.
const HOPELESS: f64 = 1.5;

/// An algorithm that takes so many times as long in the first two rounds of all is out at once.
const FAR_OFF: f64 = 2.5;

/// The number of each kind of stores that stay in, at most; and of long blocks, which take most of
/// the time.
const FINALISTS: usize = 5;
const FINALISTS_LONG: usize = 3;

/// An algorithm that takes less than so many times as long as the best may be as good; of those the
/// simplest stay in.
const ALIKE: f64 = 1.1;

/// The number of rounds that a visit has also if there is no time.
const ROUNDS_MIN: usize = 3;

/// The time of each algorithm over that of the best, by its number; infinite for those that were
/// not tried.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Losses([f64; Algorithm::COUNT]);

impl Losses {
    /// The losses that `loss` gives for each algorithm.
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

    /// The algorithm that takes least, the simplest of equal ones. `None` if none was tried.
    pub(super) fn best(&self) -> Option<Algorithm> {
        let tried = Algorithm::all().filter(|it| self.of(*it).is_finite());
        tried.min_by(|a, b| self.of(*a).total_cmp(&self.of(*b)))
    }
}

/// A round of the algorithms that stayed in.
struct Round {
    /// The distance of the cores, if two take part.
    class: Option<Class>,
    ns: Vec<f64>,
}

/// The results of a case so far.
pub(super) struct Survey {
    case: Case,
    algorithms: Vec<Algorithm>,
    /// The time of each in the rounds of all, at best, nanoseconds.
    first: Vec<f64>,
    /// The places of the algorithms that stayed in.
    finalists: Vec<usize>,
    rounds: Vec<Round>,
    rng: Shuffle,
}

impl Survey {
    /// Visits `case` for the first time, for about `share_ns`. `None` if it cannot be made here.
    pub(super) fn begin(
        bench: &mut impl Bench,
        case: &Case,
        algorithms: Vec<Algorithm>,
        share_ns: u64,
    ) -> Option<Survey> {
        let start = bench.now_ns();
        // The first of all also brings in pages and code.
        bench.run(case, *algorithms.first()?)?;
        let mut first: Vec<f64> = vec![f64::INFINITY; algorithms.len()];
        let rounds = if case.len() <= SHORT_MAX { FIRST_ROUNDS_SHORT } else { FIRST_ROUNDS };
        for round in 0..rounds {
            if round >= FIRST_ROUNDS && bench.now_ns() - start > share_ns / 2 {
                break;
            }
            bench.move_on();
            let best = best_of_kinds(&algorithms, &first);
            for (at, &algorithm) in algorithms.iter().enumerate() {
                // An algorithm that was far off in the first two is out.
                if round < 2 || first[at] <= best(algorithm) * FAR_OFF {
                    first[at] = first[at].min(bench.run(case, algorithm)?);
                }
            }
        }
        let most = if case.len() > LONG { FINALISTS_LONG } else { FINALISTS };
        let finalists = finalists(&algorithms, &first, most);
        let rounds = Vec::new();
        let (case, rng) = (*case, Shuffle::new());
        let mut survey = Survey { case, algorithms, first, finalists, rounds, rng };
        survey.visit(bench, start.saturating_add(share_ns));
        Some(survey)
    }

    /// Visits it again: some more rounds of the algorithms that stayed in.
    pub(super) fn go_on(&mut self, bench: &mut impl Bench) {
        self.visit(bench, u64::MAX);
    }

    fn visit(&mut self, bench: &mut impl Bench, until_ns: u64) {
        let two = self.case.situation.reader == Reader::OtherCore;
        let hop_ns = |bench: &mut _| if two { Bench::hop_ns(bench) } else { None };
        let mut before = hop_ns(bench);
        for turn in 0..self.case.rounds() {
            if turn >= ROUNDS_MIN && bench.now_ns() > until_ns {
                break;
            }
            bench.move_on();
            let mut ns = vec![0.0; self.finalists.len()];
            // An algorithm takes longer after one that left much to be written back.
            let mut order: Vec<usize> = (0..ns.len()).collect();
            self.rng.shuffle(&mut order);
            for at in order {
                let Some(taken) = bench.run(&self.case, self.algorithms[self.finalists[at]]) else {
                    return;
                };
                ns[at] = taken;
            }
            let after = hop_ns(bench);
            let class = before.zip(after).map(|(before, after)| Class::of(before, after));
            self.rounds.push(Round { class, ns });
            before = after;
        }
    }

    /// The case.
    pub(super) fn case(&self) -> &Case {
        &self.case
    }

    /// The algorithms that stayed in.
    pub(super) fn finalists(&self) -> impl Iterator<Item = Algorithm> {
        self.finalists.iter().map(|&at| self.algorithms[at])
    }

    /// The results, at each distance that was seen at more than one visit, or if there is none at
    /// any; of one that is neither near nor far only if that is all there is.
    pub(super) fn results(&self) -> Vec<(Option<Class>, Losses)> {
        let of = |class| self.rounds.iter().filter(move |round| round.class == class);
        let clear = [None, Some(Class::Near), Some(Class::Far)];
        let mut seen: Vec<Option<Class>> =
            clear.into_iter().filter(|&class| of(class).count() > self.case.rounds()).collect();
        if seen.is_empty() {
            let most = clear.into_iter().max_by_key(|&class| of(class).count());
            let most = most.filter(|&class| of(class).count() > 0);
            seen.push(most.unwrap_or(Some(Class::Mixed)));
        }
        seen.into_iter().map(|class| (class, self.losses(&of(class).collect::<Vec<_>>()))).collect()
    }

    /// Algorithms that stayed in are compared round by round, so that a slow moment counts for
    /// none: the slowness of a round is the median of their times in it, each over its usual time.
    /// The others are compared by their times in the first rounds.
    fn losses(&self, rounds: &[&Round]) -> Losses {
        let of_each = |taken: &dyn Fn(usize, &Round) -> f64| -> Vec<f64> {
            let of = |at: usize| median(rounds.iter().map(|round| taken(at, round)).collect());
            (0..self.finalists.len()).map(of).collect()
        };
        let usual = of_each(&|at, round| round.ns[at]);
        let slowness = |round: &Round| {
            median(round.ns.iter().zip(&usual).map(|(ns, usual)| ns / usual).collect())
        };
        let medians = of_each(&|at, round| round.ns[at] / slowness(round));
        let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let best_first = self.first.iter().copied().fold(f64::INFINITY, f64::min);
        Losses::from_fn(|algorithm| {
            let Some(at) = self.algorithms.iter().position(|it| *it == algorithm) else {
                return f64::INFINITY;
            };
            let loss = match self.finalists.iter().position(|it| *it == at) {
                Some(finalist) => medians[finalist] / best,
                None => self.first[at] / best_first,
            };
            // A clock too coarse to see anything says nothing against any of them.
            if loss.is_nan() { 1.0 } else { loss }
        })
    }
}

/// The time of the best that stores like some algorithm.
fn best_of_kinds(algorithms: &[Algorithm], first: &[f64]) -> impl Fn(Algorithm) -> f64 + use<> {
    let best = |stores: Stores| {
        let kind = algorithms.iter().zip(first).filter(|(it, _)| it.stores() == stores);
        kind.map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min)
    };
    let (temporal, streaming) = (best(Stores::Temporal), best(Stores::Streaming));
    move |algorithm| match algorithm.stores() {
        Stores::Temporal => temporal,
        Stores::Streaming => streaming,
    }
}

/// The algorithms that may be the best, by their times in the first rounds: so many of each kind at
/// most.
fn finalists(algorithms: &[Algorithm], first: &[f64], most: usize) -> Vec<usize> {
    let mut finalists = Vec::new();
    let best_of_kind = best_of_kinds(algorithms, first);
    for kind in [Stores::Temporal, Stores::Streaming] {
        let of_kind = || (0..first.len()).filter(|&at| algorithms[at].stores() == kind);
        let Some(best) = of_kind().next().map(|at| best_of_kind(algorithms[at])) else { continue };
        let mut able: Vec<usize> = of_kind().filter(|&at| first[at] <= best * HOPELESS).collect();
        // The simplest are listed first, and stay so.
        able.sort_by(|&a, &b| {
            let rank = |at: usize| if first[at] <= best * ALIKE { 0.0 } else { first[at] };
            rank(a).total_cmp(&rank(b))
        });
        finalists.extend(able.into_iter().take(most));
    }
    // The one that all others are compared to, and one that does well on most machines: neither may
    // be out by accident.
    for simple in
        [Some(Algorithm::LIBC), Algorithm::new(Isa::Rep, Prefetch::None, Stores::Temporal)]
    {
        let at = algorithms.iter().position(|it| Some(*it) == simple);
        finalists.extend(at.filter(|at| !finalists.contains(at)));
    }
    finalists
}

/// The median.
fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(f64::NAN)
}
