//! One run of one subject: warm-up, probe, the timed part, probe, check. Both processes execute
//! [`run`] with the same [`Spec`] at the same time. Between samples the first process looks at
//! the clock, so that a run on a busy machine ends in time all the same.
//!
//! Payloads. Untouched: the memory is written before and checked after each run, outside the timed
//! part, and stays as it is in between. Touched: every message is written anew before it is sent,
//! and read and checked after it has arrived; the time for that is not counted, its effect on the
//! caches is.

use std::time::{Duration, Instant};

use pinfold_sys::cpu::clock;
use rustix::time::{ClockId, clock_gettime};

use super::{
    fail::Result,
    pair::Pair,
    plan::Made,
    stage::Stage,
    stats,
    subject::{
        Bench, Subject, Waiting,
        active::Active,
        cma::Cma,
        handoff::Handoff,
        line::Line,
        many::Many,
        mapping::Mapping,
        memcpy::Memcpy,
        pinfold::{self, Pinfold},
        pipe,
        region::Region,
        ring::Ring,
        space::Space,
        tcp, unix,
    },
    terms::{Kind, Outcome, Route, Setting, Side, Spec, What},
    verify,
};

/// Sets this side of a subject up, talking to the other side, which does the same.
///
/// # Errors
/// The reason why the subject cannot be had here; the others still can.
pub(crate) fn set_up((id, setting): Made, pair: &mut Pair) -> Result<Box<dyn Bench>> {
    // Threads that are started here may move, too.
    let _unbound = setting.is_unbound().then(|| pair.unbind());
    if setting == Setting::Peers {
        return Ok(match id.kind {
            Kind::Pipe => Box::new(Many::of(|_| pipe::set_up(pair))?),
            Kind::Unix => Box::new(Many::of(|_| unix::set_up(pair))?),
            Kind::Tcp => Box::new(Many::of(|_| tcp::set_up(pair))?),
            _ => Box::new(pinfold::many(pair, id)?),
        });
    }
    Ok(match id.kind {
        Kind::Line => Box::new(Line::set_up(pair)?),
        Kind::Ring => Box::new(Ring::set_up(pair)?),
        Kind::Mapping => Box::new(Mapping::set_up(pair)?),
        Kind::Memcpy => Box::new(Memcpy),
        Kind::Cma => Box::new(Cma::set_up(pair)?),
        Kind::CmaWrite => Box::new(Space::bare(pair)?),
        Kind::Pipe => Box::new(pipe::set_up(pair)?),
        Kind::Unix => Box::new(unix::set_up(pair)?),
        Kind::Tcp => Box::new(tcp::set_up(pair)?),
        Kind::Pinfold => match id.route {
            Some(Route::Handoff) => Box::new(Handoff::set_up(pair, id)?),
            Some(Route::Active) => Box::new(Active::set_up(pair, id)?),
            Some(route) if route.is_by_address() => Box::new(Space::set_up(pair, id)?),
            Some(route) if route.is_one_sided() => Box::new(Region::set_up(pair, id)?),
            _ => Box::new(Pinfold::set_up(pair, id, setting)?),
        },
    })
}

impl<S: Subject> Bench for S {
    fn run(&mut self, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
        run(self, stage, spec)
    }

    fn provider(&self) -> Option<String> {
        Subject::provider(self)
    }
}

/// Processor time this process has used, nanoseconds: the sum that `getrusage(2)` reports, to
/// the nanosecond.
pub(crate) fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// This side's part of one run.
pub(super) fn run<S: Subject>(subject: &mut S, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
    let memories = spec.memories();
    stage.out.shape(spec.size, memories, spec.memory)?;
    stage.into.shape(spec.size, memories, spec.memory)?;
    let side = stage.sync.side;
    stage.out.fill(spec.first_number(side));
    let asleep = spec.what == What::Cpu || spec.setting.is_asleep();
    subject.set_waiting(if asleep { Waiting::Sleep } else { Waiting::Spin })?;
    subject.set_setting(spec.setting)?;
    stage.sync.barrier()?;

    let mut outcome = Outcome::default();
    match spec.what {
        What::Latency => latency(subject, stage, spec, &mut outcome)?,
        What::Bandwidth | What::Rate => stream(subject, stage, spec, &mut outcome, one_way)?,
        What::Bidirectional => stream(subject, stage, spec, &mut outcome, both_ways)?,
        What::Cpu => cpu(subject, stage, spec, &mut outcome)?,
    }

    let receives = matches!(spec.what, What::Latency | What::Bidirectional) || !stage.is_first();
    if receives && subject.carries_bytes() && !spec.touched {
        // Every burst begins with the first memory again.
        let used = spec.per_sample as usize;
        let checked = stage.into.check(spec.first_number(side.other()), used);
        checked.map_err(|wrong| stage.wrong(spec, wrong))?;
    }
    outcome.path = subject.path_taken();
    subject.set_setting(Setting::Alone)?;
    Ok(outcome)
}

/// The time from one message to the next in a paced run.
const PACE: Duration = Duration::from_millis(1);

/// Paces messages, if they are paced: the first process sleeps until the next one is due.
struct Pacer {
    /// The time at which it is due; `None` if messages follow each other.
    due: Option<Instant>,
}

impl Pacer {
    fn new(spec: &Spec, stage: &Stage) -> Pacer {
        let paced = spec.setting == Setting::Paced && stage.is_first();
        Pacer { due: paced.then(Instant::now) }
    }

    /// Returns when the next message is due. After a late one that is not at once.
    #[inline]
    fn wait(&mut self) {
        if let Some(due) = &mut self.due {
            clock::pause(due.saturating_duration_since(Instant::now()));
            *due = Instant::now() + PACE;
        }
    }
}

/// The time of a hop between the cores, nanoseconds; none where it would tell of other processes.
/// Both sides get here.
fn probe(stage: &mut Stage, spec: &Spec) -> Result<f64> {
    if spec.setting.is_crowded() {
        return stage.sync.barrier().map(|()| 0.0);
    }
    stage.sync.hop_ns()
}

/// The number of samples in one part of a run: as many as planned, fewer when it takes too long.
///
/// The first process decides, one sample ahead, so that the second never waits for a decision.
struct Course {
    left: u64,
    /// First: the last decision.
    next: bool,
}

impl Course {
    /// Of at most `samples`, and at least one unless `samples` is 0.
    fn new(stage: &mut Stage, samples: u64) -> Course {
        let next = samples > 0;
        if stage.is_first() {
            stage.sync.grant(next);
        }
        Course { left: samples, next }
    }

    /// Returns whether there is another sample, which then begins.
    #[inline]
    fn goes_on(&mut self, stage: &mut Stage) -> Result<bool> {
        if !stage.is_first() {
            return stage.sync.granted();
        }
        if !self.next {
            return Ok(false);
        }
        self.left -= 1;
        self.next = self.left > 0 && !stage.is_late();
        stage.sync.grant(self.next);
        Ok(true)
    }
}

/// Messages to and fro. A sample is half the time of its round trips.
fn latency<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut touch = Touch::new(spec, stage);
    let mut pacer = Pacer::new(spec, stage);
    let mut course = Course::new(stage, spec.warm_up);
    while course.goes_on(stage)? {
        pacer.wait();
        round_trips(subject, stage, spec, &mut touch)?;
    }
    outcome.hops_ns.0 = probe(stage, spec)?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        pacer.wait();
        let ticks = round_trips(subject, stage, spec, &mut touch)?;
        if stage.is_first() {
            outcome.times.push(stats::ps(ticks) / (2 * spec.per_sample));
        }
    }
    outcome.hops_ns.1 = probe(stage, spec)?;
    Ok(())
}

/// The progress of writing and checking every single message.
struct Touch {
    active: bool,
    checks: bool,
    /// Numbers of the next messages out and in.
    out: u64,
    into: u64,
    /// Ticks spent on it: here (second side), or as last read from the other side (first).
    ticks: u64,
}

impl Touch {
    fn new(spec: &Spec, stage: &Stage) -> Touch {
        let side = stage.sync.side;
        let ticks = stage.sync.read_touch();
        let (out, into) = (spec.first_number(side), spec.first_number(side.other()));
        Touch { active: spec.touched, checks: true, out, into, ticks }
    }

    fn write(&mut self, stage: &mut Stage) {
        verify::fill(stage.out.get_mut(0), verify::seed(self.out));
        self.out += 1;
    }

    fn read(&mut self, stage: &Stage, spec: &Spec) -> Result<()> {
        let seed = verify::seed(self.into);
        self.into += 1;
        if !self.checks {
            return Ok(());
        }
        verify::check(stage.into.get(0), seed).map_err(|wrong| stage.wrong(spec, wrong))
    }
}

/// Does the round trips of one sample; the first side gets the ticks they took, less what either
/// side spent on writing and reading its payload.
#[inline]
fn round_trips<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    touch: &mut Touch,
) -> Result<u64> {
    if touch.active {
        touch.checks = subject.carries_bytes();
        return touched_round_trips(subject, stage, spec, touch);
    }
    let count = spec.per_sample;
    let start = clock::ticks();
    if stage.is_first() {
        for _ in 0..count {
            subject.send(stage.out.get(0))?;
            subject.recv(stage.into.get_mut(0))?;
        }
    } else {
        for _ in 0..count {
            subject.recv(stage.into.get_mut(0))?;
            subject.send(stage.out.get(0))?;
        }
    }
    Ok(clock::ticks() - start)
}

fn touched_round_trips<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    touch: &mut Touch,
) -> Result<u64> {
    let mut sum = 0;
    for _ in 0..spec.per_sample {
        if stage.is_first() {
            touch.write(stage);
            let start = clock::ticks();
            subject.send(stage.out.get(0))?;
            subject.recv(stage.into.get_mut(0))?;
            let ticks = clock::ticks() - start;
            touch.read(stage, spec)?;
            // The other side published this before it answered.
            let theirs = stage.sync.read_touch();
            sum += ticks.saturating_sub(theirs - touch.ticks);
            touch.ticks = theirs;
        } else {
            subject.recv(stage.into.get_mut(0))?;
            let start = clock::ticks();
            touch.read(stage, spec)?;
            touch.write(stage);
            touch.ticks += clock::ticks() - start;
            stage.sync.publish_touch(touch.ticks);
            subject.send(stage.out.get(0))?;
        }
    }
    Ok(sum)
}

/// One side's part of moving `count` messages.
type Flow<S> = fn(&mut S, &mut Stage, usize) -> Result<()>;

fn one_way<S: Subject>(subject: &mut S, stage: &mut Stage, count: usize) -> Result<()> {
    if stage.is_first() {
        subject.stream_out(&stage.out, count)
    } else {
        subject.stream_in(&mut stage.into, count)
    }
}

/// The same at a pace.
fn one_by_one<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    count: usize,
    pacer: &mut Pacer,
) -> Result<()> {
    for number in 0..count {
        pacer.wait();
        if stage.is_first() {
            subject.send(stage.out.get(number))?;
        } else {
            subject.recv(stage.into.get_mut(number))?;
        }
    }
    Ok(())
}

fn both_ways<S: Subject>(subject: &mut S, stage: &mut Stage, count: usize) -> Result<()> {
    subject.exchange(&stage.out, &mut stage.into, count)
}

/// Bursts of messages. A sample is a burst: from its beginning until the second side has said,
/// through a line that both map, that all of it has arrived.
fn stream<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    outcome: &mut Outcome,
    flow: Flow<S>,
) -> Result<()> {
    let mut number = 0;
    let mut course = Course::new(stage, spec.warm_up);
    while course.goes_on(stage)? {
        burst(subject, stage, spec, &mut number, flow)?;
    }
    outcome.hops_ns.0 = probe(stage, spec)?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        let ticks = burst(subject, stage, spec, &mut number, flow)?;
        if stage.is_first() {
            outcome.times.push(stats::ps(ticks) / spec.per_sample);
        }
    }
    outcome.hops_ns.1 = probe(stage, spec)?;
    Ok(())
}

/// One burst, the first of its messages `number` messages after the run's first.
fn burst<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    number: &mut u64,
    flow: Flow<S>,
) -> Result<u64> {
    let side = stage.sync.side;
    let count = spec.per_sample as usize;
    if spec.touched {
        stage.out.fill(spec.first_number(side) + *number);
        // Neither side starts before both have written.
        stage.sync.barrier()?;
    }
    let start = clock::ticks();
    flow(subject, stage, count)?;
    if side == Side::First {
        stage.sync.wait_for_ack()?;
    } else {
        stage.sync.ack();
    }
    let ticks = clock::ticks() - start;
    let receives = spec.what == What::Bidirectional || side == Side::Second;
    if spec.touched && receives && subject.carries_bytes() {
        let first = spec.first_number(side.other()) + *number;
        stage.into.check(first, count).map_err(|wrong| stage.wrong(spec, wrong))?;
    }
    // The memories are written anew, and so differ, in every burst.
    *number += stage.out.count() as u64;
    Ok(ticks)
}

/// A stream, both sides asleep while they wait; each side gets its processor time.
fn cpu<S: Subject>(
    subject: &mut S,
    stage: &mut Stage,
    spec: &Spec,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut number = 0;
    let mut pacer = Pacer::new(spec, stage);
    outcome.hops_ns.0 = probe(stage, spec)?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        if spec.touched {
            stage.out.fill(spec.first_number(stage.sync.side) + number);
        }
        stage.sync.barrier()?;
        let start = cpu_ns();
        match spec.setting {
            Setting::Paced => one_by_one(subject, stage, spec.per_sample as usize, &mut pacer)?,
            _ => one_way(subject, stage, spec.per_sample as usize)?,
        }
        outcome.cpu_ns += cpu_ns() - start;
        outcome.messages += spec.per_sample;
        if spec.touched && !stage.is_first() {
            let first = spec.first_number(Side::First) + number;
            let checked = stage.into.check(first, spec.per_sample as usize);
            checked.map_err(|wrong| stage.wrong(spec, wrong))?;
        }
        number += stage.out.count() as u64;
    }
    outcome.hops_ns.1 = probe(stage, spec)?;
    Ok(())
}

#[cfg(test)]
mod tests;
