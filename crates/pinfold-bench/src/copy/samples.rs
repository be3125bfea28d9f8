//! The results of a cell's rounds, and the verdict about it. No I/O.

use pinfold::copy::{Algorithm, Stores};

use super::{
    bench::Contestant,
    cell::{Cell, Next},
};
use crate::class::Class;

/// The part of the speed of the matrix's best that the plan's choice must reach.
const OF_BEST: f64 = 0.90;
/// And of the speed of the C library.
const OF_LIBC: f64 = 0.95;
/// As close to an aim as this, a cell is measured again.
const CLOSE: f64 = 0.05;

/// One round: each contestant that takes part had a turn.
pub(super) struct Round {
    /// The distance between the cores; of no account if only one takes part.
    pub(super) class: Option<Class>,
    /// Nanoseconds a block, in the order of the contestants; infinite for one that took no part.
    pub(super) ns: Vec<f64>,
}

/// The rounds of a cell.
///
/// The fastest of thirty in the same rounds is so by luck, too. So the first rounds only tell which
/// may be the fastest, and the verdict about a cell comes from other rounds.
pub(super) struct Samples {
    pub(super) cell: Cell,
    /// Rounds of all.
    pub(super) first: Vec<Round>,
    /// Rounds of the finalists, which alone count.
    pub(super) rounds: Vec<Round>,
    /// Copies that were checked byte by byte.
    pub(super) verified: u64,
}

/// The number of the fastest that come into the final rounds.
const FASTEST: usize = 3;

impl Samples {
    /// The contestants of the final rounds, by their numbers: libc, the plan, the learning site,
    /// the fastest, and the fastest of each kind of stores.
    pub(super) fn finalists(&self, contestants: &[Contestant]) -> Vec<usize> {
        let times = medians(&self.first, self.cell.reader == Next::OtherCore);
        let ns = times.map(|(_, _, ns)| ns).unwrap_or_default();
        let mut fastest: Vec<usize> = (0..ns.len()).collect();
        fastest.sort_by(|&a, &b| ns[a].total_cmp(&ns[b]));
        let (mut few, mut of_kind) = (0, [0, 0]);
        fastest.retain(|&at| match contestants[at] {
            Contestant::Libc | Contestant::Plan => true,
            Contestant::Learnt => ns[at].is_finite(),
            Contestant::Matrix(algorithm) => {
                let of_kind = &mut of_kind[usize::from(algorithm.stores() == Stores::Streaming)];
                (few, *of_kind) = (few + 1, *of_kind + 1);
                few <= FASTEST || *of_kind == 1
            }
        });
        fastest.sort_unstable();
        fastest
    }
}

/// An algorithm and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) algorithm: Algorithm,
    pub(super) ns: f64,
}

/// The verdict about a cell. Every time is the median over the same rounds; two contestants are
/// compared by the median of their ratios in each round, so that slow rounds favour none.
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
    /// The plan's speed over that of the best. One half of the rounds says for the other which is
    /// the best: the fastest of several is so by luck, too.
    pub(super) of_best: f64,
    /// The plan's speed over that of the C library.
    pub(super) of_libc: f64,
    /// The learning site's result. `None` where copies are too short to learn about: there it is
    /// the plan.
    pub(super) learnt: Option<Learnt>,
}

/// The results of a site that has learnt from copies of the cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Learnt {
    pub(super) ns: f64,
    /// Its speed over that of the best, and over that of the C library, as the plan's.
    pub(super) of_best: f64,
    pub(super) of_libc: f64,
}

impl Verdict {
    /// The verdict of `samples`; `plan` gives the plan's choice at a distance. `None` if there are
    /// no rounds.
    pub(super) fn of(
        samples: &Samples,
        contestants: &[Contestant],
        plan: impl Fn(Option<Class>) -> Algorithm,
    ) -> Option<Verdict> {
        let (class, rounds, ns) = medians(&samples.rounds, samples.cell.reader == Next::OtherCore)?;
        let time = |at: usize| ns.get(at).copied();
        let at = |who| contestants.iter().position(|it| *it == who);
        let took_part = |it: &Timed| it.ns.is_finite();
        let matrix: Vec<Timed> = contestants
            .iter()
            .enumerate()
            .filter_map(|(at, who)| {
                let algorithm = match who {
                    Contestant::Libc => Algorithm::LIBC,
                    Contestant::Matrix(algorithm) => *algorithm,
                    Contestant::Plan | Contestant::Learnt => return None,
                };
                Some(Timed { algorithm, ns: time(at)? })
            })
            .filter(took_part)
            .collect();
        let best_of = |stores: Option<Stores>| {
            let fits = |it: &&Timed| stores.is_none_or(|stores| it.algorithm.stores() == stores);
            matrix.iter().filter(fits).min_by(|a, b| a.ns.total_cmp(&b.ns)).copied()
        };
        let counted = of_class(&samples.rounds, class);
        let (libc, planned) = (at(Contestant::Libc)?, at(Contestant::Plan)?);
        let chooses = |at: usize| matches!(contestants[at], Contestant::Plan | Contestant::Learnt);
        let others: Vec<usize> =
            (0..contestants.len()).filter(|&it| !chooses(it) && ns[it].is_finite()).collect();
        let learnt = at(Contestant::Learnt).filter(|&at| ns[at].is_finite());
        let learnt = learnt.and_then(|at| {
            let of_best = beside_best(&counted, &others, libc, at)?;
            Some(Learnt { ns: ns[at], of_best, of_libc: beside(&counted, libc, at)? })
        });
        Some(Verdict {
            of_best: beside_best(&counted, &others, libc, planned)?,
            of_libc: beside(&counted, libc, planned)?,
            cell: samples.cell,
            class,
            rounds,
            verified: samples.verified,
            libc_ns: time(libc)?,
            plan: Timed { algorithm: plan(class), ns: time(planned)? },
            best: best_of(None)?,
            temporal: best_of(Some(Stores::Temporal))?,
            streaming: best_of(Some(Stores::Streaming)),
            learnt,
        })
    }

    /// Within 10 % of the best.
    pub(super) fn meets_best(&self) -> bool {
        self.of_best >= OF_BEST
    }

    /// Returns whether the learning site meets the best.
    pub(super) fn learnt_meets_best(&self) -> bool {
        self.learnt.map_or(self.of_best, |it| it.of_best) >= OF_BEST
    }

    /// Returns whether the learning site is no more than 5 % below the C library.
    pub(super) fn learnt_meets_libc(&self) -> bool {
        self.learnt.map_or(self.of_libc, |it| it.of_libc) >= OF_LIBC
    }

    /// No more than 5 % below the C library.
    pub(super) fn meets_libc(&self) -> bool {
        self.of_libc >= OF_LIBC
    }

    /// Returns whether it misses an aim, or meets it by little: another look may say otherwise.
    pub(super) fn is_close(&self) -> bool {
        self.of_best < OF_BEST + CLOSE || self.of_libc < OF_LIBC + CLOSE
    }

    /// Both.
    pub(super) fn meets(&self) -> bool {
        self.meets_best() && self.meets_libc()
    }
}

/// The class that most rounds had (the best of equal ones; `None` if it does not matter), the
/// number of those rounds, and the median of each contestant over them. `None` of no rounds.
pub(super) fn medians(
    rounds: &[Round],
    class_matters: bool,
) -> Option<(Option<Class>, usize, Vec<f64>)> {
    let of = |class: Class| rounds.iter().filter(move |it| it.class == Some(class));
    let had = Class::ALL.into_iter().filter(|class| class_matters && of(*class).count() > 0);
    let class = had.max_by_key(|&class| (of(class).count(), std::cmp::Reverse(class)));
    let counted = of_class(rounds, class);
    let contestants = 0..counted.first()?.ns.len();
    let ns: Option<Vec<f64>> =
        contestants.map(|at| median(counted.iter().map(|it| it.ns[at]).collect())).collect();
    Some((class, counted.len(), ns?))
}

/// The rounds of a class; all, if that does not matter.
fn of_class(rounds: &[Round], class: Option<Class>) -> Vec<&Round> {
    rounds.iter().filter(|it| class.is_none() || it.class == class).collect()
}

/// The time of `a` in multiples of that of `b`, in the same round.
fn beside(rounds: &[&Round], a: usize, b: usize) -> Option<f64> {
    median(rounds.iter().map(|it| it.ns[a] / it.ns[b]).collect())
}

/// The time of the best of `others` in multiples of that of `one`. Each half of the rounds says
/// which is the best, by the time beside libc's, and the other half by how much.
fn beside_best(rounds: &[&Round], others: &[usize], libc: usize, one: usize) -> Option<f64> {
    let half = |odd: usize| -> Vec<&Round> {
        rounds.iter().copied().enumerate().filter(|(at, _)| at % 2 == odd).map(|it| it.1).collect()
    };
    // One round has no halves.
    let halves =
        if rounds.len() > 1 { [half(0), half(1)] } else { [rounds.to_vec(), rounds.to_vec()] };
    let judge = |by: &[&Round], of: &[&Round]| {
        let took = |at: usize| beside(by, at, libc).unwrap_or(f64::INFINITY);
        let best = others.iter().copied().min_by(|&a, &b| took(a).total_cmp(&took(b)))?;
        beside(of, best, one)
    };
    let [even, odd] = &halves;
    Some((judge(even, odd)? + judge(odd, even)?) / 2.0)
}

/// The middle one; the mean of the two in the middle. `None` of none.
pub(super) fn median(mut of: Vec<f64>) -> Option<f64> {
    of.sort_by(f64::total_cmp);
    let (low, high) = (of.len().checked_sub(1)? / 2, of.len() / 2);
    Some((of.get(low)? + of.get(high)?) / 2.0)
}

/// The numbers of cells that meet the aims.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Totals {
    pub(super) cells: usize,
    pub(super) meet_best: usize,
    pub(super) meet_libc: usize,
    /// The same of the learning sites; of the plan where they learn nothing.
    pub(super) learnt_meet_best: usize,
    pub(super) learnt_meet_libc: usize,
    /// Copies below 256 bytes, and how many of them are as good as the C library's.
    pub(super) short: usize,
    pub(super) short_meet_libc: usize,
    /// Cells where a side is uncached or another core reads.
    pub(super) apart: usize,
    /// The plan's speed there in multiples of the C library's, geometric mean.
    pub(super) apart_gain: Option<f64>,
    /// The same if it always took the best of the matrix: the best possible.
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
            learnt_meet_best: count(&|it| it.learnt_meets_best()),
            learnt_meet_libc: count(&|it| it.learnt_meets_libc()),
            short: count(&|it| it.cell.is_short()),
            short_meet_libc: count(&|it| it.cell.is_short() && it.meets_libc()),
            apart: apart.len(),
            apart_gain: gain(&|it| it.of_libc),
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

    pub(in crate::copy) fn cell(size: usize, reader: Next) -> Cell {
        let (source, destination) = (Source::Cached, Destination::Dirty);
        Cell { size, source, destination, reader, placement: Place::Aligned }
    }

    fn who() -> Vec<Contestant> {
        let named = |name: &str| Contestant::Matrix(name.parse().unwrap());
        let [loops, streaming] = ["sse2", "sse2+streaming"].map(named);
        vec![Contestant::Libc, Contestant::Plan, loops, streaming]
    }

    /// A verdict of rounds in which every contestant always took the same time.
    pub(in crate::copy) fn verdict(cell: Cell, ns: [f64; 4]) -> Verdict {
        let round = || Round { class: Some(Class::Near), ns: ns.to_vec() };
        let samples = Samples { cell, first: vec![], rounds: vec![round(), round()], verified: 8 };
        Verdict::of(&samples, &who(), |_| "sse2".parse().unwrap()).unwrap()
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
        assert!(it.meets() && (it.of_best, it.of_libc) == (0.9, 1.0));
        let it = verdict(cell(4096, Next::Me), [100.0, 101.0, 95.0, 90.0]);
        assert!(!it.meets_best() && it.meets_libc() && !it.meets());
        let it = verdict(cell(4096, Next::Me), [100.0, 106.0, 120.0, 120.0]);
        assert!(it.meets_best() && !it.meets_libc() && !it.meets());
        // The C library's is one of the matrix.
        assert_eq!(it.best.algorithm, Algorithm::LIBC);
    }

    #[test]
    fn what_is_learnt_is_judged_as_the_plan_is() {
        let who = [&who()[..], &[Contestant::Learnt]].concat();
        let round = |learnt| Round { class: None, ns: vec![100.0, 120.0, 80.0, 90.0, learnt] };
        let judge = |learnt| {
            let rounds = vec![round(learnt), round(learnt)];
            let samples =
                Samples { cell: cell(4096, Next::Me), first: vec![], rounds, verified: 8 };
            Verdict::of(&samples, &who, |_| Algorithm::LIBC).unwrap()
        };
        let it = judge(160.0);
        assert_eq!(it.learnt, Some(Learnt { ns: 160.0, of_best: 0.5, of_libc: 0.625 }));
        assert!(!it.learnt_meets_best() && !it.learnt_meets_libc());
        // The site is not the best itself, nor does it change the verdict on the plan.
        let fast = judge(40.0);
        assert!(fast.learnt_meets_best() && fast.learnt_meets_libc());
        assert_eq!((fast.best, fast.of_best, fast.of_libc), (it.best, it.of_best, it.of_libc));
        let all = Totals::of(&[it, fast]);
        assert_eq!((all.learnt_meet_best, all.learnt_meet_libc, all.meet_best), (1, 1, 0));
        // A site that took no part learnt nothing: it is the plan.
        let none = judge(f64::INFINITY);
        assert_eq!((none.learnt, none.learnt_meets_libc()), (None, none.meets_libc()));
    }

    #[test]
    fn slow_rounds_count_for_nobody() {
        // In slow rounds, too, the plan takes 1.25 times as long as the best.
        let round = |slow: f64| Round {
            class: None,
            ns: [100.0, 100.0, 80.0, 90.0].map(|ns| ns * slow).to_vec(),
        };
        let rounds = [1.0, 9.0, 2.0, 1.5, 30.0, 1.0, 7.0].map(round).into();
        let cell = cell(4096, Next::Me);
        let samples = Samples { cell, first: vec![], rounds, verified: 1 };
        let it = Verdict::of(&samples, &who(), |_| Algorithm::LIBC).unwrap();
        assert!((it.of_best - 0.8).abs() < 1e-9 && (it.of_libc - 1.0).abs() < 1e-9, "{it:?}");
    }

    #[test]
    fn who_was_lucky_is_not_the_best() {
        // All are alike, and each is twice as fast in one round of four.
        let round = |lucky: usize| {
            let mut ns = vec![100.0; 4];
            ns[lucky] = 50.0;
            Round { class: None, ns }
        };
        // Two in the even rounds, three in the odd ones.
        let rounds = [2, 3, 2, 3, 2, 3].map(round).into();
        let samples = Samples { cell: cell(4096, Next::Me), first: vec![], rounds, verified: 1 };
        let it = Verdict::of(&samples, &who(), |_| Algorithm::LIBC).unwrap();
        assert_eq!((it.of_best, it.of_libc), (1.0, 1.0));
    }

    #[test]
    fn only_rounds_of_one_class_count_where_another_core_reads() {
        let round = |class, libc: f64| Round { class: Some(class), ns: vec![libc, 2.0, 3.0, 4.0] };
        for (reader, class, rounds, libc) in
            [(Next::OtherCore, Some(Class::Far), 2, 15.0), (Next::Me, None, 3, 10.0)]
        {
            let rounds_all =
                vec![round(Class::Near, 1.0), round(Class::Far, 10.0), round(Class::Far, 20.0)];
            let samples =
                Samples { cell: cell(64, reader), first: vec![], rounds: rounds_all, verified: 1 };
            let it = Verdict::of(&samples, &who(), |_| Algorithm::LIBC).unwrap();
            assert_eq!((it.class, it.rounds, it.libc_ns), (class, rounds, libc));
        }
        let none = Samples { cell: cell(64, Next::Me), first: vec![], rounds: vec![], verified: 0 };
        assert!(Verdict::of(&none, &who(), |_| Algorithm::LIBC).is_none());
    }

    #[test]
    fn who_may_be_the_fastest_is_in_the_final() {
        let names = ["word", "rep", "sse2", "avx2", "avx512", "sse2+streaming", "avx2+streaming"];
        let matrix = names.map(|name| Contestant::Matrix(name.parse().unwrap()));
        let who = [&[Contestant::Libc, Contestant::Plan], &matrix[..]].concat();
        let finalists = |ns: [f64; 9]| {
            let first = vec![Round { class: None, ns: ns.to_vec() }];
            let cell = cell(4096, Next::Me);
            Samples { cell, first, rounds: vec![], verified: 0 }.finalists(&who)
        };
        // The three fastest, of which one streams.
        assert_eq!(finalists([9.0, 9.0, 5.0, 1.0, 2.0, 6.0, 8.0, 7.0, 3.0]), [0, 1, 3, 4, 8]);
        // The three fastest, and the streaming ones.
        assert_eq!(finalists([1.0, 9.0, 5.0, 1.0, 2.0, 3.0, 8.0, 7.0, 6.0]), [0, 1, 3, 4, 5, 8]);
        // A contestant that took no part is not compared to.
        let round = |word| {
            let mut ns = vec![f64::INFINITY; who.len()];
            ns[..3].copy_from_slice(&[10.0, 10.0, word]);
            Round { class: None, ns }
        };
        let samples = Samples {
            cell: cell(4096, Next::Me),
            // The results of the first rounds do not count.
            first: vec![Round { class: None, ns: vec![1.0; who.len()] }],
            rounds: vec![round(8.0), round(8.0)],
            verified: 1,
        };
        let it = Verdict::of(&samples, &who, |_| Algorithm::LIBC).unwrap();
        assert_eq!((it.best.algorithm.to_string(), it.best.ns), ("word".into(), 8.0));
        assert_eq!((it.streaming, it.rounds), (None, 2));
    }

    #[test]
    fn close_ones_are_looked_at_again() {
        let close = |ns| verdict(cell(4096, Next::Me), ns).is_close();
        // Missed, and met by little, of the best and of the C library.
        assert!(close([200.0, 100.0, 80.0, 90.0]) && close([200.0, 100.0, 94.0, 99.0]));
        assert!(close([90.0, 100.0, 120.0, 120.0]) && close([99.0, 100.0, 120.0, 120.0]));
        assert!(!close([101.0, 100.0, 98.0, 96.0]));
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
