//! Finds the table of this machine by measuring: every algorithm in every situation that can be made.
//!
//! - [`case`]: what is measured, in which order.
//! - [`survey`]: one case: all algorithms in turn, again and again. Policy; the clock and the copies are
//!   behind [`Bench`].
//! - [`choose`]: from what was measured to a table. No I/O.
//! - [`bench`]: blocks brought into the state that a case wants, copied, and read, by this core or a
//!   partner on another one.

mod bench;
mod case;
mod choose;
mod survey;
#[cfg(test)]
mod tests;

use std::{thread, time::Duration};

use pinfold_sys::{
    cpu::{affinity, block::Algorithm},
    threads::Kind,
};

use self::{
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

/// What measures. One for this machine, and one for tests.
trait Bench {
    /// Does `case` by `algorithm` once, and says how long that took with the reading after it,
    /// nanoseconds a block. `None` where the case cannot be made here.
    fn run(&mut self, case: &Case, algorithm: Algorithm) -> Option<f64>;

    /// Has what is run from now on be done with other memory.
    fn move_on(&mut self);

    /// Nanoseconds from this core to the one that reads. `None` if there is none.
    fn hop_ns(&mut self) -> Option<f64>;

    /// Some clock, nanoseconds.
    fn now_ns(&mut self) -> u64;
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The table, and when.
    pub tuned: Tuned,
    /// How many cases could be measured in the time, and of how many. The others were decided by their
    /// neighbours.
    pub measured: usize,
    /// Of how many.
    pub cases: usize,
    /// Whether there was a second processor to read what was copied. Otherwise the defaults hold for
    /// [`OtherCore`](super::Reader::OtherCore).
    pub has_other_core: bool,
    /// How many times as fast as the C library's the chosen algorithms were: the geometric mean over
    /// what was measured where one side is uncached or the reader is another core.
    pub gain: f64,
}

/// Nothing could be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotTune {
    /// There is no memory to copy.
    #[error("no memory for the {0} bytes that are copied")]
    NoMemory(usize),
    /// There is no instruction to empty the caches with.
    #[error("this processor has no instruction that empties its caches")]
    NoFlush,
    /// No thread could be started.
    #[error("no thread could be started: {0}")]
    NoThread(String),
}

/// Measures the table of this machine, in about as much time as `budget`, and tells how far that is,
/// from 0 to 1. In a thread of its own, bound to a processor; a second one reads what the first has
/// copied. Takes up to 130 MB of memory. Nothing is kept.
///
/// How far apart the two are is looked at all the while. What was seen near and what was seen far count
/// alike in the choice. What holds at a distance that was not seen ([`Seen`](super::tuned::Seen)) is taken
/// from what was measured `before` on this machine; if that lacks it, too, from the defaults, or from the
/// other distance where that decides it.
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
        // Where the thread cannot be bound, it is as it is.
        let _ = first.map(affinity::pin_to);
        let second = first.and_then(|first| super::machine::other_cpu(&cpus, first));
        let len_max = case::len_max(machine.last_cache_bytes());
        let mut bench = bench::RealBench::new(len_max, second)?;
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

/// Of all time, what the first look at each case has.
const FIRST_LAP: f64 = 0.6;

/// How often each case is visited, at most: more than there is time for, as a rule. The more visits, the less of what
/// is chosen is chance, and the more of how cores move is seen.
const LAPS: usize = 64;

/// What to try in `case`, after what `surveys` have found.
fn candidates(
    case: &Case,
    surveys: &[Survey],
    supported: impl Fn(Algorithm) -> bool,
) -> Vec<Algorithm> {
    match case.alike().and_then(|alike| surveys.iter().find(|it| *it.case() == alike)) {
        // What does well there, with what all are compared to, which is the simplest.
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
    // How far it is, by the time or by the work, whichever is further: neither goes back.
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
