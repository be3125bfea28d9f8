//! All turns: each round goes through all cells, and through all contestants within each, in
//! another order every time.

use std::time::{Duration, Instant};

use pinfold_sys::shuffle::Shuffle;

use super::{
    answer::Order,
    args::Wish,
    cell::{Cell, Contestant},
    contestant,
    findings::Findings,
    ground::Ground,
    judge::{self, Samples, Turn},
    tool,
};
use crate::{
    class::Class,
    console::progress,
    cores,
    fail::{Fail, Result},
    machine::Machine,
    pair::Pair,
    stage::Stage,
    subject::Bench,
    watchdog,
};

/// The least rounds, as long as there is time at all.
const ROUNDS_MIN: u32 = 3;
/// Bounds of the time that one turn takes.
const TURN_MIN: Duration = Duration::from_millis(10);
const TURN_MAX: Duration = Duration::from_millis(150);

/// The hops before and after, nanoseconds, and picoseconds of messages.
type Measured = ((f64, f64), Vec<u64>);

/// The first process's state.
struct Runner<'a> {
    pair: &'a mut Pair,
    stage: &'a mut Stage,
    ground: &'a Ground,
    benches: Vec<(Contestant, Box<dyn Bench>)>,
    /// By cell.
    cells: Vec<(Cell, Vec<Samples>)>,
    /// The provider that carries a contestant's messages.
    providers: Vec<(Contestant, String)>,
    runs: u64,
    hops_ns: Vec<f64>,
    doing: String,
}

/// Measures the wish.
///
/// # Errors
/// The first failure: no measurement before a wrong byte or a death is trusted.
pub(super) fn measure(
    pair: &mut Pair,
    stage: &mut Stage,
    ground: &Ground,
    wish: &Wish,
    start: Instant,
) -> Result<Findings> {
    let mut runner = Runner {
        pair,
        stage,
        ground,
        benches: Vec::new(),
        cells: Vec::new(),
        providers: Vec::new(),
        runs: 0,
        hops_ns: Vec::new(),
        doing: String::new(),
    };
    let done = runner.all(wish, start);
    let Runner { pair, cells, providers, mut hops_ns, doing, .. } = runner;
    let mut notes = done.map_err(|why| pair.explain(why, &doing))?;
    pair.tell(&Order::Quit)?;
    pair.finish();
    hops_ns.sort_by(f64::total_cmp);
    let mut found = Findings {
        machine: Machine::look(pair.cores()),
        hosts: wish.hosts,
        ground: ground.says(),
        rows: cells.iter().flat_map(|(cell, all)| judge::rows(cell, all)).collect(),
        hop_ns: hops_ns.get(hops_ns.len() / 2).copied().unwrap_or(0.0),
        providers,
        notes: Vec::new(),
        took: start.elapsed(),
    };
    notes.extend(found.reasons());
    found.notes = notes;
    Ok(found)
}

impl Runner<'_> {
    /// Makes all turns; returns the notes that the reader must see.
    fn all(&mut self, wish: &Wish, start: Instant) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        if cores::only_one(self.pair.cores()) {
            notes.push(
                "both processes share one core: every message waits for a switch between them, \
                 and these figures say little about a machine with two"
                    .into(),
            );
        }
        let absent = self.set_up(wish)?;
        for &cell in &wish.cells {
            let samples = absent.iter().map(|(who, why)| Samples::new(*who, why.clone()));
            self.cells.push((cell, samples.collect()));
        }
        let turns = self.cells.len() * Contestant::ALL.len();
        let bar = progress::steps(u64::from(wish.rounds) * turns as u64);
        let (mut rng, mut rounds) = (Shuffle::new(), 0);
        while rounds < wish.rounds {
            let left = wish.time.saturating_sub(start.elapsed());
            let share = left / (wish.rounds - rounds) / turns as u32;
            // A round that would come out much too short is left out.
            let late = rounds > 0 && left.is_zero();
            if late || rounds >= ROUNDS_MIN && share < TURN_MIN {
                break;
            }
            let share = share.clamp(TURN_MIN, TURN_MAX);
            for at in 0..self.cells.len() {
                let mut order: Vec<usize> = (0..self.cells[at].1.len()).collect();
                rng.shuffle(&mut order);
                for who in order {
                    if rounds > 0 && start.elapsed() >= wish.time {
                        break;
                    }
                    bar.set_message(self.cells[at].0.to_string());
                    self.turn(at, who, share)?;
                    bar.inc(1);
                }
            }
            rounds += 1;
        }
        bar.finish_and_clear();
        if rounds < wish.rounds {
            notes.push(format!(
                "there was time for {rounds} of {} rounds only: the machine is busy, or --seconds \
                 allows too few",
                wish.rounds
            ));
        }
        Ok(notes)
    }

    /// Sets all contestants up; returns the reasons for those that are absent.
    fn set_up(&mut self, wish: &Wish) -> Result<Vec<(Contestant, Option<String>)>> {
        let at = self.ground.address();
        let mut all = Vec::new();
        for who in Contestant::ALL {
            if who == Contestant::Encrypted && !wish.encrypted {
                continue;
            }
            if who.is_foreign() && !wish.tools {
                all.push((who, Some("--no-tools leaves it out".into())));
                continue;
            }
            if who.is_tool() {
                all.push((who, tool::lacks(self.ground)));
                continue;
            }
            self.doing = format!("the set-up of {}", who.name());
            let _busy = watchdog::busy(&self.doing);
            self.pair.tell(&Order::SetUp(who, at))?;
            match self.pair.set_up_here(|pair| contestant::set_up(who, at, pair))? {
                Ok(bench) => {
                    self.providers.extend(bench.provider().map(|provider| (who, provider)));
                    self.benches.push((who, bench));
                    all.push((who, None));
                }
                Err(why) => all.push((who, Some(why))),
            }
        }
        if self.benches.is_empty() {
            let why = all.iter().find_map(|(_, why)| why.clone()).unwrap_or_default();
            return Err(Fail::Said(format!("nothing can be measured here: {why}")));
        }
        Ok(all)
    }

    /// One turn of one contestant in one cell.
    fn turn(&mut self, at: usize, who: usize, share: Duration) -> Result<()> {
        let (cell, samples) = (self.cells[at].0, &self.cells[at].1[who]);
        if samples.absent.is_some() {
            return Ok(());
        }
        let name = samples.who;
        self.doing = format!("{cell} by {}", name.name());
        let expected = (samples.times.count() > 0).then(|| samples.times.median());
        let turn = if name.is_tool() {
            self.tool(&cell, expected, share)?
        } else {
            self.bench(name, &cell, expected, share).map(Ok)?
        };
        let samples = &mut self.cells[at].1[who];
        match turn {
            Ok((hops_ns, times)) => {
                self.hops_ns.push(hops_ns.0);
                times.iter().for_each(|&ps| samples.times.add(ps, 1));
                let (all, count) = (times.iter().map(|&ps| ps as f64).sum::<f64>(), times.len());
                let ns = all.max(1.0) / count.max(1) as f64 / 1e3;
                let class = Class::of(hops_ns.0, hops_ns.1);
                samples.turns.push(Some(Turn { ns, class }));
            }
            Err(why) => {
                samples.turns.push(None);
                // A contestant that failed is not tried again.
                samples.absent = Some(why);
            }
        }
        Ok(())
    }

    fn bench(
        &mut self,
        who: Contestant,
        cell: &Cell,
        expected: Option<u64>,
        share: Duration,
    ) -> Result<Measured> {
        // Only contestants that were set up have turns.
        let subject = self.benches.iter().position(|bench| bench.0 == who).unwrap_or(0);
        let expected = match expected {
            Some(ps) => ps,
            None => {
                let (_, times) = self.run(subject, cell, None, share)?;
                times.last().copied().unwrap_or(1)
            }
        };
        self.run(subject, cell, Some(expected), share)
    }

    fn run(
        &mut self,
        subject: usize,
        cell: &Cell,
        expected: Option<u64>,
        share: Duration,
    ) -> Result<Measured> {
        self.runs += 1;
        let spec = cell.spec(subject, self.runs, expected, share);
        let (who, bench) = &mut self.benches[subject];
        self.stage.label = who.name().into();
        self.stage.allow(4 * share);
        let busy = watchdog::busy(&self.doing);
        self.pair.tell(&Order::Run(spec.clone()))?;
        let outcome = bench.run(self.stage, &spec)?;
        self.pair.wait_done()?;
        drop(busy);
        Ok((outcome.hops_ns, outcome.times))
    }

    /// The same of a program; the inner error is the reason why it has none.
    fn tool(
        &mut self,
        cell: &Cell,
        expected: Option<u64>,
        share: Duration,
    ) -> Result<Result<Measured, String>> {
        let before = self.hop()?;
        let core = self.pair.cores()[1];
        let expected = expected.map(|ps| ps as f64 / 1e3);
        let run = tool::run(cell, self.ground, core, expected, share);
        let after = self.hop()?;
        Ok(run.map(|ns| ((before, after), vec![(ns * 1e3) as u64])))
    }

    fn hop(&mut self) -> Result<f64> {
        self.pair.tell(&Order::Hop)?;
        self.stage.sync.hop_ns()
    }
}
