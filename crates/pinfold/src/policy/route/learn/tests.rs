//! Convergence on a simulated machine, and bounds that hold on any.

use proptest::prelude::*;

use super::*;

/// Eager and cma.
const BOTH: PathSet = PathSet::all().without(Path::Mapped);

/// A machine with its own costs, noise and interruptions; repeats itself.
struct Machine {
    eager: f64,
    cma: f64,
    mapped: f64,
    state: u64,
    count: u64,
}

impl Machine {
    fn new(eager: f64, cma: f64, state: u64) -> Machine {
        Machine { eager, cma, mapped: 1.0, state, count: state % 37 }
    }

    fn random(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as f64 / (1u64 << 31) as f64
    }

    /// The time of a transfer: up to a tenth more or less, and every 37th a hundred times as long.
    fn transfer(&mut self, path: Path, len: u64) -> u64 {
        let factor = match path {
            Path::Cma => self.cma,
            Path::Mapped => self.mapped,
            _ => self.eager,
        };
        let noise = 0.9 + 0.2 * self.random();
        self.count += 1;
        let stall = if self.count.is_multiple_of(37) { 100.0 } else { 1.0 };
        (CostModel::DEFAULT.predict(path, len) * factor * noise * stall) as u64
    }

    /// Makes `n` transfers of `len` bytes. Returns how many went over cma, and their tries.
    fn run(&mut self, learner: &mut Learner, len: u64, n: usize) -> (usize, Tries) {
        let (mut cma, mut tries) = (0, Tries::default());
        for _ in 0..n {
            let pick = learner.pick(len, BOTH);
            learner.observe(pick.path, len, self.transfer(pick.path, len));
            cma += usize::from(pick.path == Path::Cma);
            tries.note(pick);
        }
        (cma, tries)
    }
}

/// How often a path was taken only to see how it does.
#[derive(Default)]
struct Tries {
    transfers: usize,
    explored: usize,
    /// How often another path came into use.
    changes: usize,
    used: Option<Path>,
}

impl Tries {
    fn note(&mut self, pick: Pick) {
        self.transfers += 1;
        self.explored += usize::from(pick.instead_of.is_some());
        let used = pick.instead_of.unwrap_or(pick.path);
        let before = self.used.replace(used);
        self.changes += usize::from(before.is_some_and(|before| before != used));
    }

    /// The most tries: one in so many turns, and a few at first, for each path, and after each
    /// change: after 6 and 24 turns. Each is of some transfers.
    fn most(&self) -> usize {
        let tries = self.transfers / EXPLORE_TURNS as usize + 3 * (LONG.len() - 1 + self.changes);
        tries * TRY_TURNS as usize
    }
}

fn learner() -> Learner {
    Learner::new(&CostModel::DEFAULT)
}

#[test]
fn the_model_is_the_start() {
    let mut learner = learner();
    for len in [0, 56, 1023, 1024, 4096, 1 << 20, 1 << 40] {
        for path in Path::ALL {
            assert_eq!(learner.predict(path, len), CostModel::DEFAULT.predict(path, len));
        }
    }
    assert_eq!(learner.pick(4096, BOTH).path, Path::Eager);
    assert_eq!(learner.pick(1 << 20, BOTH).path, Path::Cma);
}

#[test]
fn a_path_that_cannot_pay_is_not_weighed() {
    let hopeless = CostModel {
        cma: crate::policy::route::Line { base_ns: 1e6, ns_per_byte: 10.0 },
        ..CostModel::DEFAULT
    };
    let mut learner = Learner::new(&hopeless);
    assert_eq!(learner.from(Path::Cma), u64::MAX);
    assert_eq!(learner.pick(u64::MAX, BOTH), Pick { path: Path::Eager, instead_of: None });

    let cheap = CostModel {
        cma: crate::policy::route::Line { base_ns: 1.0, ns_per_byte: 0.001 },
        ..CostModel::DEFAULT
    };
    assert_eq!(Learner::new(&cheap).from(Path::Cma), 1024);

    // Slow calls move the first class up; fast times observed later move it down again.
    let slow = CostModel {
        cma: crate::policy::route::Line { base_ns: 20_000.0, ns_per_byte: 0.075 },
        ..CostModel::DEFAULT
    };
    let learner = Learner::new(&slow);
    let first = learner.from(Path::Cma);
    assert!(first > 16 << 10, "{first}");
    let mut learner = Learner::new(&slow);
    (0..20).for_each(|_| learner.observe(Path::Cma, first / 2, 1));
    assert_eq!(learner.from(Path::Cma), first / 2);
}

#[test]
fn a_change_of_speed_is_learnt_within_ten_transfers() {
    let len = 64 << 10;
    for factors in [[1.0, 4.0], [4.0, 1.0], [1.0, 0.25]] {
        let mut learner = learner();
        for factor in factors {
            let mut machine = Machine::new(factor, 1.0, 1);
            for _ in 0..10 {
                learner.observe(Path::Eager, len, machine.transfer(Path::Eager, len));
            }
            let real = CostModel::DEFAULT.predict(Path::Eager, len) * factor;
            let error = learner.predict(Path::Eager, len) / real;
            assert!((0.75..1.35).contains(&error), "{factors:?} {factor} {error}");
        }
    }
}

#[test]
fn one_interruption_changes_nothing() {
    let mut learner = learner();
    let (len, ns) = (64 << 10, 6_000);
    for turn in 0..100 {
        let stalled = turn % 10 == 9;
        learner.observe(Path::Cma, len, if stalled { 10_000_000 } else { ns });
        if turn > 20 {
            let error = learner.predict(Path::Cma, len) / ns as f64;
            assert!((0.99..1.01).contains(&error), "{turn} {error}");
        }
    }
}

#[test]
fn the_choice_follows_the_machine() {
    let len = 64 << 10;
    let mut learner = learner();
    // Eager is really twice as fast as in the model; exploring finds that out.
    let mut machine = Machine::new(0.5, 1.0, 7);
    machine.run(&mut learner, len, 400);
    let (cma, _) = machine.run(&mut learner, len, 1000);
    assert!(cma <= 40, "{cma}");
    // The cores move apart: the path in use is seen to be slow at once.
    machine.eager = 4.0;
    machine.run(&mut learner, len, 12);
    let (cma, _) = machine.run(&mut learner, len, 1000);
    assert!(cma >= 960, "{cma}");
    // The cores move back: finding that takes exploring again.
    machine.eager = 0.5;
    machine.run(&mut learner, len, 1500);
    let (cma, _) = machine.run(&mut learner, len, 1000);
    assert!(cma <= 40, "{cma}");
    // Other classes know nothing of it.
    assert_eq!(learner.predict(Path::Cma, 1 << 20), CostModel::DEFAULT.predict(Path::Cma, 1 << 20));
}

#[test]
fn a_bad_estimate_is_forgotten() {
    let len = 1 << 20;
    let mut learner = learner();
    (0..20).for_each(|_| learner.observe(Path::Cma, len, u64::MAX));
    let mut machine = Machine::new(1.0, 1.0, 3);
    let (cma, explored) = machine.run(&mut learner, len, FORGET_TURNS as usize - 1);
    assert_eq!((cma, explored.explored), (0, 0));
    machine.run(&mut learner, len, 20);
    let (cma, _) = machine.run(&mut learner, len, 1000);
    assert!(cma >= 960, "{cma}");
}

/// Five slow transfers in a row: the path in use is left, and soon taken up again.
#[test]
fn a_path_that_stumbled_is_back_soon() {
    let (mut learner, len) = (learner(), 1 << 20);
    let ns = |path, slow| match (path, slow) {
        (Path::Mapped, false) => 40_000,
        (Path::Mapped, true) => 400_000,
        (Path::Cma, _) => 80_000,
        _ => 120_000,
    };
    let mut slower = 0;
    for turn in 0..1000 {
        let path = learner.pick(len, PathSet::all()).path;
        slower += u32::from(turn >= 100 && path != Path::Mapped);
        learner.observe(path, len, ns(path, turn % 100 < 5));
    }
    // Nine times some ten, and the tries.
    assert!(slower < 150, "{slower} of 900 took a slower path");
}

#[test]
fn exploring_is_rarer_the_less_it_promises() {
    let len = 64 << 10;
    let mut found = Vec::new();
    for eager in [1.0, 2.0, 3.0, 6.0] {
        let mut machine = Machine::new(eager, 1.0, 5);
        let mut learner = learner();
        let (_, tries) = machine.run(&mut learner, len, 9600);
        found.push(tries.explored);
    }
    assert!(found[0] <= 3 * 9600 / 80 && found[0] > 150, "{found:?}");
    // A path that is not tried at all is forgotten, and tried then.
    assert!(found.is_sorted_by(|a, b| a + 6 * TRY_TURNS as usize >= *b), "{found:?}");
    assert!(found[3] < 60, "{found:?}");
}

fn any_path() -> impl Strategy<Value = Path> {
    prop::sample::select(&Path::ALL[..])
}

fn any_len() -> impl Strategy<Value = u64> {
    prop_oneof![(0..64u32).prop_map(|bit| 1 << bit), any::<u64>(), 0..100_000u64]
}

proptest! {
    #[test]
    fn predictions_are_numbers_whatever_was_observed(
        seen in prop::collection::vec((any_path(), any_len(), any::<u64>(), any::<bool>()), 0..300),
        base_ns in any::<f64>(),
        ns_per_byte in any::<f64>(),
        len in any_len(),
    ) {
        let line = crate::policy::route::Line { base_ns, ns_per_byte };
        let mut learner = Learner::new(&CostModel { cma: line, ..CostModel::DEFAULT });
        for (path, len, ns, pick) in seen {
            learner.observe(path, len, ns);
            if pick {
                learner.pick(len, PathSet::all());
            }
        }
        for path in Path::ALL {
            prop_assert!(learner.predict(path, len) > 0.0);
        }
        prop_assert!(LONG.contains(&learner.pick(len, PathSet::all()).path));
        prop_assert!(learner.from(Path::Cma) >= 1 << CLASS_MIN);
    }

    #[test]
    fn the_best_of_three_is_found(
        factors in prop::array::uniform3(prop::sample::select(vec![1.0, 1.8, 3.2])),
        log in 12..26u32,
        state in any::<u64>(),
    ) {
        let len = 1 << log;
        // The time of each path by its factor alone, from the same start.
        let base = CostModel::DEFAULT.predict(Path::Eager, len);
        let mut machine = Machine::new(factors[0], 1.0, state);
        machine.cma = factors[1] * base / CostModel::DEFAULT.predict(Path::Cma, len);
        machine.mapped = factors[2] * base / CostModel::DEFAULT.predict(Path::Mapped, len);
        let mut learner = learner();
        let (mut tries, mut good) = (Tries::default(), 0);
        let best = factors.into_iter().fold(f64::MAX, f64::min);
        for round in 0..4000 {
            let pick = learner.pick(len, PathSet::all());
            learner.observe(pick.path, len, machine.transfer(pick.path, len));
            tries.note(pick);
            let at = LONG.iter().position(|path| *path == pick.path).unwrap();
            good += usize::from(round >= 2500 && factors[at] == best);
        }
        prop_assert!(tries.explored <= tries.most(), "{} of {}", tries.explored, tries.most());
        prop_assert!(good >= 1350, "{} {:?}", good, factors);
    }

    #[test]
    fn exploring_is_bounded(
        eager in 0.1..10.0f64,
        cma in 0.1..10.0f64,
        log in 10..26u32,
        state in any::<u64>(),
        rounds in 1..2000usize,
    ) {
        let mut machine = Machine::new(eager, cma, state);
        let (_, tries) = machine.run(&mut learner(), 1 << log, rounds);
        prop_assert!(tries.explored <= tries.most(), "{} of {}", tries.explored, tries.most());
    }

    #[test]
    fn the_better_path_is_found(
        ratio in 1.3..3.0f64,
        cma_is_better in any::<bool>(),
        log in 16..26u32,
        state in any::<u64>(),
    ) {
        let len = 1 << log;
        let [eager, cma] = [Path::Eager, Path::Cma].map(|path| CostModel::DEFAULT.predict(path, len));
        // Factors that make one path `ratio` times as fast as the other.
        let factor = eager / cma * if cma_is_better { 1.0 / ratio } else { ratio };
        let mut machine = Machine::new(1.0, factor, state);
        let mut learner = learner();
        machine.run(&mut learner, len, 1500);
        let (cma, _) = machine.run(&mut learner, len, 480);
        prop_assert!(if cma_is_better { cma >= 400 } else { cma <= 80 }, "{}", cma);
    }
}
