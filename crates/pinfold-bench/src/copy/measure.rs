//! Cell after cell: in each round every contestant has a turn, in another order each time, so that
//! disturbances of the machine affect all of them alike.

use std::time::{Duration, Instant};

use pinfold::copy::{self, Origin};
use pinfold_sys::shuffle::Shuffle;

use super::{
    bench::{Bench, Contestant},
    cell::{Cell, Next},
    samples::{Round, Samples, Verdict},
};
use crate::{class::Class, console::progress, fail::Result, units};

/// The rounds and the time of the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Rounds of a cell, if there is time; and if there is none.
    pub(super) rounds: usize,
    pub(super) rounds_min: usize,
    /// For everything.
    pub(super) time: Duration,
}

/// The part of all time that the cells have before some are repeated.
const FIRST: f64 = 0.7;

/// The part of that which the rounds of all contestants have. Those of the finalists have the rest.
const FIRST_OF_ALL: f64 = 0.5;

/// The number of times that a cell close to an aim is repeated, at most.
const REPEATS_MAX: usize = 4;

/// The measurements.
pub(super) struct Measured {
    pub(super) verdicts: Vec<Verdict>,
    /// Nanoseconds from core to core, one for each probe.
    pub(super) hops_ns: Vec<f64>,
    /// Sentences the reader must see.
    pub(super) notes: Vec<String>,
}

struct Runner<'a> {
    bench: &'a mut Bench,
    contestants: Vec<Contestant>,
    rng: Shuffle,
    hops_ns: Vec<f64>,
}

/// Measures all `cells`.
///
/// First all contestants have rounds, then the finalists have others, whose medians count. A cell
/// where the plan misses an aim, or meets it by little, is repeated by the finalists as long as
/// there is time, and all those rounds count, for all contestants alike.
///
/// # Errors
/// The first copy that was wrong.
pub(super) fn measure(bench: &mut Bench, cells: &[Cell], pace: Pace) -> Result<Measured> {
    let start = Instant::now();
    let contestants = Contestant::all();
    let mut runner = Runner { bench, contestants, rng: Shuffle::new(), hops_ns: Vec::new() };
    let bar = progress::steps(cells.len() as u64);
    let all: f64 = cells.iter().map(weight).sum();
    let (mut rest, mut short) = (all, 0);
    let mut samples = Vec::with_capacity(cells.len());
    for (at, cell) in cells.iter().enumerate() {
        // There is always time for one.
        if at > 0 && start.elapsed() >= pace.time {
            break;
        }
        bar.set_message(cell.to_string());
        let left = pace.time.mul_f64(FIRST).saturating_sub(start.elapsed());
        let share = left.mul_f64(weight(cell) / rest);
        rest -= weight(cell);
        let mut it = Samples { cell: *cell, first: Vec::new(), rounds: Vec::new(), verified: 0 };
        // The first round brings in pages, and does not count.
        runner.bench.turn(cell, None, Contestant::Libc)?;
        // A site learns nothing from short copies.
        let learns = cell.size >= copy::LEARNT_MIN;
        if learns {
            let hop = runner.hop_ns(cell);
            it.verified += runner.bench.learn(cell, hop.map(|hop| Class::of(hop, hop)))?;
        }
        let takes_part = |at: &usize| learns || runner.contestants[*at] != Contestant::Learnt;
        let everybody: Vec<usize> = (0..runner.contestants.len()).filter(takes_part).collect();
        let rounds_min = if cell.size >= LONG { 1 } else { pace.rounds_min };
        let of_all = Pace { rounds_min, ..pace };
        it.first = runner.rounds(&mut it, &everybody, of_all, share.mul_f64(FIRST_OF_ALL))?;
        let left = share.mul_f64(1.0 - FIRST_OF_ALL);
        it.rounds = runner.final_rounds(&mut it, pace, left)?;
        short += usize::from(it.rounds.len() < pace.rounds);
        samples.push(it);
        bar.inc(1);
    }
    let mut notes = Vec::new();
    if samples.len() < cells.len() {
        notes.push(format!(
            "there was no time for {} of {} cells: the machine is busy, or --seconds allows too few",
            cells.len() - samples.len(),
            cells.len()
        ));
    }
    if short > 0 {
        notes.push(format!(
            "there was no time for {} rounds of {short} of {} cells, which rest on fewer: the machine is busy, or --seconds \
             allows too few",
            pace.rounds,
            samples.len(),
        ));
    }
    let repeated = runner.repeat(&mut samples, pace, start, &bar)?;
    bar.finish_and_clear();
    if repeated > 0 {
        notes.push(format!(
            "cells that missed an aim or met it by little were measured again, {repeated} in all; all \
             those rounds count"
        ));
    }
    let verdicts = samples.iter().filter_map(|it| runner.verdict(it)).collect();
    Ok(Measured { verdicts, hops_ns: runner.hops_ns, notes })
}

/// The share of the time that a cell is due: long blocks take longer, but need fewer rounds.
fn weight(cell: &Cell) -> f64 {
    20.0 + (cell.size as f64 / 65536.0).powf(0.9)
}

/// Bytes from which on a round of all contestants is as good as several, which would take most of
/// the time.
const LONG: usize = 4 << 20;

impl Runner<'_> {
    /// Rounds of the finalists, for about `share`.
    fn final_rounds(
        &mut self,
        of: &mut Samples,
        pace: Pace,
        share: Duration,
    ) -> Result<Vec<Round>> {
        let finalists = of.finalists(&self.contestants);
        self.rounds(of, &finalists, pace, share)
    }

    /// Rounds of `who` for about `share`.
    fn rounds(
        &mut self,
        of: &mut Samples,
        who: &[usize],
        pace: Pace,
        share: Duration,
    ) -> Result<Vec<Round>> {
        let (start, mut rounds) = (Instant::now(), Vec::new());
        while rounds.len() < pace.rounds {
            if rounds.len() >= pace.rounds_min && start.elapsed() > share {
                break;
            }
            rounds.push(self.round(of, who)?);
        }
        Ok(rounds)
    }

    fn round(&mut self, of: &mut Samples, who: &[usize]) -> Result<Round> {
        let cell = of.cell;
        let mut order = who.to_vec();
        self.rng.shuffle(&mut order);
        let mut ns = vec![f64::INFINITY; self.contestants.len()];
        self.bench.move_on();
        let before = self.hop_ns(&cell);
        let apart = before.map(|hop| Class::of(hop, hop));
        for at in order {
            let (taken, verified) = self.bench.turn(&cell, apart, self.contestants[at])?;
            ns[at] = taken;
            of.verified += verified;
        }
        let after = self.hop_ns(&cell);
        let class = before.zip(after).map(|(before, after)| Class::of(before, after));
        Ok(Round { class, ns })
    }

    /// The distance between the cores, if it matters.
    fn hop_ns(&mut self, cell: &Cell) -> Option<f64> {
        let hop = if cell.reader == Next::OtherCore { self.bench.hop_ns() } else { None };
        self.hops_ns.extend(hop);
        hop
    }

    fn verdict(&mut self, samples: &Samples) -> Option<Verdict> {
        // The placement decides, and that is the same for all blocks of the cell.
        let [from, to] = self.bench.place(&samples.cell);
        let plan = |apart| copy::plan().pick(&samples.cell.block(apart, from, to));
        Verdict::of(samples, &self.contestants, plan)
    }

    /// Repeats those that are close to an aim, and returns how many.
    fn repeat(
        &mut self,
        samples: &mut [Samples],
        pace: Pace,
        start: Instant,
        bar: &indicatif::ProgressBar,
    ) -> Result<usize> {
        let mut repeated = 0;
        for _ in 0..REPEATS_MAX {
            let close: Vec<usize> = (0..samples.len())
                .filter(|&at| self.verdict(&samples[at]).is_some_and(|it| it.is_close()))
                .collect();
            bar.inc_length(close.len() as u64);
            let mut rest: f64 = close.iter().map(|&at| weight(&samples[at].cell)).sum();
            for at in close {
                let left = pace.time.saturating_sub(start.elapsed());
                if left.is_zero() {
                    return Ok(repeated);
                }
                let due = weight(&samples[at].cell);
                let share = left.mul_f64(due / rest);
                rest -= due;
                bar.set_message(format!("again: {}", samples[at].cell));
                let pace = Pace { rounds_min: 1, ..pace };
                let again = self.final_rounds(&mut samples[at], pace, share)?;
                samples[at].rounds.extend(again);
                repeated += 1;
                bar.inc(1);
            }
        }
        Ok(repeated)
    }
}

/// The distance between the cores, for people. `None` if it was never probed.
pub(super) fn distance(hops_ns: &[f64]) -> Option<String> {
    let median = median(hops_ns)?;
    let class = Class::of(median, median);
    Some(format!(
        "From core to core: {} ({class}), median of {} looks.",
        units::time(median),
        hops_ns.len()
    ))
}

/// A remark where the plan was measured while the cores were never so far apart.
pub(super) fn unseen(hops_ns: &[f64], origin: &Origin) -> Option<String> {
    let (median, Origin::Tuned { seen, .. }) = (median(hops_ns)?, origin) else { return None };
    let class = Class::of(median, median);
    let elsewhere = seen.near + seen.far > 0 && class != Class::Mixed && seen.at(class) == 0;
    elsewhere.then(|| {
        format!(
            "the plan was measured while the cores were never as {class} as now; pinfold tune, run again, \
             keeps what it knows and adds that"
        )
    })
}

fn median(hops_ns: &[f64]) -> Option<f64> {
    let mut sorted = hops_ns.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use pinfold::copy::tuned::Seen;

    use super::*;

    #[test]
    fn the_distance_is_said() {
        assert_eq!(distance(&[]), None);
        let said = distance(&[50.0, 60.0, 500.0]).unwrap();
        assert_eq!(said, "From core to core: 60.0 ns (near), median of 3 looks.");
    }

    #[test]
    fn a_distance_that_the_plan_was_not_measured_at_is_said() {
        let said = |near, far, hop_ns| {
            let seen = Seen { near, far, mixed: 0 };
            unseen(&[hop_ns], &Origin::Tuned { file: "f".into(), measured_s: 1, seen })
        };
        assert!(said(0, 300, 50.0).is_some_and(|said| said.contains("never as near as now")));
        assert!(said(300, 0, 170.0).is_some_and(|said| said.contains("never as far as now")));
        for (near, far, hop_ns) in
            [(0, 300, 170.0), (300, 300, 50.0), (300, 0, 100.0), (0, 0, 50.0)]
        {
            assert_eq!(said(near, far, hop_ns), None, "{near} {far} {hop_ns}");
        }
        assert_eq!(unseen(&[50.0], &Origin::Defaults), None);
        assert_eq!(unseen(&[], &Origin::Defaults), None);
    }
}
