//! From what was measured to a table.

use pinfold_sys::block::{Algorithm, Stores};
use rustc_hash::FxHashMap;

use super::{
    case::{Case, measured_as},
    survey::Losses,
};
use crate::blockmem::{
    CacheState, Reader,
    table::{CLASSES, Choice, Operation, Placement, Situation, Table, class_bytes, is_choice},
};

/// Those within 3 % of the best are as good as it: of them that is taken which is good for the
/// neighbouring sizes, too, or else the simplest, so that noise picks nothing exotic.
const SAME: f64 = 1.03;

/// What another algorithm than for the next smaller size must gain beyond that.
const CHANGE: f64 = 1.01;

/// How many classes of sizes away a neighbour may be whose result is taken over before that of the plain
/// placement is.
const NEAR: usize = 2;

/// What was measured, by case.
pub(super) struct Board {
    cases: FxHashMap<Case, Losses>,
    last_cache_bytes: usize,
}

impl Board {
    pub(super) fn new(last_cache_bytes: usize) -> Board {
        Board { cases: FxHashMap::default(), last_cache_bytes }
    }

    pub(super) fn put(&mut self, case: &Case, losses: Losses) {
        self.cases.insert(*case, losses);
    }

    /// The table that follows, with the defaults where nothing was measured.
    pub(super) fn table(&self, defaults: &Table) -> Table {
        let mut choices = Vec::new();
        let choose = |situation: Situation, class: usize| {
            // Tables are made situation by situation, the smallest class first.
            if class == 0 {
                choices = self.choices(situation);
            }
            choices[class].unwrap_or(defaults.choice(situation, class))
        };
        // They are sound.
        Table::from_fn(choose).unwrap_or_else(|| defaults.clone())
    }

    /// The choices for a situation, class by class; `None` where nothing is known.
    fn choices(&self, situation: Situation) -> Vec<Option<Choice>> {
        let losses: Vec<Option<Losses>> = (0..CLASSES)
            .map(|class| {
                if !is_choice(class_bytes(class), situation.reader) {
                    return None;
                }
                let known: Option<Vec<&Losses>> =
                    knowing(situation).map(|known| self.nearest(known, class)).collect();
                known.map(|known| mean(&known))
            })
            .collect();
        let temporal = path(&losses, |it| it.stores() == Stores::Temporal);
        let streaming = path(&losses, |it| it.stores() == Stores::Streaming);
        let best = path(&losses, |_| true);
        (0..CLASSES)
            .map(|class| {
                losses[class].as_ref()?;
                let best = best[class]?;
                Some(if best.stores() == Stores::Streaming {
                    Choice::new(temporal[class]?, best, true)
                } else {
                    Choice::new(best, streaming[class].unwrap_or(best), false)
                })
            })
            .collect()
    }

    /// How many times as fast as the C library's the choices of `table` are, where that should matter.
    pub(super) fn gain(&self, table: &Table) -> f64 {
        let gains = self.cases.iter().filter_map(|(case, losses)| {
            let it = case.situation;
            let matters = it.reader == Reader::OtherCore
                || [it.source, it.destination].contains(&CacheState::Uncached);
            let taken = table.choice(it, case.class).best;
            matters.then(|| (losses.of(Algorithm::LIBC) / losses.of(taken)).ln())
        });
        let (sum, count) = gains.fold((0.0, 0), |(sum, count), gain| (sum + gain, count + 1));
        (sum / f64::from(count.max(1))).exp()
    }

    /// What was measured in this situation and class, or nearest to it.
    fn nearest(&self, situation: Situation, class: usize) -> Option<&Losses> {
        let find = |situation: Situation, class: usize| {
            let situation = measured_as(situation, class_bytes(class), self.last_cache_bytes);
            self.cases.get(&Case { situation, class })
        };
        let within = |situation: Situation, far: usize| {
            (0..=far).find_map(|away| {
                let smaller = class.checked_sub(away).and_then(|class| find(situation, class));
                smaller.or_else(|| find(situation, class + away))
            })
        };
        let plain = Situation { placement: Placement::Plain, ..situation };
        within(situation, NEAR).or_else(|| within(plain, CLASSES))
    }
}

/// The situations that one may be in where something is unknown.
fn knowing(situation: Situation) -> impl Iterator<Item = Situation> {
    let both = |state| match state {
        CacheState::Unknown => vec![CacheState::Cached, CacheState::Uncached],
        known => vec![known],
    };
    let sources = match situation.operation {
        Operation::Copy => both(situation.source),
        Operation::Zero => vec![CacheState::Unknown],
    };
    sources.into_iter().flat_map(move |source| {
        let destinations = both(situation.destination).into_iter();
        destinations.map(move |destination| Situation { source, destination, ..situation })
    })
}

/// The geometric mean: each situation counts alike, however long its copies take.
fn mean(of: &[&Losses]) -> Losses {
    let count = of.len().max(1) as f64;
    Losses::from_fn(|algorithm| {
        (of.iter().map(|losses| losses.of(algorithm).ln()).sum::<f64>() / count).exp()
    })
}

/// An algorithm of those that `may` for each class, so that as little as possible is lost and that by few
/// changes; of equal ones the simplest. `None` where there is none that was measured in all classes.
fn path(losses: &[Option<Losses>], may: impl Fn(Algorithm) -> bool) -> Vec<Option<Algorithm>> {
    let is_known =
        |it: &Algorithm| losses.iter().flatten().all(|losses| losses.of(*it).is_finite());
    let all: Vec<Algorithm> = Algorithm::all().filter(|it| may(*it)).filter(is_known).collect();
    let lost = |class: usize, algorithm| {
        let Some(losses) = &losses[class] else { return 0.0 };
        let best = all.iter().map(|it| losses.of(*it)).fold(f64::INFINITY, f64::min);
        (losses.of(algorithm) / best / SAME).ln().max(0.0)
    };
    // The least that is lost up to a class if it goes to an algorithm, and who had the class before.
    let mut totals: Vec<f64> = vec![0.0; all.len()];
    let mut before: Vec<Vec<usize>> = Vec::with_capacity(losses.len());
    let least = |totals: &[f64]| {
        (0..totals.len()).min_by(|&a, &b| totals[a].total_cmp(&totals[b])).unwrap_or(0)
    };
    for class in 0..losses.len() {
        let best = least(&totals);
        let from = |at: usize| if totals[at] <= totals[best] + CHANGE.ln() { at } else { best };
        let came: Vec<usize> = (0..all.len()).map(from).collect();
        totals = (0..all.len())
            .map(|at| {
                let change = if came[at] == at { 0.0 } else { CHANGE.ln() };
                totals[came[at]] + change + lost(class, all[at])
            })
            .collect();
        before.push(came);
    }
    let mut at = least(&totals);
    let mut taken: Vec<Option<Algorithm>> = before
        .iter()
        .rev()
        .map(|came| {
            let here = all.get(at).copied();
            at = came.get(at).copied().unwrap_or(at);
            here
        })
        .collect();
    taken.reverse();
    taken
}
