//! From what was measured to a table.

use pinfold_sys::block::{Algorithm, Stores};
use rustc_hash::FxHashMap;

use super::{
    case::{Case, measured_as},
    survey::Losses,
};
use crate::blockmem::{
    CacheState, Reader,
    table::{CLASSES, Choice, Operation, Placement, Situation, Table, class_bytes},
};

/// Of those within 3 % of the best the simplest is taken, so that noise picks nothing exotic.
const SAME: f64 = 1.03;

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
        let choose = |situation: Situation, class| {
            let known: Option<Vec<&Losses>> =
                knowing(situation).map(|known| self.nearest(known, class)).collect();
            known
                .and_then(|known| choice(&mean(&known)))
                .unwrap_or(defaults.choice(situation, class))
        };
        // `choice` makes sound ones.
        Table::from_fn(choose).unwrap_or_else(|| defaults.clone())
    }

    /// How many times as fast as the C library's the choices are, where that should matter.
    pub(super) fn gain(&self) -> f64 {
        let gains = self.cases.iter().filter_map(|(case, losses)| {
            let it = case.situation;
            let matters = it.reader == Reader::OtherCore
                || [it.source, it.destination].contains(&CacheState::Uncached);
            let choice = choice(losses).filter(|_| matters)?;
            Some((losses.of(Algorithm::LIBC) / losses.of(choice.best)).ln())
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

/// The simplest of the best, of each kind. `None` if nothing that stores into the cache was measured.
fn choice(losses: &Losses) -> Option<Choice> {
    let simplest = |kinds: &[Stores]| {
        let all = || {
            let kinds = |it: &Algorithm| kinds.contains(&it.stores());
            Algorithm::all().filter(kinds).filter(|it| losses.of(*it).is_finite())
        };
        let best = all().map(|it| losses.of(it)).fold(f64::INFINITY, f64::min);
        all().find(|it| losses.of(*it) <= best * SAME)
    };
    let best = simplest(&[Stores::Temporal, Stores::Streaming])?;
    let streams = best.stores() == Stores::Streaming;
    let (temporal, streaming) = if streams {
        (simplest(&[Stores::Temporal])?, best)
    } else {
        (best, simplest(&[Stores::Streaming]).unwrap_or(best))
    };
    Some(Choice::new(temporal, streaming, streams))
}
