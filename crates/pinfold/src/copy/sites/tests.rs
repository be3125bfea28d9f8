//! Convergence on a simulated machine that changes, and bounds that hold on any.

use proptest::prelude::*;

use super::{
    class::{PERIOD_MIN, TOKEN_SAMPLES, TOKENS_MAX, VISIT_SAMPLES, period_of},
    *,
};
use pinfold_sys::cpu::block::Algorithm;

/// The candidates of the tests.
fn four() -> Vec<Algorithm> {
    Algorithm::all().take(4).collect()
}

/// A machine with a cost for each candidate, noise and interruptions; repeats itself.
struct Machine {
    ns_per_kib: [f64; 4],
    state: u64,
}

impl Machine {
    fn new(ns_per_kib: [f64; 4], state: u64) -> Machine {
        Machine { ns_per_kib, state }
    }

    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as f64 / (1u64 << 31) as f64
    }

    /// The time of a copy: up to a tenth more or less, and one in 37 a hundred times as long.
    fn copy(&mut self, len: usize, algorithm: Algorithm) -> u64 {
        let at = four().iter().position(|other| *other == algorithm).unwrap();
        let noise = 0.9 + 0.2 * self.random();
        let stall = if self.random() < 1.0 / 37.0 { 100.0 } else { 1.0 };
        (self.ns_per_kib[at] * len as f64 / 1024.0 * noise * stall) as u64
    }

    fn best(&self) -> Algorithm {
        let costs = self.ns_per_kib;
        four()[(0..4).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap()]
    }

    /// `samples` samples of copies of `len` bytes: how many copies were by the best.
    fn run(&mut self, site: &mut Site, len: usize, samples: u32) -> Ran {
        let least = self.ns_per_kib.into_iter().fold(f64::INFINITY, f64::min);
        let copies = (samples * period(len, least)) as usize;
        let mut ran = Ran { copies, ..Ran::default() };
        let best = self.best();
        for _ in 0..copies {
            let used = site.using(len);
            let choice = site.next(len, four).unwrap();
            let ns = self.copy(len, choice.algorithm);
            if choice.timed {
                site.observe(len, choice.algorithm, ns);
            }
            ran.best += usize::from(choice.algorithm == best);
            ran.timed += usize::from(choice.timed);
            ran.tries += usize::from(used.is_some_and(|used| used != choice.algorithm));
        }
        ran
    }
}

#[derive(Default, Debug)]
struct Ran {
    copies: usize,
    best: usize,
    timed: usize,
    tries: usize,
}

/// Copies from one sample to the next, where a KiB takes so long.
fn period(len: usize, ns_per_kib: f64) -> u32 {
    let shortest = 1 << len.ilog2();
    period_of((ns_per_kib * shortest as f64 / 1024.0) as f32)
}

/// The number of `all` that must be by the best, for it to be in use all the time: some are tries.
fn most(all: usize) -> usize {
    all - all / 32
}

#[test]
fn the_best_is_found_and_found_again() {
    let mut wrong = 0;
    for state in 0..200 {
        let len = [1 << 10, 4 << 10, 64 << 10, 1 << 20][state as usize % 4];
        let mut site = Site::new();
        let mut machine = Machine::new([100.0, 60.0, 150.0, 300.0], state);
        machine.run(&mut site, len, 24);
        let ran = machine.run(&mut site, len, 200);
        wrong += u32::from(ran.best < most(ran.copies));
        // The cores move apart: the former best is four times as slow, and another is best now.
        machine.ns_per_kib = [400.0, 240.0, 150.0, 300.0];
        machine.run(&mut site, len, 24);
        let ran = machine.run(&mut site, len, 200);
        wrong += u32::from(ran.best < most(ran.copies));
        // The cores move together again: everything is faster, and the first is best.
        machine.ns_per_kib = [30.0, 60.0, 90.0, 300.0];
        machine.run(&mut site, len, 24);
        let ran = machine.run(&mut site, len, 200);
        wrong += u32::from(ran.best < most(ran.copies));
    }
    // Both tries of the best may be interrupted: one visit in 1369.
    assert!(wrong <= 6, "{wrong} of 600");
}

#[test]
fn what_has_become_better_is_found_though_nothing_else_changed() {
    let mut wrong = 0;
    for state in 0..100 {
        let ratio = [1.5, 2.0, 4.0][state as usize % 3];
        let len = 16 << 10;
        let mut site = Site::new();
        let mut machine = Machine::new([100.0, 100.0 * ratio, 200.0, 200.0], state);
        machine.run(&mut site, len, 300);
        machine.ns_per_kib[1] = 50.0;
        machine.run(&mut site, len, 80 * (ratio * ratio) as u32 + 80);
        let ran = machine.run(&mut site, len, 200);
        wrong += u32::from(ran.best < most(ran.copies));
    }
    assert!(wrong <= 3, "{wrong} of 100");
}

#[test]
fn interruptions_alone_change_nothing() {
    let (mut best, mut all) = (0, 0);
    for state in 0..20 {
        let mut site = Site::new();
        let mut machine = Machine::new([100.0, 80.0, 120.0, 130.0], state);
        machine.run(&mut site, 4 << 10, 24);
        let ran = machine.run(&mut site, 4 << 10, 2000);
        best += ran.best;
        all += ran.copies;
    }
    assert!(best >= all - all / 64, "{best} of {all}");
}

#[test]
fn few_copies_are_timed() {
    for log in 10..24 {
        let len = 1usize << log;
        let mut site = Site::new();
        let ran = Machine::new([100.0, 80.0, 120.0, 130.0], 5).run(&mut site, len, 500);
        // As many as their time has room for, and at most one in four; and two for each try.
        let samples = ran.copies / period(len, 80.0) as usize;
        assert!(ran.timed <= samples * 5 / 4 + 2 * ran.tries + 8, "{len} {ran:?}");
        assert!(ran.timed >= samples / 2, "{len} {ran:?}");
    }
}

/// For fast and slow copies: the cost of timing some of them is small beside them all.
#[test]
fn clocks_take_little_of_the_time() {
    for ns in [8.0, 40.0, 250.0, 3000.0, 50_000.0, 2_000_000.0] {
        let len = 4 << 10;
        let mut site = Site::new();
        let mut machine = Machine::new([1.0, 1.5, 2.0, 3.0].map(|times| times * ns / 4.0), 3);
        machine.run(&mut site, len, 40);
        let ran = machine.run(&mut site, len, 400);
        // Each 100 ns: to read a clock twice, and its side effects.
        let part = ran.timed as f64 * 100.0 / (ran.copies as f64 * ns);
        assert!(part < 0.005, "{part} of copies that take {ns} ns");
        assert!(ran.timed >= 200, "{ran:?} of copies that take {ns} ns");
    }
}

/// Most of a time by the clock is the clock's own: in any case they go on as they did after the
/// first tries.
#[test]
fn what_is_over_in_less_than_can_be_told_is_tried_once() {
    let (len, mut site) = (2 << 10, Site::new());
    Machine::new([16.0, 8.0, 10.0, 20.0], 5).run(&mut site, len, 20);
    assert!(site.is_settled(len));
    let unsteady = [[30.0, 8.0, 10.0, 20.0], [8.0, 30.0, 20.0, 10.0]];
    let ran =
        (0..40).map(|at| Machine::new(unsteady[at % 2], 6 + at as u64).run(&mut site, len, 20));
    // Two interruptions in a row look like copies that have become slow: there are some, within the tokens.
    let tries: usize = ran.map(|ran| ran.tries).sum();
    assert!(tries <= 16, "{tries} tries, {site:?}");
    // Slow, they are like any others.
    let mut slow = Machine::new([900.0, 1000.0, 400.0, 2000.0], 7);
    slow.run(&mut site, len, 4000);
    assert_eq!(site.using(len), Some(slow.best()));
}

/// A fast algorithm is slow now: the next look is not as far away as it would have been.
#[test]
fn what_becomes_slow_is_looked_at_as_often_as_slow_copies_are() {
    let mut site = Site::new();
    Machine::new([4.0, 5.0, 6.0, 9.0], 1).run(&mut site, 4 << 10, 100);
    let mut machine = Machine::new([4000.0, 5000.0, 6000.0, 9000.0], 2);
    // One sample is enough to know it.
    let apart = period(4 << 10, 4.0) as usize;
    let mut timed = Vec::new();
    for at in 0..4 * apart {
        let choice = site.next(4 << 10, four).unwrap();
        if choice.timed {
            site.observe(4 << 10, choice.algorithm, machine.copy(4 << 10, choice.algorithm));
            timed.push(at);
        }
    }
    assert!(timed[0] < apart && timed.len() > 2 * apart / 4, "{} of {}", timed.len(), 4 * apart);
}

#[test]
fn classes_know_nothing_of_each_other() {
    let mut site = Site::new();
    Machine::new([100.0, 100.0, 10.0, 100.0], 1).run(&mut site, 4096, 24);
    assert_eq!(site.using(4096), Some(four()[2]));
    assert_eq!(site.using(8191), Some(four()[2]));
    assert_eq!(site.using(8192), None);
    assert_eq!(site.next(8192, four).unwrap().algorithm, four()[0]);
    assert_eq!(site.next(1023, four), None);
    assert_eq!(site.next(0, four), None);
    // The longest are one class.
    site.next(usize::MAX, four);
    assert_eq!(site.using(1 << 26), Some(four()[0]));
    site.forget();
    assert_eq!(site.using(4096), None);
}

#[test]
fn with_one_candidate_nothing_is_timed() {
    for candidates in [vec![], vec![Algorithm::LIBC], vec![Algorithm::LIBC; 9]] {
        let mut site = Site::new();
        for _ in 0..1000 {
            let choice = site.next(1 << 20, || candidates.clone()).unwrap();
            assert_eq!(choice, Choice { algorithm: Algorithm::LIBC, timed: false });
        }
    }
}

#[test]
fn what_is_never_observed_changes_nothing_and_costs_little() {
    let mut site = Site::new();
    let mut others = 0;
    for _ in 0..100_000 {
        others += u64::from(site.next(1 << 20, four).unwrap().algorithm != four()[0]);
    }
    assert_eq!(site.using(1 << 20), Some(four()[0]));
    assert!((10..=100_000 / 64 + 6).contains(&others), "{others}");
}

#[test]
fn observations_may_come_late() {
    let mut site = Site::new();
    let mut machine = Machine::new([100.0, 60.0, 150.0, 300.0], 9);
    let mut on_the_way = std::collections::VecDeque::new();
    let mut best = 0;
    for round in 0..4000 {
        let choice = site.next(64 << 10, four).unwrap();
        on_the_way.push_back((choice, machine.copy(64 << 10, choice.algorithm)));
        // A ring full of messages lies between.
        if on_the_way.len() > 50 {
            let (choice, ns) = on_the_way.pop_front().unwrap();
            if choice.timed {
                site.observe(64 << 10, choice.algorithm, ns);
            }
        }
        best += u32::from(round >= 400 && choice.algorithm == machine.best());
    }
    assert!(best >= 3600 - 3600 / 32, "{best}");
}

/// A site and a machine without noise, one copy after the other.
struct Exact {
    site: Site,
    /// The time of a copy by each candidate, nanoseconds.
    ns: [u64; 4],
}

impl Exact {
    const LEN: usize = 4 << 10;
    /// Copies between two samples: these are slow.
    const BETWEEN: u32 = PERIOD_MIN - 1;

    /// A site that has tried all candidates.
    fn new(ns: [u64; 4]) -> Exact {
        let mut exact = Exact { site: Site::new(), ns };
        for at in [0, 0, 1, 1, 2, 2, 3, 3] {
            assert_eq!(exact.sample(), (0, at));
        }
        assert_eq!(exact.sample().0, 0);
        exact
    }

    /// The next copy: whether it is timed, and by which candidate.
    fn copy(&mut self) -> Choice<usize> {
        let Choice { algorithm, timed } = self.site.next(Exact::LEN, four).unwrap();
        Choice { algorithm: four().iter().position(|other| *other == algorithm).unwrap(), timed }
    }

    fn tell(&mut self, at: usize, ns: u64) {
        self.site.observe(Exact::LEN, four()[at], ns);
    }

    /// The next copy that is timed, and takes `times` as long as it should: how many came before,
    /// and by which candidate it is.
    fn stalled(&mut self, times: u64) -> (u32, usize) {
        let mut before = 0;
        loop {
            let Choice { algorithm: at, timed } = self.copy();
            if timed {
                self.tell(at, self.ns[at] * times);
                return (before, at);
            }
            before += 1;
        }
    }

    fn sample(&mut self) -> (u32, usize) {
        self.stalled(1)
    }

    /// So many samples of a candidate that is in use, and nothing between them.
    fn goes_on(&mut self, samples: u32, at: usize) {
        for sample in 0..samples {
            assert_eq!(self.sample(), (Exact::BETWEEN, at), "after {sample}");
        }
    }

    fn using(&self) -> usize {
        let using = self.site.using(Exact::LEN).unwrap();
        four().iter().position(|other| *other == using).unwrap()
    }
}

/// Samples in which a class earns all its tokens.
const EARNT: u32 = TOKENS_MAX * TOKEN_SAMPLES + 1;

#[test]
fn much_change_is_looked_into_at_once_and_less_of_it_soon() {
    for (now, samples) in [
        // The middle one of three is far from its former time.
        (1600, Some(2)),
        (620, Some(2)),
        // Their results are.
        (1400, Some(4)),
        (714, Some(5)),
        (1200, None),
        (850, None),
    ] {
        let mut exact = Exact::new([1000, 3000, 3000, 3000].map(|ns| ns * 100));
        exact.goes_on(EARNT, 0);
        exact.ns[0] = now * 100;
        exact.goes_on(samples.unwrap_or(100), 0);
        if samples.is_some() {
            for at in [0, 0, 1, 1, 2, 2, 3, 3] {
                assert_eq!(exact.sample(), (0, at), "{now}");
            }
        }
        // The next one comes when it would have come, and all is as before.
        exact.goes_on(50, 0);
    }
}

#[test]
fn an_interruption_is_not_looked_into_and_two_of_them_only_once() {
    let mut exact = Exact::new([100_000, 300_000, 300_000, 300_000]);
    for _ in 0..3 {
        exact.goes_on(3, 0);
        assert_eq!(exact.stalled(100), (Exact::BETWEEN, 0));
    }
    exact.goes_on(3, 0);
    assert_eq!(exact.stalled(100), (Exact::BETWEEN, 0));
    assert_eq!(exact.stalled(100), (Exact::BETWEEN, 0));
    // Only the candidate in use is tried: nothing has changed.
    assert_eq!(exact.sample(), (0, 0));
    assert_eq!(exact.sample(), (0, 0));
    exact.goes_on(50, 0);
}

#[test]
fn what_is_heard_late_of_a_change_is_still_looked_into_at_once() {
    let mut exact = Exact::new([100_000, 300_000, 300_000, 300_000]);
    exact.goes_on(EARNT, 0);
    exact.ns[0] = 200_000;
    exact.goes_on(2, 0);
    assert_eq!(exact.sample(), (0, 0));
    assert_eq!(exact.copy(), Choice { algorithm: 0, timed: true });
    for _ in 0..2 {
        assert!(!exact.copy().timed);
    }
    exact.tell(0, 200_000);
    for at in [1, 1, 2, 2, 3, 3] {
        assert_eq!(exact.sample(), (0, at));
    }
    assert_eq!(exact.sample(), (Exact::BETWEEN - 2, 0));
}

#[test]
fn what_is_in_use_gives_way_to_what_is_clearly_better() {
    for (other, better) in [(97, false), (93, true)] {
        let mut exact = Exact::new([100, other, 300, 300].map(|ns| ns * 1000));
        exact.goes_on(VISIT_SAMPLES - 2, usize::from(better));
        assert_eq!(exact.using(), usize::from(better));
    }
    // It is as good as its last tries say, for any times before.
    let mut exact = Exact::new([100, 130, 300, 300].map(|ns| ns * 1000));
    (0..EARNT + 20).for_each(|_| _ = exact.sample());
    exact.ns[0] = 138_000;
    let mut samples = 0;
    while exact.sample() != (0, 0) {
        samples += 1;
        assert!(samples < 10);
    }
    assert_eq!((exact.using(), exact.sample()), (0, (0, 0)));
    assert_eq!(exact.using(), 1);
}

#[test]
fn what_was_in_use_is_known_and_tried_when_its_time_comes() {
    let mut exact = Exact::new([100, 130, 300, 300].map(|ns| ns * 1000));
    (0..VISIT_SAMPLES).for_each(|_| _ = exact.sample());
    exact.ns[1] = 50_000;
    while exact.using() == 0 {
        exact.sample();
    }
    // It is twice as slow, and so has to wait four times as long.
    let mut samples = 0;
    while exact.sample() != (0, 0) {
        samples += 1;
    }
    assert!(samples >= VISIT_SAMPLES * 4 - 2, "after {samples}");
}

/// `n` callers.
fn callers(n: usize) -> Vec<Caller> {
    let names = (0..n).map(|n| String::leak(format!("caller {n}")));
    names.map(|name| Caller::Named(name)).collect()
}

#[test]
fn the_table_keeps_who_comes_again() {
    let mut sites = Sites::new();
    assert_eq!(sites.counts().count(), 0);
    let busy = Caller::here();
    for caller in callers(1000) {
        sites.site(caller, 10);
        sites.site(busy, 100).next(4096, four);
    }
    let counts: Vec<SiteCount> = sites.counts().collect();
    assert!(counts.len() <= Sites::ENTRIES && counts.len() >= 50, "{}", counts.len());
    assert_eq!(sites.replaced() as usize, 1001 - counts.len());
    let busy_count = counts.iter().find(|count| count.caller == busy).unwrap();
    assert_eq!((busy_count.copies, busy_count.bytes), (1000, 100_000));
    assert!(busy.to_string().contains("tests.rs"), "{busy}");
    // Its site is the same all the time; a caller that was away has lost its own.
    assert_eq!(sites.site(busy, 0).using(4096), Some(four()[0]));
    assert!(format!("{sites:?}").contains("caller 999"));
}

#[test]
fn lines_are_callers_of_their_own() {
    let (a, b) = (Caller::here(), Caller::here());
    let mut sites = Sites::new();
    sites.site(a, 1).next(4096, four);
    assert_eq!(sites.site(a, 1).using(4096), Some(four()[0]));
    assert_ne!(a, b);
    assert_eq!(sites.site(b, 1).using(4096), None);
}

proptest! {
    #[test]
    fn tries_are_bounded_whatever_is_observed(
        log in 10..27u32,
        rounds in 1..4000usize,
        seen in prop::collection::vec((any::<u64>(), 0..6usize, any::<bool>()), 1..200),
    ) {
        let len = 1usize << log;
        let mut site = Site::new();
        let all: Vec<Algorithm> = Algorithm::all().collect();
        let mut tries = 0;
        for round in 0..rounds {
            let used = site.using(len);
            let choice = site.next(len, four).unwrap();
            prop_assert!(four().contains(&choice.algorithm));
            prop_assert!(used.is_none() || choice.timed || used == Some(choice.algorithm));
            tries += usize::from(used.is_some_and(|used| used != choice.algorithm));
            let (ns, other, honest) = seen[round % seen.len()];
            site.observe(len, if honest { choice.algorithm } else { all[other] }, ns);
        }
        let bound = TOKENS_MAX + rounds as u32 / (TOKEN_SAMPLES * PERIOD_MIN);
        prop_assert!(tries as u32 <= bound, "{} of {}: {}", tries, rounds, bound);
        prop_assert!(site.using(len).is_some_and(|using| four().contains(&using)));
    }

    #[test]
    fn what_is_slow_costs_next_to_nothing(
        ratios in prop::array::uniform3(1.2..16.0f64),
        log in 10..24u32,
        state in any::<u64>(),
    ) {
        let len = 1usize << log;
        let mut site = Site::new();
        let mut machine = Machine::new([100.0, 0.0, 0.0, 0.0], state);
        (0..3).for_each(|at| machine.ns_per_kib[at + 1] = 100.0 * ratios[at]);
        // Without noise and interruptions, which are not the site's fault; and long enough for the
        // visits to come at their rates.
        let (mut took, mut needed) = (0.0, 0.0);
        for round in 0..VISIT_SAMPLES * 64 * period(len, 100.0).min(16) {
            let choice = site.next(len, four).unwrap();
            let at = four().iter().position(|other| *other == choice.algorithm).unwrap();
            let ns = machine.ns_per_kib[at] * len as f64 / 1024.0;
            if choice.timed {
                site.observe(len, choice.algorithm, ns as u64);
            }
            // To know nothing costs two tries of each.
            if round < 8 {
                continue;
            }
            took += ns;
            needed += 100.0 * len as f64 / 1024.0;
        }
        prop_assert!(took <= needed * 1.01, "{}", took / needed);
    }
}
