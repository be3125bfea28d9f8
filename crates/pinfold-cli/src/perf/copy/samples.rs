//! What came out of a cell's rounds, and what is said about it. No I/O.

use pinfold::blockmem::{Algorithm, Stores};

use super::{
    bench::Contestant,
    cell::{Cell, Next},
};
use crate::perf::class::Class;

/// Of the speed of the best of the matrix, the plan's choice must reach this part.
const OF_BEST: f64 = 0.90;
/// And of the speed of the C library.
const OF_LIBC: f64 = 0.95;

/// One round: everybody had a turn.
pub(super) struct Round {
    /// How far apart the cores were; of no account where only one takes part.
    pub(super) class: Option<Class>,
    /// Nanoseconds a block, in the order of the contestants.
    pub(super) ns: Vec<f64>,
}

/// The rounds of a cell.
pub(super) struct Samples {
    pub(super) cell: Cell,
    pub(super) rounds: Vec<Round>,
    /// Copies that were checked byte by byte.
    pub(super) verified: u64,
}

/// An algorithm and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) algorithm: Algorithm,
    pub(super) ns: f64,
}

/// What is said about a cell. Every time is the median over the same rounds.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) cell: Cell,
    /// The class of the rounds that count, which most had.
    pub(super) class: Option<Class>,
    /// Rounds that count.
    pub(super) rounds: usize,
    pub(super) verified: u64,
    pub(super) libc_ns: f64,
    /// The plan's time, with its choice.
    pub(super) plan: Timed,
    pub(super) best: Timed,
    pub(super) temporal: Timed,
    pub(super) streaming: Option<Timed>,
}

impl Verdict {
    /// Of `samples`; `plan` says what the plan chooses. `None` where there are no rounds.
    pub(super) fn of(
        samples: &Samples,
        contestants: &[Contestant],
        plan: Algorithm,
    ) -> Option<Verdict> {
        let (class, rounds, ns) = medians(&samples.rounds, samples.cell.reader == Next::OtherCore)?;
        let time = |at: usize| ns.get(at).copied();
        let at = |who| contestants.iter().position(|it| *it == who);
        let matrix: Vec<Timed> = contestants
            .iter()
            .enumerate()
            .filter_map(|(at, who)| {
                let algorithm = match who {
                    Contestant::Libc => Algorithm::LIBC,
                    Contestant::Matrix(algorithm) => *algorithm,
                    Contestant::Plan => return None,
                };
                Some(Timed { algorithm, ns: time(at)? })
            })
            .collect();
        let best_of = |stores: Option<Stores>| {
            let fits = |it: &&Timed| stores.is_none_or(|stores| it.algorithm.stores() == stores);
            matrix.iter().filter(fits).min_by(|a, b| a.ns.total_cmp(&b.ns)).copied()
        };
        Some(Verdict {
            cell: samples.cell,
            class,
            rounds,
            verified: samples.verified,
            libc_ns: time(at(Contestant::Libc)?)?,
            plan: Timed { algorithm: plan, ns: time(at(Contestant::Plan)?)? },
            best: best_of(None)?,
            temporal: best_of(Some(Stores::Temporal))?,
            streaming: best_of(Some(Stores::Streaming)),
        })
    }

    /// The plan's speed over that of the best.
    pub(super) fn of_best(&self) -> f64 {
        self.best.ns / self.plan.ns
    }

    /// The plan's speed over that of the C library.
    pub(super) fn of_libc(&self) -> f64 {
        self.libc_ns / self.plan.ns
    }

    /// Within 10 % of the best.
    pub(super) fn meets_best(&self) -> bool {
        self.of_best() >= OF_BEST
    }

    /// No more than 5 % below the C library.
    pub(super) fn meets_libc(&self) -> bool {
        self.of_libc() >= OF_LIBC
    }

    /// Both.
    pub(super) fn meets(&self) -> bool {
        self.meets_best() && self.meets_libc()
    }
}

/// The class that most rounds had (the best of equal ones; `None` where it does not matter), how many
/// rounds that were, and the median of each contestant over them. `None` of no rounds.
pub(super) fn medians(
    rounds: &[Round],
    class_matters: bool,
) -> Option<(Option<Class>, usize, Vec<f64>)> {
    let of = |class: Class| rounds.iter().filter(move |it| it.class == Some(class));
    let had = Class::ALL.into_iter().filter(|class| class_matters && of(*class).count() > 0);
    let class = had.max_by_key(|&class| (of(class).count(), std::cmp::Reverse(class)));
    let counted: Vec<&Round> =
        rounds.iter().filter(|it| class.is_none() || it.class == class).collect();
    let contestants = 0..counted.first()?.ns.len();
    let ns: Option<Vec<f64>> =
        contestants.map(|at| median(counted.iter().map(|it| it.ns[at]).collect())).collect();
    Some((class, counted.len(), ns?))
}

/// The middle one; the mean of the two in the middle. `None` of none.
pub(super) fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let (low, high) = (of.len().checked_sub(1)? / 2, of.len() / 2);
    Some((of.get(low)? + of.get(high)?) / 2.0)
}

/// How many cells meet what.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) cells: usize,
    pub(super) meet_best: usize,
    pub(super) meet_libc: usize,
    /// Copies below 256 bytes, and how many of them are as good as the C library's.
    pub(super) short: usize,
    pub(super) short_meet_libc: usize,
    /// Cells where a side is uncached or another core reads.
    pub(super) apart: usize,
    /// How many times as fast as the C library the plan is there, geometric mean.
    pub(super) apart_gain: Option<f64>,
    /// The same if it always took the best of the matrix: what could be had.
    pub(super) apart_best_gain: Option<f64>,
}

impl Totals {
    pub(super) fn of(verdicts: &[Verdict]) -> Totals {
        let count = |what: &dyn Fn(&&Verdict) -> bool| verdicts.iter().filter(what).count();
        let apart: Vec<&Verdict> = verdicts.iter().filter(|it| it.cell.matters()).collect();
        let gain = |of: &dyn Fn(&Verdict) -> f64| {
            let sum: f64 = apart.iter().map(|it| of(it).ln()).sum();
            (!apart.is_empty()).then(|| (sum / apart.len() as f64).exp())
        };
        Totals {
            cells: verdicts.len(),
            meet_best: count(&|it| it.meets_best()),
            meet_libc: count(&|it| it.meets_libc()),
            short: count(&|it| it.cell.is_short()),
            short_meet_libc: count(&|it| it.cell.is_short() && it.meets_libc()),
            apart: apart.len(),
            apart_gain: gain(&Verdict::of_libc),
            apart_best_gain: gain(&|it| it.libc_ns / it.best.ns),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::cell::{Destination, Place, Source},
        *,
    };

    pub(in crate::perf::copy) fn cell(size: usize, reader: Next) -> Cell {
        let (source, destination) = (Source::Cached, Destination::Dirty);
        Cell { size, source, destination, reader, placement: Place::Aligned }
    }

    fn who() -> Vec<Contestant> {
        let named = |name: &str| Contestant::Matrix(name.parse().unwrap());
        let [loops, streaming] = ["sse2", "sse2+streaming"].map(named);
        vec![Contestant::Libc, Contestant::Plan, loops, streaming]
    }

    /// A verdict of rounds in which everybody always took the same.
    pub(in crate::perf::copy) fn verdict(cell: Cell, ns: [f64; 4]) -> Verdict {
        let round = || Round { class: Some(Class::Near), ns: ns.to_vec() };
        let samples = Samples { cell, rounds: vec![round(), round()], verified: 8 };
        Verdict::of(&samples, &who(), "sse2".parse().unwrap()).unwrap()
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![9.0, 1.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn the_aims() {
        let it = verdict(cell(4096, Next::Me), [100.0, 100.0, 95.0, 90.0]);
        assert_eq!((it.best.algorithm.to_string(), it.best.ns), ("sse2+streaming".into(), 90.0));
        assert_eq!(it.temporal.algorithm.to_string(), "sse2");
        assert_eq!(it.streaming, Some(it.best));
        assert!(it.meets() && (it.of_best(), it.of_libc()) == (0.9, 1.0));
        let it = verdict(cell(4096, Next::Me), [100.0, 101.0, 95.0, 90.0]);
        assert!(!it.meets_best() && it.meets_libc() && !it.meets());
        let it = verdict(cell(4096, Next::Me), [100.0, 106.0, 120.0, 120.0]);
        assert!(it.meets_best() && !it.meets_libc() && !it.meets());
        // The C library's is one of the matrix.
        assert_eq!(it.best.algorithm, Algorithm::LIBC);
    }

    #[test]
    fn only_rounds_of_one_class_count_where_another_core_reads() {
        let round = |class, libc: f64| Round { class: Some(class), ns: vec![libc, 2.0, 3.0, 4.0] };
        for (reader, class, rounds, libc) in
            [(Next::OtherCore, Some(Class::Far), 2, 15.0), (Next::Me, None, 3, 10.0)]
        {
            let rounds_all =
                vec![round(Class::Near, 1.0), round(Class::Far, 10.0), round(Class::Far, 20.0)];
            let samples = Samples { cell: cell(64, reader), rounds: rounds_all, verified: 1 };
            let it = Verdict::of(&samples, &who(), Algorithm::LIBC).unwrap();
            assert_eq!((it.class, it.rounds, it.libc_ns), (class, rounds, libc));
        }
        let none = Samples { cell: cell(64, Next::Me), rounds: vec![], verified: 0 };
        assert!(Verdict::of(&none, &who(), Algorithm::LIBC).is_none());
    }

    #[test]
    fn totals() {
        let all = [
            verdict(cell(64, Next::Me), [100.0, 110.0, 100.0, 100.0]),
            verdict(cell(64, Next::OtherCore), [100.0, 50.0, 50.0, 40.0]),
            verdict(cell(4096, Next::OtherCore), [100.0, 50.0, 50.0, 50.0]),
        ];
        let it = Totals::of(&all);
        assert_eq!((it.cells, it.meet_best, it.meet_libc), (3, 2, 2));
        assert_eq!((it.short, it.short_meet_libc, it.apart), (2, 1, 2));
        assert!((it.apart_gain.unwrap() - 2.0).abs() < 1e-9);
        assert!((it.apart_best_gain.unwrap() - 5f64.sqrt()).abs() < 1e-9);
        assert_eq!(Totals::of(&[]), Totals::default());
    }
}
