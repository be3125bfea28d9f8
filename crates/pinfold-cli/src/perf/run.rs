//! The first process: has every subject take its turns, and collects what comes out.

use std::{
    collections::HashMap,
    io::Write,
    time::{Duration, Instant},
};

use super::{
    args::Output,
    bench::{Outcome, Spec, Stage},
    class::Class,
    fail::{Fail, Result},
    machine::Machine,
    pace,
    pair::Pair,
    plan::{self, Budget, Cell, Step, Turn, What, Wish},
    record::Collected,
    subject::{Bench, Id},
    watchdog,
};
use crate::progress;

/// Everything that is known at the end.
pub(crate) struct Findings {
    pub(crate) machine: Machine,
    pub(crate) collected: Collected,
    /// Cache-line hops, nanoseconds, one before each run.
    pub(crate) hops_ns: Vec<f64>,
    /// Sentences the reader must see.
    pub(crate) notes: Vec<String>,
    pub(crate) touched: bool,
    pub(crate) took: Duration,
}

/// The first process's state.
struct Runner<'a> {
    pair: &'a mut Pair,
    stage: &'a mut Stage,
    subjects: Vec<(Id, Box<dyn Bench>)>,
    /// Picoseconds a message took when last measured.
    expected: HashMap<(Cell, Id), u64>,
    runs: u64,
    /// What is being done, for errors.
    doing: String,
}

/// Measures what is wished for, within `time` from `start`.
///
/// # Errors
/// The first failure: nothing that was measured before a wrong byte or a death is trusted.
pub(crate) fn measure(
    pair: &mut Pair,
    stage: &mut Stage,
    wish: &Wish,
    time: Duration,
    start: Instant,
    output: &Output,
) -> Result<Findings> {
    let mut runner = Runner {
        pair,
        stage,
        subjects: Vec::new(),
        expected: HashMap::new(),
        runs: 0,
        doing: String::new(),
    };
    let done = runner.all(wish, Budget::new(time), start, output);
    let doing = std::mem::take(&mut runner.doing);
    match done {
        Ok(findings) => {
            pair.finish();
            Ok(findings)
        }
        Err(why) => Err(pair.explain(why, &doing)),
    }
}

impl Runner<'_> {
    fn all(
        &mut self,
        wish: &Wish,
        budget: Budget,
        start: Instant,
        output: &Output,
    ) -> Result<Findings> {
        let mut notes = Vec::new();
        if super::cores::only_one(self.pair.cores()) {
            notes.push(
                "both processes share one core: every message waits for a switch between them, \
                 and these figures say little about a machine with two"
                    .into(),
            );
        }
        self.set_up(wish, &mut notes)?;
        let steps = plan::steps(wish, &self.subjects.iter().map(|(id, _)| *id).collect::<Vec<_>>());
        let bar = progress::steps(steps.len() as u64);
        let mut collected = Collected::default();
        let mut hops_ns = Vec::new();
        let (mut skipped, mut shown) = (0, None);
        for (at, step) in steps.iter().enumerate() {
            // A row's records go out when the next row begins.
            if let (true, Some(cell)) = (output.json, shown.filter(|&cell| cell != step.cell)) {
                print_json(&collected, cell)?;
            }
            shown = Some(step.cell);
            let allowance = match budget.next(start.elapsed(), &steps, at) {
                Turn::Take(allowance) => allowance,
                Turn::Skip => {
                    skipped += 1;
                    bar.inc(1);
                    continue;
                }
                Turn::Stop => {
                    skipped += steps.len() - at;
                    break;
                }
            };
            self.doing = describe(step);
            bar.set_message(self.doing.clone());
            self.step(step, allowance, &mut collected, &mut hops_ns)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        if let (true, Some(cell)) = (output.json, shown) {
            print_json(&collected, cell)?;
        }
        if skipped > 0 {
            notes.push(format!(
                "there was no time for {skipped} of {} turns, so some rows rest on fewer rounds or \
                 are missing: the machine is busy, or --seconds allows too few",
                steps.len()
            ));
        }
        let machine = Machine::look(self.pair.cores());
        let took = start.elapsed();
        Ok(Findings { machine, collected, hops_ns, notes, touched: wish.touched, took })
    }

    fn set_up(&mut self, wish: &Wish, notes: &mut Vec<String>) -> Result<()> {
        for id in wish.subjects() {
            self.doing = format!("the set-up of {id}");
            match self.pair.set_up(id)? {
                Ok(bench) => self.subjects.push((id, bench)),
                Err(why) => notes.push(format!("{id} cannot be measured here: {why}")),
            }
        }
        if self.subjects.is_empty() {
            return Err(Fail::Said(format!("nothing can be measured here: {}", notes.join("; "))));
        }
        Ok(())
    }

    /// One turn of one subject.
    fn step(
        &mut self,
        step: &Step,
        allowance: Duration,
        collected: &mut Collected,
        hops_ns: &mut Vec<f64>,
    ) -> Result<()> {
        let Step { cell, subject: id, .. } = *step;
        // Only subjects that were set up are in the plan.
        let subject = self.subjects.iter().position(|(at, _)| *at == id).unwrap_or(0);
        let began = Instant::now();
        let expected = match self.expected.get(&(cell, id)) {
            Some(&ps) => ps,
            None => {
                let trial = pace::trial(cell, subject, self.next_run());
                let (_, times) = self.run(&trial)?;
                times.last().copied().unwrap_or(1)
            }
        };
        let left = allowance.saturating_sub(began.elapsed());
        let spec = pace::measure(cell, subject, self.next_run(), expected, left);
        let (outcome, mut times) = self.run(&spec)?;
        let (before, after) = outcome.hops_ns;
        hops_ns.push(before);
        collected.add(cell, id, Class::of(before, after), &times);
        if let Some(path) = outcome.path {
            collected.note_path(cell, id, path);
        }
        times.sort_unstable();
        if let Some(&median) = times.get(times.len() / 2) {
            self.expected.insert((cell, id), median);
        }
        Ok(())
    }

    /// Both processes do one run. The times are picoseconds per message.
    fn run(&mut self, spec: &Spec) -> Result<(Outcome, Vec<u64>)> {
        let (id, bench) = &mut self.subjects[spec.subject];
        self.stage.label = id.to_string().into();
        self.pair.order(spec)?;
        let busy = watchdog::busy();
        let mut outcome = bench.run(self.stage, spec)?;
        drop(busy);
        let theirs = self.pair.wait_done()?;
        let times = match spec.what {
            What::Cpu => {
                let messages = (spec.samples * spec.per_sample).max(1);
                vec![(outcome.cpu_ns + theirs) * 1000 / messages]
            }
            _ => std::mem::take(&mut outcome.times),
        };
        Ok((outcome, times))
    }

    fn next_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }
}

fn describe(step: &Step) -> String {
    let Step { cell, subject, .. } = step;
    format!("{} of {subject}, {}", cell.what.name(), super::units::bytes(cell.size))
}

fn print_json(collected: &Collected, cell: Cell) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let fail = |source| Fail::Output { what: "the results".into(), source };
    for record in collected.records_of(cell) {
        let line = serde_json::to_string(&record).map_err(|why| Fail::Said(why.to_string()))?;
        writeln!(out, "{line}").map_err(fail)?;
    }
    out.flush().map_err(fail)
}
