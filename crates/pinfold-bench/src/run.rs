//! The first process: gives every subject its turns, and collects the results.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    bench,
    class::Class,
    fail::{Fail, Result},
    findings::Ledger,
    load::{self, Meter},
    machine::{self, Machine},
    neighbour::Neighbour,
    pace,
    pair::Pair,
    plan::{self, Budget, Made, Step, Turn, Wish},
    stage::Stage,
    stats::Samples,
    subject::Bench,
    terms::{Cell, Group, Id, Memory, Outcome, Setting, Spec, What},
    twin::Twin,
    units, watchdog,
};
use crate::console::progress;

/// Time beyond a step's share that is worth a note.
const HELD_UP: Duration = Duration::from_secs(3);

/// Usual sizes up to this, bytes, are not left out for want of memory: a subject that cannot have
/// that much gets an error.
const LONG_BYTES: usize = 1 << 20;

/// The first process's state.
struct Runner<'a> {
    pair: &'a mut Pair,
    stage: &'a mut Stage,
    ledger: &'a Ledger,
    subjects: Vec<(Made, Box<dyn Bench>)>,
    /// The third process, once it has been needed.
    neighbour: Option<Neighbour>,
    /// The other pair, once it has been needed.
    twin: Option<Twin>,
    /// Picoseconds a message took when last measured.
    expected: HashMap<(Cell, Id), u64>,
    runs: u64,
    /// The current task, for errors.
    doing: String,
}

/// Measures the wish within `time`, and adds the results to `ledger`.
///
/// # Errors
/// The first failure: no measurement before a wrong byte or a death is trusted.
pub(crate) fn measure(
    pair: &mut Pair,
    stage: &mut Stage,
    wish: &Wish,
    time: Duration,
    ledger: &Ledger,
) -> Result<()> {
    let mut runner = Runner {
        pair,
        stage,
        ledger,
        subjects: Vec::new(),
        neighbour: None,
        twin: None,
        expected: HashMap::new(),
        runs: 0,
        doing: String::new(),
    };
    let done = runner.all(wish, Budget::new(time));
    let doing = std::mem::take(&mut runner.doing);
    match done {
        Ok(()) => {
            pair.finish();
            Ok(())
        }
        Err(why) => Err(pair.explain(why, &doing)),
    }
}

impl Runner<'_> {
    fn all(&mut self, wish: &Wish, budget: Budget) -> Result<()> {
        let cores = self.pair.cores();
        let one_core = super::cores::only_one(cores);
        self.ledger.add(|findings| {
            findings.machine = Machine::look(cores);
            findings.conditions.one_core = one_core;
        });
        if one_core {
            self.note(
                "both processes share one core: every message waits for a switch between them, \
                 and these figures say little about a machine with two"
                    .into(),
            );
        }
        let wish = &self.within_memory(wish)?;
        self.set_up(wish)?;
        let (stolen_before, began) = (load::stolen_ns(cores), Instant::now());
        let made: Vec<Made> = self.subjects.iter().map(|(made, _)| *made).collect();
        let steps = plan::steps(wish, &made);
        let bar = progress::steps(steps.len() as u64);
        let (mut skipped, mut ready_bytes) = (0, 0);
        for (at, step) in steps.iter().enumerate() {
            let allowance = match budget.next(self.ledger.elapsed(), &steps, at, ready_bytes) {
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
            let began = Instant::now();
            self.step(step, allowance)?;
            let took = began.elapsed();
            // A guess at the least time of a turn, which is not often twice as long.
            let expected = allowance.max(2 * plan::least(step.cell.size, ready_bytes));
            if took > expected + HELD_UP {
                self.note(format!(
                    "{} once took {} in place of {:.1}: the machine was busy, or one of the \
                     processes was held up",
                    self.doing,
                    units::seconds(took),
                    expected.as_secs_f64()
                ));
            }
            ready_bytes = ready_bytes.max(step.cell.size);
            bar.inc(1);
        }
        bar.finish_and_clear();
        let stolen = load::stolen_ns(cores).zip(stolen_before);
        let stolen = stolen.map(|(after, before)| after.saturating_sub(before));
        let took_ns = began.elapsed().as_nanos() as u64;
        self.ledger.add(|findings| findings.conditions.stolen = stolen.map(|ns| (ns, took_ns)));
        if skipped == steps.len() {
            return Err(Fail::Said(
                "there is no time to measure anything: allow more --seconds or ask for smaller \
                 --sizes"
                    .into(),
            ));
        }
        if skipped > 0 {
            self.note(format!(
                "there was no time for {skipped} of {} turns, so some rows rest on fewer rounds or \
                 are missing: the machine is busy, or --seconds allows too few",
                steps.len()
            ));
        }
        Ok(())
    }

    /// The wish, as far as there is memory: of the usual sizes those that fit.
    fn within_memory(&self, wish: &Wish) -> Result<Wish> {
        let mut wish = wish.clone();
        let Some(free) = machine::available_bytes() else { return Ok(wish) };
        let mut left_out = None;
        loop {
            let (needed, longest) = memory_needed(&wish);
            if needed <= free {
                break;
            }
            if !wish.sizes.is_empty() || longest <= LONG_BYTES {
                return Err(Fail::Said(format!(
                    "messages of {} need {} of memory and {} are free; ask for smaller --sizes",
                    units::bytes(longest),
                    units::gibibytes(needed),
                    units::gibibytes(free)
                )));
            }
            wish.size_max = longest - 1;
            left_out = Some(longest);
        }
        if let Some(size) = left_out {
            let size = units::bytes(size);
            self.note(format!("messages of {size} and more are left out for want of memory"));
        }
        Ok(wish)
    }

    /// Has the reader told.
    fn note(&self, note: String) {
        self.ledger.add(|findings| findings.notes.push(note));
    }

    fn set_up(&mut self, wish: &Wish) -> Result<()> {
        let mut missing = Vec::new();
        for made in wish.made() {
            let (id, setting) = made;
            self.doing = format!("the set-up of {id}{}", under(setting));
            let _busy = watchdog::busy(&self.doing);
            match self.pair.set_up(made, |pair| bench::set_up(made, pair))? {
                Ok(bench) => self.subjects.push((made, bench)),
                Err(why) => {
                    missing.push(format!("{id}{} cannot be measured here: {why}", under(setting)));
                }
            }
        }
        if self.subjects.is_empty() {
            return Err(Fail::Said(format!(
                "nothing can be measured here: {}",
                missing.join("; ")
            )));
        }
        missing.into_iter().for_each(|note| self.note(note));
        Ok(())
    }

    /// One turn of one subject.
    fn step(&mut self, step: &Step, allowance: Duration) -> Result<()> {
        let Step { cell, subject: id, .. } = *step;
        // Only subjects that were set up are in the plan.
        let subject = self.subjects.iter().position(|(at, _)| *at == step.made()).unwrap_or(0);
        let began = Instant::now();
        let (outcome, samples) = match self.expected.get(&(cell, id)) {
            Some(&ps) => self.measure(cell, subject, ps, allowance)?,
            None => {
                let trial = pace::trial(cell, (subject, id.memory), self.next_run());
                let (outcome, samples) = self.run(&trial, allowance)?;
                match allowance.checked_sub(began.elapsed()) {
                    Some(left) => {
                        let ps = samples.ps.last().copied().unwrap_or(1);
                        self.measure(cell, subject, ps, left)?
                    }
                    // The step has taken all the time there was: then it counts.
                    None => (outcome, samples),
                }
            }
        };
        let (before, after) = outcome.hops_ns;
        let settled = !cell.setting.is_crowded();
        let class = if settled { Class::of(before, after) } else { Class::Mixed };
        self.ledger.add(|findings| {
            findings.hops_ns.extend(settled.then_some(before));
            findings.collected.add(cell, id, class, &samples);
            if let Some(path) = outcome.path {
                findings.collected.note_path(cell, id, path);
            }
        });
        if let Some(median) = samples.median() {
            self.expected.insert((cell, id), median);
        }
        Ok(())
    }

    /// One run of about `allowance`, where a message is expected to take `ps` picoseconds.
    fn measure(
        &mut self,
        cell: Cell,
        subject: usize,
        ps: u64,
        allowance: Duration,
    ) -> Result<(Outcome, Samples)> {
        let memory = self.subjects[subject].0.0.memory;
        let spec = pace::measure(cell, (subject, memory), self.next_run(), ps, allowance);
        self.run(&spec, allowance)
    }

    /// Both processes do one run, which ends when `allowance` does, or with the sample after that.
    fn run(&mut self, spec: &Spec, allowance: Duration) -> Result<(Outcome, Samples)> {
        let (made, bench) = &mut self.subjects[spec.subject];
        let (made, id) = (*made, made.0);
        self.stage.label = id.to_string().into();
        let busy = watchdog::busy(&self.doing);
        let unbound = spec.setting.is_unbound().then(|| self.pair.unbind());
        let burning = match spec.setting {
            Setting::Neighbour => Some(third(&mut self.neighbour)?.burn()?),
            _ => None,
        };
        let twin = match spec.setting {
            Setting::Pairs => Some(twin(&mut self.twin, self.pair)?.begin(made, spec)?),
            _ => None,
        };
        // The set-up may have taken a while.
        self.stage.allow(pace::sampled(allowance));
        self.pair.order(spec)?;
        let (began, meter) = (Instant::now(), Meter::start());
        let mut outcome = bench.run(self.stage, spec)?;
        let (wall, load) = (began.elapsed(), meter.read());
        let (theirs, their_load) = self.pair.wait_done()?;
        drop((burning, twin, unbound, busy));
        if !spec.setting.is_crowded() {
            self.ledger.add(|findings| {
                findings.conditions.add(wall.as_nanos() as u64, [load, their_load]);
            });
        }
        let samples = match spec.what {
            // The other side's time is known of all messages together.
            What::Cpu => {
                let messages = outcome.messages.max(1);
                Samples { ps: vec![(outcome.cpu_ns + theirs) * 1000 / messages], messages }
            }
            _ => Samples { ps: std::mem::take(&mut outcome.times), messages: spec.per_sample },
        };
        Ok((outcome, samples))
    }

    fn next_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }
}

/// Bytes that both processes need for messages up to the longest, and the longest size.
fn memory_needed(wish: &Wish) -> (u64, usize) {
    let (cells, subjects) = (wish.cells(), wish.subjects());
    let longest = |wanted: &dyn Fn(&Id) -> bool| {
        let has = |cell: &&Cell| {
            subjects.iter().filter(|id| wanted(id)).any(|&id| wish.wants(**cell, id))
        };
        cells.iter().filter(has).map(|cell| cell.size as u64).max().unwrap_or(0)
    };
    // Each process has one message to send and one to receive into; in an arena the same, and one
    // more for the subject that it is measured against; and one that it gives away.
    let needed = 4 * longest(&|id| id.memory == Memory::Heap)
        + 6 * longest(&|id| id.group() == Some(Group::Arena))
        + 2 * longest(&|id| id.group() == Some(Group::Given));
    (needed, longest(&|_| true) as usize)
}

fn describe(step: &Step) -> String {
    let Step { cell, subject, .. } = step;
    let (what, size) = (cell.what.name(), units::bytes(cell.size));
    format!("{what} of {subject}, {size}{}", under(cell.setting))
}

/// The circumstances, if there is something to say of them.
fn under(setting: Setting) -> String {
    match setting {
        Setting::Alone => String::new(),
        other => format!(" ({})", other.name()),
    }
}

/// The third process, which is started when it is needed first.
fn third(neighbour: &mut Option<Neighbour>) -> Result<&mut Neighbour> {
    match neighbour {
        Some(there) => Ok(there),
        none => Ok(none.insert(Neighbour::start()?)),
    }
}

/// The other pair, which is started when it is needed first.
fn twin<'a>(twin: &'a mut Option<Twin>, pair: &Pair) -> Result<&'a Twin> {
    if twin.is_none() {
        // It binds itself, to any processor that this process might use.
        let _unbound = pair.unbind();
        *twin = Some(Twin::start(pair.cores())?);
    }
    twin.as_ref().ok_or(Fail::Gone)
}
