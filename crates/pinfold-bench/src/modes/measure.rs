//! Cell after cell: in each round every contestant has a turn, in another order each time, so that
//! disturbances of the machine affect all of them alike.

use std::time::Instant;

use pinfold::route::{SendMode, SendPicker};
use pinfold_sys::shuffle::Shuffle;

use super::{
    args::Wish,
    bench::{Bench, Turn, median},
    cell::{Cell, Contestant},
};
use crate::{console::progress, fail::Result};

/// The part of all time that the rounds have; the rest is for the steps before and after.
const SHARE: f64 = 0.8;
/// The least rounds, for which there is always time.
const ROUNDS_MIN: usize = 3;

/// The result of one contestant in one cell.
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) who: Contestant,
    pub(super) found: std::result::Result<Found, String>,
}

/// Medians over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) rounds: usize,
    pub(super) cpu_ns: f64,
    pub(super) elapsed_ns: f64,
    /// Over the same round's of two-copy, if it was measured.
    pub(super) of_two_copy: Option<f64>,
    /// Over the same round's of the best mode that it may choose from.
    pub(super) of_best: Option<f64>,
    pub(super) took: SendMode,
    pub(super) notified: u64,
    pub(super) copied: u64,
}

/// Measures all cells; with notes that the reader must see.
///
/// # Errors
/// As [`Bench::turn`].
pub(super) fn measure(
    bench: &mut Bench,
    picker: &mut SendPicker,
    wish: &Wish,
    start: Instant,
) -> Result<(Vec<Row>, Vec<String>)> {
    let bar = progress::steps(wish.cells.len() as u64);
    let (mut rows, mut rng, mut short, mut left_out) = (Vec::new(), Shuffle::new(), 0, 0);
    for (at, cell) in wish.cells.iter().enumerate() {
        let left = wish.time.mul_f64(SHARE).saturating_sub(start.elapsed());
        // There is always time for one.
        if at > 0 && left.is_zero() {
            left_out += 1;
            continue;
        }
        bar.set_message(cell.to_string());
        let share = left.div_f64((wish.cells.len() - at) as f64);
        let began = Instant::now();
        let mut all = Contestant::ALL.map(|who| Samples::new(who, bench, cell));
        let mut rounds = 0;
        while rounds < wish.rounds && (rounds < ROUNDS_MIN || began.elapsed() < share) {
            let mut order: Vec<usize> = (0..all.len()).collect();
            rng.shuffle(&mut order);
            for who in order {
                all[who].take_turn(bench, cell, picker)?;
            }
            rounds += 1;
        }
        short += usize::from(rounds < wish.rounds);
        rows.extend(judge(cell, all));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let busy = "the machine is busy, or --seconds allows too few";
    let mut notes = Vec::new();
    if left_out > 0 {
        notes.push(format!(
            "there was no time for {left_out} of {} cells: {busy}",
            wish.cells.len()
        ));
    }
    if short > 0 {
        notes.push(format!(
            "there was no time for {} rounds of {short} cells, which rest on fewer: {busy}",
            wish.rounds
        ));
    }
    Ok((rows, notes))
}

/// The turns of one contestant, or the reason why it has none.
struct Samples {
    who: Contestant,
    turns: std::result::Result<Vec<Turn>, String>,
}

impl Samples {
    fn new(who: Contestant, bench: &Bench, cell: &Cell) -> Samples {
        let lacks = match who {
            Contestant::Mode(mode) => bench.lacks(mode, cell.pieces),
            // Plain works everywhere.
            Contestant::Automatic | Contestant::Unregistered => None,
        };
        Samples { who, turns: lacks.map_or(Ok(Vec::new()), Err) }
    }

    fn take_turn(&mut self, bench: &mut Bench, cell: &Cell, picker: &mut SendPicker) -> Result<()> {
        if let Ok(turns) = &mut self.turns {
            match bench.turn(cell, self.who, picker)? {
                Ok(turn) => turns.push(turn),
                Err(why) => self.turns = Err(why),
            }
        }
        Ok(())
    }
}

fn judge(cell: &Cell, all: [Samples; Contestant::ALL.len()]) -> Vec<Row> {
    let cpu = |samples: &Samples| -> Option<Vec<f64>> {
        samples.turns.as_ref().ok().map(|turns| turns.iter().map(|turn| turn.cpu_ns).collect())
    };
    let times: Vec<Option<Vec<f64>>> = all.iter().map(cpu).collect();
    let middle = |at: usize| times[at].as_ref().map(|times| median(times.iter().copied()));
    // Round by round, the median.
    let over = |one: usize, other: usize| {
        let (one, other) = (times[one].as_ref()?, times[other].as_ref()?);
        let ratios = one.iter().zip(other).filter(|(_, other)| **other > 0.0);
        Some(median(ratios.map(|(one, other)| one / other)))
    };
    let of = |wanted: Contestant| Contestant::ALL.iter().position(|&who| who == wanted);
    let best = |who: Contestant| {
        let able = Contestant::ALL.iter().enumerate().filter(|(_, mode)| match mode {
            Contestant::Mode(mode) => who.is_measured_against(*mode),
            Contestant::Automatic | Contestant::Unregistered => false,
        });
        let timed = able.filter_map(|(at, _)| Some((at, middle(at)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|best| best.0)
    };
    let row = |(at, samples): (usize, &Samples)| {
        let found = match &samples.turns {
            Err(why) => Err(why.clone()),
            Ok(turns) if turns.is_empty() => Err("there was no time".to_owned()),
            Ok(turns) => Ok(Found {
                rounds: turns.len(),
                cpu_ns: median(turns.iter().map(|turn| turn.cpu_ns)),
                elapsed_ns: median(turns.iter().map(|turn| turn.elapsed_ns)),
                of_two_copy: of(Contestant::Mode(SendMode::TwoCopy)).and_then(|two| over(at, two)),
                of_best: best(samples.who).and_then(|best| over(at, best)),
                took: turns[turns.len() - 1].took,
                notified: turns.iter().map(|turn| turn.notified).sum(),
                copied: turns.iter().map(|turn| turn.copied).sum(),
            }),
        };
        Row { cell: *cell, who: samples.who, found }
    };
    all.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use pinfold::route::SentFrom;

    use super::*;

    fn turn(cpu_ns: f64, took: SendMode) -> Turn {
        Turn { cpu_ns, elapsed_ns: cpu_ns + 1.0, took, notified: 16, copied: 2 }
    }

    #[test]
    fn ratios_are_of_the_same_rounds() {
        let cell = Cell { bytes: 9, pieces: 1, from: SentFrom::Cache };
        // The second round was twice as slow for all.
        let times = [4.0, 2.0, 3.0, 1.0, f64::NAN, 2.0, 3.0];
        let mut at = 0;
        let samples = Contestant::ALL.map(|who| {
            let time = times[at];
            at += 1;
            let turns = [1.0, 2.0, 1.0].map(|slow| turn(time * slow, SendMode::Cached)).to_vec();
            let turns = if time.is_nan() { Err("no".to_owned()) } else { Ok(turns) };
            Samples { who, turns }
        });
        let rows = judge(&cell, samples);
        let found =
            |name: &str| rows.iter().find(|row| row.who.name() == name).unwrap().found.clone();
        let plain = found("plain").unwrap();
        assert_eq!((plain.of_two_copy, plain.of_best, plain.cpu_ns), (Some(2.0), Some(4.0), 4.0));
        assert_eq!((plain.rounds, plain.notified, plain.copied), (3, 48, 6));
        assert_eq!(found("aligned"), Err("no".into()));
        // The contestant that chooses from less is compared with less.
        assert_eq!(found("automatic").unwrap().of_best, Some(2.0));
        assert_eq!(found("automatic-unregistered").unwrap().of_best, Some(1.5));
    }
}
