//! The verdicts from turns. No I/O.

use super::cell::{Cell, Contestant};
use crate::{class::Class, stats::Times, terms::What};

/// One turn of one contestant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    /// The mean time of a message, nanoseconds.
    pub(super) ns: f64,
    pub(super) class: Class,
}

/// The turns of one contestant in one cell.
pub(super) struct Samples {
    pub(super) who: Contestant,
    /// By round.
    pub(super) turns: Vec<Option<Turn>>,
    pub(super) times: Times,
    /// The reason why there are none, or no more.
    pub(super) absent: Option<String>,
}

/// One contestant in one cell, or the reason why it is not there.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cell: Cell,
    pub(super) who: Contestant,
    pub(super) found: std::result::Result<Found, String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// Time of a message, nanoseconds: all the time over all messages.
    pub(super) mean_ns: f64,
    /// The middle one of the samples.
    pub(super) median_ns: f64,
    pub(super) p99_ns: f64,
    pub(super) samples: u64,
    /// Turns, by [`Class::ALL`].
    pub(super) classes: [usize; Class::ALL.len()],
    /// The factor of its latency or bandwidth over the spinning sockets'.
    pub(super) of_spinning: Option<f64>,
    /// The factor over the best contestant other than Pinfold.
    pub(super) of_best: Option<f64>,
}

impl Samples {
    pub(super) fn new(who: Contestant, absent: Option<String>) -> Samples {
        Samples { who, turns: Vec::new(), times: Times::new(), absent }
    }

    fn there(&self) -> Vec<Turn> {
        self.turns.iter().flatten().copied().collect()
    }

    fn mean(&self) -> Option<f64> {
        let turns = self.there();
        (!turns.is_empty())
            .then(|| turns.iter().map(|turn| turn.ns).sum::<f64>() / turns.len() as f64)
    }
}

/// The rows of a cell.
pub(super) fn rows(cell: &Cell, all: &[Samples]) -> Vec<Row> {
    let of = |wanted: Contestant| all.iter().find(|samples| samples.who == wanted);
    let rivals = all.iter().filter(|samples| !samples.who.is_pinfold());
    let timed = rivals.filter_map(|samples| Some((samples, samples.mean()?)));
    let best = timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|best| best.0);
    let over = |one: &Samples, other: &Samples| {
        let ratio = ratio(&one.turns, &other.turns)?;
        Some(if cell.what == What::Latency { ratio } else { 1.0 / ratio })
    };
    let row = |samples: &Samples| {
        let turns = samples.there();
        let found = match (&samples.absent, turns.is_empty()) {
            (Some(why), true) => Err(why.clone()),
            (None, true) => Err("there was no time".into()),
            (_, false) => Ok(Found {
                mean_ns: samples.times.mean() as f64 / 1e3,
                median_ns: samples.times.median() as f64 / 1e3,
                p99_ns: samples.times.p99() as f64 / 1e3,
                samples: samples.times.count(),
                classes: Class::ALL
                    .map(|class| turns.iter().filter(|it| it.class == class).count()),
                of_spinning: of(Contestant::Spinning).and_then(|other| over(samples, other)),
                of_best: best.and_then(|other| over(samples, other)),
            }),
        };
        Row { cell: *cell, who: samples.who, found }
    };
    all.iter().map(row).collect()
}

/// The times of one over those of the other in the same rounds: if there are such, in those in
/// which both had their cores equally far apart.
fn ratio(one: &[Option<Turn>], other: &[Option<Turn>]) -> Option<f64> {
    let pairs = || one.iter().zip(other).filter_map(|(one, other)| Some(((*one)?, (*other)?)));
    let alike = |(one, other): &(Turn, Turn)| one.class == other.class && one.class != Class::Mixed;
    let settled: Vec<(Turn, Turn)> = pairs().filter(alike).collect();
    let counted = if settled.is_empty() { pairs().collect() } else { settled };
    let of = |time: fn(&(Turn, Turn)) -> f64| counted.iter().map(time).sum::<f64>();
    (!counted.is_empty()).then(|| of(|pair| pair.0.ns) / of(|pair| pair.1.ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(who: Contestant, turns: &[(f64, Class)]) -> Samples {
        let mut samples = Samples::new(who, None);
        for &(ns, class) in turns {
            samples.times.add((ns * 1e3) as u64, 1);
            samples.turns.push(Some(Turn { ns, class }));
        }
        samples
    }

    use Class::{Far, Mixed, Near};

    fn of(rows: &[Row], who: Contestant) -> Found {
        *rows.iter().find(|row| row.who == who).unwrap().found.as_ref().unwrap()
    }

    #[test]
    fn only_turns_of_one_round_and_class_are_set_against_each_other() {
        let cell = Cell { what: What::Latency, bytes: 8 };
        let all = [
            samples(Contestant::Spinning, &[(100.0, Near), (100.0, Near), (900.0, Far)]),
            samples(Contestant::Sockets, &[(80.0, Near), (300.0, Near), (990.0, Near)]),
            samples(Contestant::Pinfold, &[(110.0, Near), (900.0, Mixed), (990.0, Far)]),
            Samples::new(Contestant::Ucx, Some("it is absent".into())),
        ];
        let rows = rows(&cell, &all);
        let pinfold = of(&rows, Contestant::Pinfold);
        // The second round, in which it was moved, does not count.
        assert!((pinfold.of_spinning.unwrap() - 1.1).abs() < 1e-9, "{pinfold:?}");
        assert_eq!(pinfold.of_best, pinfold.of_spinning);
        assert_eq!((pinfold.classes, pinfold.samples), ([1, 1, 1], 3));
        assert!(matches!(&rows[3].found, Err(why) if why == "it is absent"));
    }

    #[test]
    fn of_bandwidths_more_is_better() {
        let cell = Cell { what: What::Bandwidth, bytes: 1 << 20 };
        let all = [
            samples(Contestant::Spinning, &[(400.0, Near)]),
            samples(Contestant::Ring, &[(250.0, Near)]),
            samples(Contestant::Pinfold, &[(200.0, Near)]),
        ];
        let pinfold = of(&rows(&cell, &all), Contestant::Pinfold);
        assert_eq!((pinfold.of_spinning, pinfold.of_best), (Some(2.0), Some(1.25)));
    }

    #[test]
    fn where_cores_never_rest_all_rounds_count() {
        let (near, mixed) = ([(10.0, Near)], [(20.0, Mixed)]);
        let cell = Cell { what: What::Latency, bytes: 8 };
        let all = [samples(Contestant::Spinning, &near), samples(Contestant::Pinfold, &mixed)];
        assert_eq!(of(&rows(&cell, &all), Contestant::Pinfold).of_spinning, Some(2.0));
        assert_eq!(ratio(&[], &[]), None);
    }

    #[test]
    fn no_round_is_left_out_for_being_slow() {
        let cell = Cell { what: What::Latency, bytes: 8 };
        let all = [
            samples(Contestant::Spinning, &[(100.0, Near), (100.0, Near), (100.0, Near)]),
            samples(Contestant::Pinfold, &[(100.0, Near), (100.0, Near), (1000.0, Near)]),
        ];
        let pinfold = of(&rows(&cell, &all), Contestant::Pinfold);
        assert_eq!((pinfold.mean_ns, pinfold.of_spinning), (400.0, Some(4.0)));
        assert!((pinfold.median_ns - 100.0).abs() < 1.0);
    }
}
