//! What to run, in which order, and for how long. Nothing here does anything.
//!
//! Subjects take turns: each round goes through all measures and sizes, and through all subjects
//! within each, beginning with another one every time. So those that are compared run side by
//! side, and every row gets its share of whatever the machine is like meanwhile, near or far.

use std::time::Duration;

use super::terms::{Cell, Id, Kind, Route, What};

/// What the user wants measured.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) whats: Vec<What>,
    /// Message sizes in bytes; none means the usual ones of each measure.
    pub(crate) sizes: Vec<usize>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rounds: u32,
    pub(crate) touched: bool,
    pub(crate) quick: bool,
}

/// One turn of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) cell: Cell,
    pub(crate) subject: Id,
    pub(crate) round: u32,
}

impl Wish {
    /// Every subject that is wanted and can do something of what is wanted.
    pub(crate) fn subjects(&self) -> Vec<Id> {
        let mut all: Vec<Id> = Kind::ALL
            .into_iter()
            .filter(|&kind| kind != Kind::Pinfold && self.kinds.contains(&kind))
            .map(Id::plain)
            .collect();
        if self.kinds.contains(&Kind::Pinfold) {
            let routes = Route::ALL.into_iter().filter(|route| self.routes.contains(route));
            all.extend(routes.map(Id::pinfold));
        }
        let cells = self.cells();
        all.retain(|id| cells.iter().any(|cell| id.can(cell.what, cell.size)));
        all
    }

    /// Every row there will be.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let wanted = What::ALL.into_iter().filter(|what| self.whats.contains(what));
        wanted
            .flat_map(|what| {
                let mut sizes = match (what, self.sizes.is_empty()) {
                    // A rate of other than small messages is a bandwidth.
                    (What::Rate, _) | (_, true) => usual_sizes(what, self.quick).to_vec(),
                    (_, false) => self.sizes.clone(),
                };
                // Each once, whatever was asked for.
                sizes.sort_unstable();
                sizes.dedup();
                sizes.into_iter().map(move |size| Cell { what, size, touched: self.touched })
            })
            .collect()
    }
}

/// The message sizes that `what` is measured with unless others are asked for, bytes.
fn usual_sizes(what: What, quick: bool) -> &'static [usize] {
    const KI: usize = 1 << 10;
    const MI: usize = 1 << 20;
    match (what, quick) {
        (What::Latency, true) => &[8, KI, 4 * KI, 64 * KI, MI],
        (What::Latency, false) => &[8, 64, 256, KI, 4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 4 * MI],
        (What::Rate, _) => &[8],
        (What::Bandwidth, true) => &[4 * KI, 16 * KI, 64 * KI, MI, 4 * MI],
        (What::Bandwidth, false) => &[KI, 4 * KI, 16 * KI, 64 * KI, 256 * KI, MI, 4 * MI],
        (What::Bidirectional, true) => &[64 * KI, MI],
        (What::Bidirectional, false) => &[4 * KI, 64 * KI, MI],
        (What::Cpu, _) => &[8, 4 * KI, MI],
    }
}

/// The turns, in order, of those subjects that could be set up.
pub(crate) fn steps(wish: &Wish, subjects: &[Id]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut cells = wish.cells();
    // Short messages first: long ones may take all the time there is.
    cells.sort_by_key(|cell| cell.size);
    for round in 0..wish.rounds {
        for &cell in &cells {
            let able: Vec<Id> =
                subjects.iter().copied().filter(|id| id.can(cell.what, cell.size)).collect();
            let turns = able.iter().cycle().skip(round as usize % able.len().max(1));
            let turns = turns.take(able.len());
            steps.extend(turns.map(|&subject| Step { cell, subject, round }));
        }
    }
    steps
}

/// Shares the time among the steps: each gets the same part of what is left.
///
/// On a machine where steps take longer than they should, later ones get less, and the last ones
/// are left out: there are fewer rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    total: Duration,
}

/// What to do with the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Take this long for it.
    Take(Duration),
    /// It would take longer than what is left: leave it out.
    Skip,
    /// All the time is up.
    Stop,
}

/// The most one step takes: more samples would not say more.
const STEP_MAX: Duration = Duration::from_millis(250);
/// The least a step is worth doing for, as long as there is time at all.
const STEP_MIN: Duration = Duration::from_millis(1);

impl Budget {
    /// `total` for everything.
    pub(crate) const fn new(total: Duration) -> Budget {
        Budget { total }
    }

    /// What to do with `steps[at]` when `elapsed` has passed and there is memory for messages of
    /// `ready_bytes` already.
    pub(crate) fn next(
        &self,
        elapsed: Duration,
        steps: &[Step],
        at: usize,
        ready_bytes: usize,
    ) -> Turn {
        if elapsed >= self.total {
            return Turn::Stop;
        }
        let left = self.total - elapsed;
        if left < least(steps[at].cell.size, ready_bytes) {
            return Turn::Skip;
        }
        let share = left / u32::try_from(steps.len() - at).unwrap_or(u32::MAX);
        Turn::Take(share.clamp(STEP_MIN, STEP_MAX).min(left))
    }
}

/// What a turn with a single message of `size` bytes takes, with writing and checking and, the
/// first time, memory for it: a guess, which matters for messages of many megabytes only.
pub(crate) fn least(size: usize, ready_bytes: usize) -> Duration {
    let ns_per_byte = if size > ready_bytes { 10 } else { 3 };
    Duration::from_nanos(size as u64 * ns_per_byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish() -> Wish {
        Wish {
            whats: What::ALL.to_vec(),
            sizes: vec![],
            kinds: Kind::ALL.to_vec(),
            routes: Route::ALL.to_vec(),
            rounds: 5,
            touched: false,
            quick: true,
        }
    }

    #[test]
    fn subjects_take_turns() {
        let wish = wish();
        let subjects = wish.subjects();
        let steps = steps(&wish, &subjects);
        assert_eq!(subjects.len(), 11);
        // Every round has every row once, in order.
        let mut rows: Vec<_> = steps.iter().map(|step| (step.round, step.cell)).collect();
        rows.dedup();
        let mut cells = wish.cells();
        cells.sort_by_key(|cell| cell.size);
        let expected = (0..5).flat_map(|round| cells.iter().map(move |&cell| (round, cell)));
        assert!(rows.into_iter().eq(expected));
        for cell in cells {
            let here: Vec<_> = steps.iter().filter(|step| step.cell == cell).collect();
            let able = subjects.iter().filter(|id| id.can(cell.what, cell.size)).count();
            assert_eq!(here.len(), able * 5, "{cell:?}");
            for (at, round) in here.chunks(able).enumerate() {
                // Each row has every subject once, and starts with another one.
                let mut ids: Vec<_> = round.iter().map(|step| step.subject).collect();
                if at > 0 && able > 1 {
                    assert_ne!(ids[0], here[(at - 1) * able].subject);
                }
                ids.sort();
                ids.dedup();
                assert_eq!(ids.len(), able);
            }
        }
    }

    #[test]
    fn only_what_makes_sense_is_planned() {
        let wish = wish();
        for step in steps(&wish, &wish.subjects()) {
            let Step { cell, subject, .. } = step;
            match (subject.kind, subject.route) {
                (Kind::Line, _) => assert_eq!((cell.what, cell.size), (What::Latency, 8)),
                (_, Some(Route::Inline)) => assert!(cell.size <= 56),
                (Kind::Ring, _) => assert_ne!(cell.what, What::Cpu),
                _ => {}
            }
        }
    }

    #[test]
    fn wishes_are_kept() {
        let wish = Wish {
            whats: vec![What::Rate, What::Latency],
            sizes: vec![100, 100],
            kinds: vec![Kind::Pinfold, Kind::Pipe],
            routes: vec![Route::Inline],
            ..wish()
        };
        let cells: Vec<_> = wish.cells().iter().map(|cell| (cell.what, cell.size)).collect();
        assert_eq!(cells, [(What::Latency, 100), (What::Rate, 8)]);
        assert_eq!(wish.subjects(), [Id::plain(Kind::Pipe), Id::pinfold(Route::Inline)]);
        assert!(steps(&wish, &[]).is_empty());
    }

    /// Runs the whole plan where each step takes `slowness` times what it should, and at least
    /// `shortest`. What passed, and the rounds that were done.
    fn simulate(total: Duration, slowness: f64, shortest: Duration) -> (Duration, u32) {
        let (wish, budget) = (wish(), Budget::new(total));
        let steps = steps(&wish, &wish.subjects());
        let mut elapsed = Duration::ZERO;
        for (at, step) in steps.iter().enumerate() {
            match budget.next(elapsed, &steps, at, 0) {
                Turn::Take(share) => {
                    assert!(share <= STEP_MAX && elapsed + share <= total);
                    elapsed += share.mul_f64(slowness).max(shortest);
                }
                Turn::Skip => {}
                Turn::Stop => return (elapsed, step.round),
            }
        }
        (elapsed, wish.rounds)
    }

    #[test]
    fn the_budget_is_kept() {
        let total = Duration::from_secs(25);
        // As planned: all rounds, all of the time and no more.
        let (elapsed, rounds) = simulate(total, 1.0, Duration::ZERO);
        assert!(elapsed <= total && elapsed > total.mul_f64(0.9), "{elapsed:?}");
        assert_eq!(rounds, 5);
        // Twice as slow, or with a great least: fewer rounds, but some for every row.
        for (slowness, shortest) in [(2.0, 0), (1.0, 100)] {
            let (elapsed, rounds) = simulate(total, slowness, Duration::from_millis(shortest));
            assert!(elapsed <= total + Duration::from_millis(500), "{elapsed:?}");
            assert!(rounds >= 1);
        }
        // Hopelessly slow: it ends all the same.
        let (elapsed, _) = simulate(total, 1.0, Duration::from_secs(2));
        assert!(elapsed <= total + Duration::from_secs(2));
    }

    #[test]
    fn what_cannot_end_in_time_is_not_begun() {
        let wish = Wish { sizes: vec![8, 1 << 30], whats: vec![What::Latency], ..wish() };
        let steps = steps(&wish, &wish.subjects());
        let budget = Budget::new(Duration::from_secs(25));
        let long = steps.iter().position(|step| step.cell.size == 1 << 30).unwrap();
        let next =
            |seconds, at, ready| budget.next(Duration::from_secs(seconds), &steps, at, ready);
        assert!(matches!(next(10, long, 0), Turn::Take(_)));
        assert_eq!(next(18, long, 0), Turn::Skip);
        assert!(matches!(next(18, long, 1 << 30), Turn::Take(_)));
        assert_eq!(next(24, long, 1 << 30), Turn::Skip);
        assert!(matches!(next(24, 0, 0), Turn::Take(_)));
    }

    #[test]
    fn nothing_goes_on_after_the_end() {
        let wish = wish();
        let steps = steps(&wish, &wish.subjects());
        let budget = Budget::new(Duration::from_secs(25));
        assert_eq!(budget.next(Duration::from_secs(25), &steps, 0, 0), Turn::Stop);
        assert_eq!(budget.next(Duration::from_secs(99), &steps, 0, 0), Turn::Stop);
        let last = budget.next(Duration::from_micros(24_999_900), &steps, 0, 0);
        assert_eq!(last, Turn::Take(Duration::from_micros(100)));
    }
}
