//! The learner beside recorded costs: the time of a pair that chooses, compared with the time of
//! the best path.
//!
//! The traces come from `cargo bench -p pinfold --bench paths`, on two processors of a virtual
//! machine. A line is one turn: the time of a hop, then for each path the time of a message (time ÷
//! messages), and the time of the first messages as it was reported to the learner. The learner is
//! told the latter and pays the former.

use super::*;

/// Messages of a path in a turn.
const BATCH: usize = 4;
/// A trace is replayed so many times in a row.
const ROUNDS: usize = 3;
/// Turns after which the best path is found.
const FOUND: usize = 100;
/// The most time that a pair that chooses may take, over the time of the best path.
const BOUND: f64 = 1.05;
/// The same where the model to begin with is wrong by a factor of 2.
const BOUND_MISLED: f64 = 1.08;

/// The time of one path in a turn, ns.
#[derive(Clone, Debug)]
struct Cost {
    path: Path,
    took: f64,
    told: Vec<u64>,
}

/// Turns, of messages of one length.
#[derive(Clone)]
struct Trace {
    len: u64,
    turns: Vec<Vec<Cost>>,
}

fn trace(len: u64, text: &str) -> Trace {
    let turn = |line: &str| {
        let mut costs: Vec<Cost> = Vec::new();
        for word in line.split_whitespace().skip(1) {
            match (Path::from_name(word), costs.last_mut()) {
                (Some(path), _) => costs.push(Cost { path, took: 0.0, told: Vec::new() }),
                (None, Some(cost)) if cost.took == 0.0 => cost.took = word.parse().unwrap(),
                (None, Some(cost)) => cost.told.push(word.parse().unwrap()),
                (None, None) => panic!("{word} comes before any path"),
            }
        }
        costs
    };
    Trace { len, turns: text.lines().map(turn).collect() }
}

macro_rules! traces {
    ($($len:expr, $name:literal;)*) => {
        [$(($name, trace($len, include_str!(concat!("traces/", $name, ".trace"))))),*]
    };
}

fn all() -> [(&'static str, Trace); 13] {
    traces! {
        16 << 10, "turns-heap-16k";
        64 << 10, "turns-heap-64k";
        1 << 20, "turns-heap-1024k";
        16 << 10, "stream-heap-16k";
        64 << 10, "stream-heap-64k";
        1 << 20, "stream-heap-1024k";
        64 << 10, "both-heap-64k";
        64 << 10, "both-heap-64k-far";
        1 << 20, "both-heap-1024k";
        64 << 10, "turns-arena-64k";
        1 << 20, "turns-arena-1024k";
        64 << 10, "stream-arena-64k";
        1 << 20, "stream-arena-1024k";
    }
}

impl Trace {
    fn open(&self) -> PathSet {
        self.turns[0].iter().fold(PathSet::none(), |open, cost| open.with(cost.path))
    }

    /// All turns, in all rounds, from turn `from` on.
    fn turns(&self, from: usize) -> impl Iterator<Item = &Vec<Cost>> {
        self.turns.iter().cycle().take(ROUNDS * self.turns.len()).skip(from)
    }

    /// The average time of messages by each path, ns, from turn `from` on.
    fn means(&self, from: usize) -> Vec<(Path, f64)> {
        let count = self.turns(from).count() as f64;
        let mean = |at: usize| self.turns(from).map(|turn| turn[at].took).sum::<f64>() / count;
        self.turns[0].iter().enumerate().map(|(at, cost)| (cost.path, mean(at))).collect()
    }

    /// The average time of messages where `learner` chooses, ns, from turn `from` on.
    fn replay(&self, learner: &mut Learner, from: usize) -> f64 {
        let mut sum = 0.0;
        for (number, turn) in self.turns(0).enumerate() {
            for message in 0..BATCH {
                let pick = learner.pick(self.len, self.open());
                let cost = turn.iter().find(|cost| cost.path == pick.path).unwrap();
                if let Some(told) = cost.told.get(message) {
                    learner.observe(pick.path, self.len, *told);
                }
                sum += if number >= from { cost.took } else { 0.0 };
            }
        }
        sum / (BATCH * self.turns(from).count()) as f64
    }
}

/// The models to begin with: usual ones, and some that are wrong about the one or the other path.
fn models() -> Vec<CostModel> {
    let usual = CostModel::DEFAULT;
    let times = |line: crate::policy::route::Line, factor: f64| crate::policy::route::Line {
        base_ns: line.base_ns * factor,
        ns_per_byte: line.ns_per_byte * factor,
    };
    let mut models = vec![usual];
    for factor in [0.5, 2.0] {
        models.push(CostModel { eager: times(usual.eager, factor), ..usual });
        models.push(CostModel { cma: times(usual.cma, factor), ..usual });
        models.push(CostModel { mapped: times(usual.mapped, factor), ..usual });
    }
    models
}

/// Assumption: the path with the least reported time is the one by which users wait least, or about
/// as good. Medians of the reported times stand for means of the times that users wait.
#[test]
fn what_is_told_puts_paths_in_the_order_of_what_users_take() {
    for (name, trace) in all() {
        let means = trace.means(0);
        let best = means.iter().map(|(_, mean)| *mean).fold(f64::MAX, f64::min);
        let median = |at: usize| {
            let mut told: Vec<u64> =
                trace.turns.iter().flat_map(|turn| turn[at].told.iter().copied()).collect();
            told.sort_unstable();
            told[told.len() / 2]
        };
        let chosen = (0..means.len()).min_by_key(|at| median(*at)).unwrap();
        let (path, mean) = means[chosen];
        assert!(mean <= BOUND * best, "{name}: {path:?} is told to be best: {means:?}");
    }
}

#[test]
fn the_best_path_is_found_in_a_hundred_messages() {
    for (name, trace) in all() {
        let from = FOUND / BATCH;
        let means = trace.means(from);
        let best = means.iter().map(|(_, mean)| *mean).fold(f64::MAX, f64::min);
        for model in models() {
            let took = trace.replay(&mut Learner::new(&model), from);
            // The path tried most is the one that the model took to be best.
            let bound = if model == CostModel::DEFAULT { BOUND } else { BOUND_MISLED };
            assert!(took <= bound * best, "{name}: {took} by choice, {means:?}, from {model:?}");
        }
    }
}

/// A machine that changes: a trace of another pattern or distance follows, in which another path
/// may be the best one, or the same at other costs. Some hundred messages later the choice is as
/// good as before.
#[test]
fn a_change_of_the_machine_is_followed() {
    /// Turns: 240 messages, 2 ms of them at 64 KiB.
    const FOLLOWED: usize = 60;
    let all = all();
    for (one, first) in &all {
        let alike = |it: &Trace| it.len == first.len && it.open() == first.open();
        for (other, second) in all.iter().filter(|(_, it)| alike(it)) {
            let mut learner = Learner::new(&CostModel::DEFAULT);
            first.replay(&mut learner, 0);
            let best = second.means(FOLLOWED).iter().map(|it| it.1).fold(f64::MAX, f64::min);
            let took = second.replay(&mut learner, FOLLOWED);
            assert!(took <= 1.1 * best, "{one}, then {other}: {took} by choice, {best} at best");
        }
    }
}

/// If the stall of a receiver were reported for many messages, as an average would be, it would
/// drive the sender away from the best path: the learner cannot make up for wrong reports.
#[test]
fn an_average_over_messages_would_miss_the_bound() {
    let (_, trace) = all().into_iter().find(|(name, _)| *name == "stream-heap-64k").unwrap();
    let mut averaged = trace.clone();
    let mut smooth = 0;
    for (number, turn) in averaged.turns.iter_mut().enumerate() {
        let eager = turn.iter_mut().find(|cost| cost.path == Path::Eager).unwrap();
        for (message, told) in eager.told.iter_mut().enumerate() {
            // Every 200th message has a stall of 2 ms.
            let stalled = number % 50 == 10 && message == 0;
            let took = if stalled { 2_000_000 } else { *told };
            smooth = if smooth == 0 { took } else { (3 * smooth + took) / 4 };
            *told = smooth;
        }
    }
    let best = trace.means(25).iter().map(|it| it.1).fold(f64::MAX, f64::min);
    let took = averaged.replay(&mut Learner::new(&CostModel::DEFAULT), 25);
    assert!(took > BOUND * best, "{took} by choice, {best} at best");
}
