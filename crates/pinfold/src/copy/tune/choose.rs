//! From the measurements to a table.

use std::cmp::Ordering;

use pinfold_sys::cpu::block::{Algorithm, Isa, Stores};
use rustc_hash::FxHashMap;

use super::{
    case::{Case, measured_as, overflows},
    survey::{Losses, Survey},
};
use crate::copy::{
    CacheState, Reader,
    class::Class,
    table::{
        CLASSES, Choice, Operation, Placement, SHORT_BELOW, Situation, Table, class_bytes, class_of,
    },
    tuned::Seen,
};

/// Algorithms within 2 % of the best are as good as it: of them the one is taken that is good for
/// the neighbouring sizes, too, or else the simplest, so that noise picks nothing exotic.
const SAME: f64 = 1.02;

/// The gain beyond that of another algorithm than for the next smaller size.
const CHANGE: f64 = 1.01;

/// The gain of another one than the defaults have.
const DIFFER: f64 = 1.015;

/// The gain of another one than the C library's for short blocks: it is asked for, and called,
/// which takes a few nanoseconds of some fifty.
const CALLED: f64 = 1.08;

/// An algorithm that takes so many times as long as the best in one of the states that a choice is
/// for, or as the C library, is a bad choice, however good in the others: the excess counts so many
/// times as much.
const MUCH: f64 = 1.06;
const MUCH_OF_LIBC: f64 = 1.02;
const BAD: f64 = 3.0;

/// Cases seen once in so many at one distance, or less often, count for nothing.
const RARE: usize = 20;

/// An algorithm that has not been tried is not taken, if any has.
const UNTRIED: f64 = 1e3;

/// At a distance between the cores that was not seen, an algorithm that stores otherwise than
/// before is taken to need so many times as long.
const UNSEEN: f64 = 1.4;

/// The distance, in classes of sizes, up to which a neighbour's result is taken over before that of
/// the plain placement is.
const NEAR: usize = 2;

/// The measurements, by case, and if two cores took part by the distance between them.
pub(super) struct Board {
    cases: FxHashMap<(Option<Class>, Case), Losses>,
    last_cache_bytes: usize,
}

impl Board {
    pub(super) fn new(last_cache_bytes: usize) -> Board {
        Board { cases: FxHashMap::default(), last_cache_bytes }
    }

    /// The board of all measurements.
    pub(super) fn of(surveys: &[Survey], last_cache_bytes: usize) -> Board {
        let mut board = Board::new(last_cache_bytes);
        for survey in surveys {
            for (apart, losses) in survey.results() {
                board.put(survey.case(), apart, losses);
            }
        }
        board.forget_rare();
        board
    }

    /// Leaves out a distance that was hardly ever seen: cores that moved in the middle of a round,
    /// and back, look as if they had been there.
    pub(super) fn forget_rare(&mut self) {
        let Seen { near, far, .. } = self.seen();
        let rare = match near.cmp(&far) {
            Ordering::Less if near < far / RARE => Some(Class::Near),
            Ordering::Greater if far < near / RARE => Some(Class::Far),
            _ => return,
        };
        self.cases.retain(|(apart, _), _| *apart != rare);
    }

    pub(super) fn put(&mut self, case: &Case, apart: Option<Class>, losses: Losses) {
        self.cases.insert((apart, *case), losses);
    }

    /// The number of cases in which the other core was at each distance.
    pub(super) fn seen(&self) -> Seen {
        let count = |class| self.cases.keys().filter(|(it, _)| *it == Some(class)).count();
        Seen { near: count(Class::Near), far: count(Class::Far), mixed: count(Class::Mixed) }
    }

    /// The table that follows, with that of `before` where nothing was measured. Its entries for
    /// other cores were measured at the distances that `seen` has.
    pub(super) fn table(&self, before: &Table, seen: Seen) -> Table {
        let mut choices = Vec::new();
        let choose = |situation: Situation, class: usize| {
            // Tables are made situation by situation, the smallest class first.
            if class == situation.classes().start {
                choices = self.choices(situation, before, seen);
            }
            choices[class].unwrap_or(before.choice(situation, class))
        };
        // They are sound.
        Table::from_fn(choose).unwrap_or_else(|| before.clone())
    }

    /// The choices for a situation, class by class; `None` if nothing is known.
    fn choices(&self, situation: Situation, before: &Table, seen: Seen) -> Vec<Option<Choice>> {
        let usual: Vec<Choice> =
            (0..CLASSES).map(|class| before.choice(situation, class)).collect();
        let losses: Vec<Vec<Losses>> = (0..CLASSES)
            .map(|class| {
                if !situation.classes().contains(&class) {
                    return Vec::new();
                }
                let known: Option<Vec<Vec<Losses>>> = knowing(situation)
                    .flat_map(|known| lying(known, class))
                    .map(|known| self.known(known, class, before, seen))
                    .collect();
                known.map(|known| known.concat()).unwrap_or_default()
            })
            .collect();
        let of = |part: fn(&Choice) -> Algorithm| usual.iter().map(part).collect::<Vec<_>>();
        let is = |stores| move |it: Algorithm| it.stores() == stores;
        let temporal = path(&losses, &of(|it| it.temporal), is(Stores::Temporal));
        let streaming = path(&losses, &of(|it| it.streaming), is(Stores::Streaming));
        let best = path(&losses, &of(|it| it.best), |_| true);
        (0..CLASSES)
            .map(|class| {
                losses[class].first()?;
                let best = best[class]?;
                Some(if best.stores() == Stores::Streaming {
                    Choice::new(temporal[class]?, best, true)
                } else {
                    Choice::new(best, streaming[class].unwrap_or(best), false)
                })
            })
            .collect()
    }

    /// The speed of the choices of `table` over that of the C library's, in the cases where that
    /// should matter.
    pub(super) fn gain(&self, table: &Table) -> f64 {
        let gains = self.cases.iter().filter_map(|((apart, case), losses)| {
            let mut it = case.situation;
            let matters = it.reader == Reader::OtherCore
                || [it.source, it.destination].contains(&CacheState::Uncached);
            it.reader = apart.map_or(it.reader, Reader::core);
            let taken = table.choice(it, case.class).best;
            matters.then(|| (losses.of(Algorithm::LIBC) / losses.of(taken)).ln())
        });
        let (sum, count) = gains.fold((0.0, 0), |(sum, count), gain| (sum + gain, count + 1));
        (sum / f64::from(count.max(1))).exp()
    }

    /// The losses in a situation and class, measured or taken to hold there: for another core as
    /// reader, those at each distance that is meant. `None` if nothing is known.
    fn known(
        &self,
        situation: Situation,
        class: usize,
        before: &Table,
        seen: Seen,
    ) -> Option<Vec<Losses>> {
        let there = |apart| self.there(situation, class, apart, before, seen);
        match situation.reader {
            Reader::NearCore => return Some(vec![there(Class::Near)?]),
            Reader::FarCore => return Some(vec![there(Class::Far)?]),
            Reader::OtherCore => {}
            _ => return Some(vec![self.nearest(situation, class, None)?.clone()]),
        }
        let both = [Class::Near, Class::Far].map(|apart| (apart, there(apart)));
        if both.iter().all(|(_, known)| known.is_none()) {
            return Some(vec![self.nearest(situation, class, Some(Class::Mixed))?.clone()]);
        }
        let taken = |apart| {
            let situation = match seen.at(apart) {
                0 => situation,
                _ => Situation { reader: Reader::core(apart), ..situation },
            };
            let stores = before.choice(situation, class).best.stores();
            Losses::from_fn(|it| if it.stores() == stores { 1.0 } else { UNSEEN })
        };
        Some(both.map(|(apart, known)| known.unwrap_or_else(|| taken(apart))).to_vec())
    }

    /// The measurements at this distance. If there are none, and `before` had none, those at the
    /// other distance, if their best kind of stores is the better one here, too, or is that of
    /// `before`: the nearer a core is, the less it takes to have lines from this one's cache, so an
    /// algorithm that stores there for a far core does so for a near one, and one that streams for
    /// a near core does so for a far one.
    fn there(
        &self,
        situation: Situation,
        class: usize,
        apart: Class,
        before: &Table,
        seen: Seen,
    ) -> Option<Losses> {
        if let Some(known) = self.nearest(situation, class, Some(apart)) {
            return Some(known.clone());
        }
        let (other, says) = match apart {
            Class::Near => (Class::Far, Stores::Temporal),
            Class::Far => (Class::Near, Stores::Streaming),
            Class::Mixed => return None,
        };
        let other = self.nearest(situation, class, Some(other))?;
        let stores = other.best()?.stores();
        let here = Situation { reader: Reader::core(apart), ..situation };
        let decides = stores == says || stores == before.choice(here, class).best.stores();
        (seen.at(apart) == 0 && decides).then(|| other.clone())
    }

    /// The measurements in this situation and class, or nearest to it.
    fn nearest(&self, situation: Situation, class: usize, apart: Option<Class>) -> Option<&Losses> {
        let find = |situation: Situation, class: usize| {
            let situation = measured_as(situation, class_bytes(class), self.last_cache_bytes);
            self.cases.get(&(apart, Case { situation, class }))
        };
        let within = |situation: Situation, far: usize| {
            (0..=far).find_map(|away| {
                let smaller = class.checked_sub(away).and_then(|class| find(situation, class));
                smaller.or_else(|| find(situation, class + away))
            })
        };
        let plain = Situation { placement: Placement::Plain, ..situation };
        // The effect of distance depends much on the size, up to that of the cache.
        let depends = apart.is_some() && !overflows(class_bytes(class), self.last_cache_bytes);
        let far = if depends { NEAR } else { CLASSES };
        within(situation, NEAR).or_else(|| within(plain, far))
    }
}

/// The situations that one may be in if something is unknown, each as often as it counts: a cached
/// block may be dirty or clean.
fn knowing(situation: Situation) -> impl Iterator<Item = Situation> {
    use CacheState::{Cached, Clean, Dirty, Uncached, Unknown};
    let sources = match (situation.operation, situation.source) {
        (Operation::Zero, _) => vec![Unknown],
        (Operation::Copy, Unknown) => vec![Cached, Uncached],
        (Operation::Copy, Dirty | Clean) => vec![Cached],
        (Operation::Copy, known) => vec![known],
    };
    sources.into_iter().flat_map(move |source| {
        let destinations = match situation.destination {
            Unknown => vec![Dirty, Clean, Uncached, Uncached],
            Cached => vec![Dirty, Clean],
            known => vec![known],
        };
        let destinations = destinations.into_iter();
        destinations.map(move |destination| Situation { source, destination, ..situation })
    })
}

/// The placements that blocks may have if that is not looked at, as with short ones.
fn lying(situation: Situation, class: usize) -> impl Iterator<Item = Situation> {
    let placements = match (class < class_of(SHORT_BELOW), situation.operation) {
        (false, _) => vec![situation.placement],
        (true, Operation::Copy) => Placement::ALL.to_vec(),
        (true, Operation::Zero) => vec![Placement::Plain, Placement::Misaligned],
    };
    placements.into_iter().map(move |placement| Situation { placement, ..situation })
}

/// The loss by `algorithm` if `losses` are those of one state, beside the best of `all`.
fn lost(losses: &Losses, algorithm: Algorithm, all: &[Algorithm]) -> f64 {
    let best = all.iter().map(|it| losses.of(*it)).fold(f64::INFINITY, f64::min);
    let beyond = |much: f64| (losses.of(algorithm).min(UNTRIED) / much).ln().max(0.0);
    let mut bad = beyond(best * MUCH);
    if all.contains(&Algorithm::LIBC) && algorithm != Algorithm::LIBC {
        bad += beyond(losses.of(Algorithm::LIBC) * MUCH_OF_LIBC);
    }
    beyond(best * SAME) + bad * BAD
}

/// An algorithm of those that `may` for each class, so that as little as possible is lost and that
/// by few changes and as little else than is `usual` as can be; of equal ones the simplest. Each of
/// the states that `losses` has for a class counts alike, however long copies take there. `None`
/// where there is none that was measured.
fn path(
    losses: &[Vec<Losses>],
    usual: &[Algorithm],
    may: impl Fn(Algorithm) -> bool,
) -> Vec<Option<Algorithm>> {
    let is_known =
        |it: &Algorithm| losses.iter().flatten().any(|losses| losses.of(*it).is_finite());
    let all: Vec<Algorithm> = Algorithm::all().filter(|it| may(*it)).filter(is_known).collect();
    let lost = |class: usize, at: usize| {
        let states = &losses[class];
        if states.is_empty() {
            return 0.0;
        }
        let is_called = class < class_of(SHORT_BELOW) && all[at].isa() != Isa::Libc;
        let called = if is_called { CALLED.ln() } else { 0.0 };
        let differs = called + if all[at] == usual[class] { 0.0 } else { DIFFER.ln() };
        let sum: f64 = states.iter().map(|losses| lost(losses, all[at], &all)).sum();
        sum / states.len() as f64 + differs
    };
    // From one class to the next. The usual choice changes for good reasons.
    let change = |class: usize, from: usize, to: usize| {
        let as_usual = all[from] == usual[class - 1] && all[to] == usual[class];
        if from == to || as_usual { 0.0 } else { CHANGE.ln() }
    };
    // The least loss up to a class if it goes to an algorithm, and the algorithm that had the class
    // before.
    let mut totals: Vec<f64> = (0..all.len()).map(|at| lost(0, at)).collect();
    let mut before: Vec<Vec<usize>> = Vec::with_capacity(losses.len());
    for class in 1..losses.len() {
        let came: Vec<usize> = (0..all.len())
            .map(|to| {
                let total = |from: usize| totals[from] + change(class, from, to);
                // Of equal ones that which stays.
                let least = (0..all.len()).min_by(|&a, &b| total(a).total_cmp(&total(b)));
                least.filter(|&least| total(least) < total(to)).unwrap_or(to)
            })
            .collect();
        totals = (0..all.len())
            .map(|to| totals[came[to]] + change(class, came[to], to) + lost(class, to))
            .collect();
        before.push(came);
    }
    let least = (0..totals.len()).min_by(|&a, &b| totals[a].total_cmp(&totals[b]));
    let Some(mut at) = least else { return vec![None; losses.len()] };
    let mut taken = vec![all.get(at).copied()];
    for came in before.iter().rev() {
        at = came[at];
        taken.push(all.get(at).copied());
    }
    taken.reverse();
    taken
}
