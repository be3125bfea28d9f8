//! Finds the table of this machine by measuring: every algorithm in every situation that can be
//! made.
//!
//! - [`case`]: the cases to measure, in their order.
//! - [`survey`]: one case: all algorithms in turn, again and again. Policy; the clock and the
//!   copies are behind [`Bench`](bench::Bench).
//! - [`choose`]: from the measurements to a table. No I/O.
//! - [`bench`]: the interface to what measures.
//! - [`real`]: blocks brought into the state that a case wants, copied, and read, by this core or a
//!   partner on another one.

mod bench;
mod case;
mod choose;
mod real;
mod survey;
#[cfg(test)]
mod tests;

use std::{thread, time::Duration};

use pinfold_sys::{
    cpu::{affinity, block::Algorithm},
    threads::Kind,
};

pub use self::bench::CannotTune;
use self::{
    bench::Bench,
    case::{Case, cases},
    choose::Board,
    survey::Survey,
};
use super::{
    Machine, Maker,
    table::{Table, class_bytes},
    tuned::{Seen, Tuned},
};
use crate::persisted;

/// It says how far it is.
const TUNE: Kind = Kind::new("pinfold-tune", Kind::STACK_OF_PROGRAMS);

/// The result of tuning.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The table, and when.
    pub tuned: Tuned,
    /// The number of cases that could be measured in the time, and of how many. The others were
    /// decided by their neighbours.
    pub measured: usize,
    /// The number of all cases.
    pub cases: usize,
    /// True if there was a second processor to read the copies. Otherwise the defaults hold for
    /// [`OtherCore`](super::Reader::OtherCore).
    pub has_other_core: bool,
    /// The speed of the chosen algorithms over that of the C library's: the geometric mean over
    /// the cases measured where one side is uncached or the reader is another core.
    pub gain: f64,
}

/// Measures the table of this machine, in about as much time as `budget`, and reports its progress,
/// from 0 to 1. In a thread of its own, bound to a processor; a second one reads the blocks that
/// the first has copied. Takes up to 130 MB of memory. Nothing is kept.
///
/// The distance of the two is looked at all the while. Cases seen near and cases seen far count
/// alike in the choice. The entries for a distance that was not seen ([`Seen`](super::tuned::Seen))
/// are taken from those measured `before` on this machine; if that lacks it, too, from the
/// defaults, or from the other distance if that decides it.
///
/// # Errors
/// See [`CannotTune`].
pub fn tune(
    budget: Duration,
    before: Option<&Tuned>,
    progress: impl FnMut(f32) + Send,
) -> Result<Found, CannotTune> {
    let machine = Machine::this();
    let cpus = affinity::current_cpus();
    let measure = || {
        let first = cpus.first().copied();
        // If the thread cannot be bound, it runs unbound.
        let _ = first.map(affinity::pin_to);
        let second = first.and_then(|first| super::machine::other_cpu(&cpus, first));
        let len_max = case::len_max(machine.last_cache_bytes());
        let mut bench = real::RealBench::new(len_max, second)?;
        let supported = Algorithm::is_supported;
        let found =
            survey_all(&mut bench, (&machine, Maker::this()), budget, before, supported, progress);
        Ok(Found { has_other_core: bench.has_other_core(), ..found })
    };
    thread::scope(|scope| {
        let thread = TUNE
            .start_scoped(scope, measure)
            .map_err(|error| CannotTune::NoThread(error.to_string()))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The share of all time for the first look at each case.
const FIRST_LAP: f64 = 0.6;

/// The number of visits to each case, at most: more than there is time for, as a rule. The more
/// visits, the less of the choice is chance, and the more of the cores' moves is seen.
const LAPS: usize = 64;

/// The algorithms to try in `case`, after the results of `surveys`.
fn candidates(
    case: &Case,
    surveys: &[Survey],
    supported: impl Fn(Algorithm) -> bool,
) -> Vec<Algorithm> {
    match case.alike().and_then(|alike| surveys.iter().find(|it| *it.case() == alike)) {
        // The algorithms that do well there, with the simplest one, to which all are compared.
        Some(alike) => {
            let mut few: Vec<Algorithm> = alike.finalists().collect();
            few.sort();
            few
        }
        None => Algorithm::all().filter(|it| supported(*it) && case.suits(*it)).collect(),
    }
}

/// Measures case after case, as long as there is time, and makes a table of it.
fn survey_all(
    bench: &mut impl Bench,
    (machine, maker): (&Machine, Maker),
    budget: Duration,
    before: Option<&Tuned>,
    supported: impl Fn(Algorithm) -> bool,
    mut progress: impl FnMut(f32),
) -> Found {
    let budget_ns = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
    let first_ns = (budget_ns as f64 * FIRST_LAP) as u64;
    let cases = cases(machine.last_cache_bytes());
    let start = bench.now_ns();
    // The progress, by the time or by the work, whichever is further: neither goes back.
    let mut tell = |used_ns: u64, work: f64| {
        let time = if budget_ns == 0 { 1.0 } else { used_ns as f64 / budget_ns as f64 };
        progress(time.max(work).min(1.0) as f32);
    };
    let mut rest: f64 = cases.iter().map(Case::weight).sum();
    let mut surveys: Vec<Survey> = Vec::with_capacity(cases.len());
    for (at, case) in cases.iter().enumerate() {
        let used_ns = bench.now_ns() - start;
        tell(used_ns, at as f64 / (cases.len() * LAPS) as f64);
        let left_ns = first_ns.saturating_sub(used_ns);
        let share_ns = (left_ns as f64 * case.weight() / rest) as u64;
        rest -= case.weight();
        if used_ns >= budget_ns {
            break;
        }
        let algorithms = candidates(case, &surveys, &supported);
        surveys.extend(Survey::begin(bench, case, algorithms, share_ns));
    }
    // Again and again, for cores move meanwhile.
    'laps: for lap in 1..LAPS {
        for at in 0..surveys.len() {
            let used_ns = bench.now_ns() - start;
            tell(used_ns, (lap as f64 + at as f64 / surveys.len() as f64) / LAPS as f64);
            if used_ns >= budget_ns {
                break 'laps;
            }
            surveys[at].go_on(bench);
        }
    }
    tell(budget_ns, 1.0);
    let (base, seen) = match before {
        Some(before) => (before.table.clone(), before.seen),
        None => (Table::defaults(maker, machine.last_cache_bytes(), &supported), Seen::default()),
    };
    let board = Board::of(&surveys, machine.last_cache_bytes());
    let table = board.table(&base, seen);
    Found {
        measured: surveys.len(),
        cases: cases.len(),
        has_other_core: true,
        gain: board.gain(&table),
        tuned: Tuned { table, measured_s: persisted::now_s(), seen: board.seen().or(seen) },
    }
}
