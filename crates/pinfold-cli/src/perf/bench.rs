//! One run of one subject: warm-up, probe, the timed part, probe, check. Both processes execute
//! [`run`] with the same [`Spec`] at the same time. Between samples the first process looks at
//! the clock, so that a run on a busy machine ends in time all the same.
//!
//! Payloads. Untouched: the memory is written before and checked after each run, outside the
//! timed part, and stays as it is in between. Touched: every message is written anew before it
//! is sent, and read and checked after it has arrived; what that takes is not counted, what it
//! does to the caches is.

use std::{rc::Rc, time::Duration};

use pinfold_sys::clock;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::{
    fail::{Fail, Result},
    payload::Messages,
    plan::What,
    stats,
    subject::{Subject, Waiting},
    sync::{Side, Sync},
    verify::{self, Mismatch},
};

/// Bytes of the messages that are under way at once in each direction when both are busy.
const WINDOW_BYTES: usize = 256 << 10;
/// Longer messages, bytes, fill both directions one at a time.
const OVERLAP_BYTES: usize = 4 << 20;

/// What both processes do in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Which of the subjects that were set up.
    pub(crate) subject: usize,
    pub(crate) what: What,
    /// Bytes in a message.
    pub(crate) size: usize,
    pub(crate) touched: bool,
    /// No two runs have the same; what messages contain follows from it.
    pub(crate) run: u64,
    /// Samples before the timed part, at most.
    pub(crate) warm_up: u64,
    /// Samples in the timed part, at most.
    pub(crate) samples: u64,
    /// Messages (round trips for latency) in a sample: the time is looked at between samples.
    pub(crate) per_sample: u64,
}

impl Spec {
    /// The number of the first message of this run that `side` sends. Numbers of different runs
    /// and sides do not meet.
    pub(crate) fn first_number(&self, side: Side) -> u64 {
        self.run << 33 | u64::from(side == Side::Second) << 32
    }

    /// How many messages have memory of their own.
    pub(crate) fn memories(&self) -> usize {
        match self.what {
            What::Latency => 1,
            _ if self.touched => self.per_sample.next_power_of_two() as usize,
            // A few at a time each way, so that neither direction waits for the other.
            What::Bidirectional => {
                let least = if self.size <= OVERLAP_BYTES { 4 } else { 1 };
                1 << (WINDOW_BYTES / self.size.max(1)).clamp(least, 64).ilog2()
            }
            _ => 1,
        }
    }
}

/// What a run found out. Only the first process has times and hops.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The cache-line hop before and after, nanoseconds.
    pub(crate) hops_ns: (f64, f64),
    /// Picoseconds per message, one for each sample.
    pub(crate) times: Vec<u64>,
    /// Messages in the timed part.
    pub(crate) messages: u64,
    /// Processor time of this process in the timed part, nanoseconds.
    pub(crate) cpu_ns: u64,
    /// The path that messages took, where there is a choice.
    pub(crate) path: Option<&'static str>,
}

/// What a process needs for any run.
pub(crate) struct Stage {
    pub(crate) sync: Sync,
    pub(crate) out: Messages,
    pub(crate) into: Messages,
    /// Names the subject in errors.
    pub(crate) label: Rc<str>,
    /// When the first process ends a run that takes longer than planned, in [`clock::ticks`].
    pub(crate) deadline: u64,
}

impl Stage {
    /// With no memory yet.
    pub(crate) fn new(sync: Sync) -> Stage {
        let label = "".into();
        Stage { sync, out: Messages::new(), into: Messages::new(), label, deadline: u64::MAX }
    }

    /// Has runs end soon after `time` from now.
    pub(crate) fn allow(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.deadline = clock::ticks().saturating_add(us.saturating_mul(clock::ticks_per_us()));
    }

    /// Whether a run has taken as long as it may.
    #[inline]
    pub(crate) fn is_late(&self) -> bool {
        clock::ticks() >= self.deadline
    }

    /// A message was wrong.
    #[cold]
    pub(crate) fn wrong(&self, spec: &Spec, source: Mismatch) -> Fail {
        Fail::Wrong { subject: self.label.to_string(), size: spec.size, source }
    }

    fn is_first(&self) -> bool {
        self.sync.side == Side::First
    }
}

/// Processor time this process has used, nanoseconds: the sum that `getrusage(2)` reports, to
/// the nanosecond.
pub(crate) fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}

/// This side's part of one run.
pub(crate) fn run<S: Subject>(subject: &mut S, stage: &mut Stage, spec: &Spec) -> Result<Outcome> {
    let memories = spec.memories();
    stage.out.shape(spec.size, memories);
    stage.into.shape(spec.size, memories);
    let side = stage.sync.side;
    stage.out.fill(spec.first_number(side));
    let waiting = if spec.what == What::Cpu { Waiting::Sleep } else { Waiting::Spin };
    subject.set_waiting(waiting)?;
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
        let checked = stage.into.check(spec.first_number(other(side)), used);
        checked.map_err(|wrong| stage.wrong(spec, wrong))?;
    }
    outcome.path = subject.path_taken();
    Ok(outcome)
}

fn other(side: Side) -> Side {
    match side {
        Side::First => Side::Second,
        Side::Second => Side::First,
    }
}

/// How many samples one part of a run has: as many as planned, fewer when it takes too long.
///
/// The first process decides, one sample ahead, so that the second never waits for a decision.
struct Course {
    left: u64,
    /// First: what was decided last.
    next: bool,
}

impl Course {
    /// Of at most `samples`, and at least one unless that is none.
    fn new(stage: &mut Stage, samples: u64) -> Course {
        let next = samples > 0;
        if stage.is_first() {
            stage.sync.grant(next);
        }
        Course { left: samples, next }
    }

    /// Whether there is another sample, which then begins.
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
    let mut course = Course::new(stage, spec.warm_up);
    while course.goes_on(stage)? {
        round_trips(subject, stage, spec, &mut touch)?;
    }
    outcome.hops_ns.0 = stage.sync.hop_ns()?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        let ticks = round_trips(subject, stage, spec, &mut touch)?;
        if stage.is_first() {
            outcome.times.push(stats::ps(ticks) / (2 * spec.per_sample));
        }
    }
    outcome.hops_ns.1 = stage.sync.hop_ns()?;
    Ok(())
}

/// Where the writing and checking of every single message stands.
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
        let (out, into) = (spec.first_number(side), spec.first_number(other(side)));
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

/// Does the round trips of one sample; the first side gets the ticks they took, less what either side
/// spent on writing and reading its payload.
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

fn both_ways<S: Subject>(subject: &mut S, stage: &mut Stage, count: usize) -> Result<()> {
    subject.exchange(&stage.out, &mut stage.into, count)
}

/// Bursts of messages. A sample is a burst: from its beginning until the second side has said,
/// through a line both map, that all of it has arrived.
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
    outcome.hops_ns.0 = stage.sync.hop_ns()?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        let ticks = burst(subject, stage, spec, &mut number, flow)?;
        if stage.is_first() {
            outcome.times.push(stats::ps(ticks) / spec.per_sample);
        }
    }
    outcome.hops_ns.1 = stage.sync.hop_ns()?;
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
        // Nobody starts before both have written.
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
        let first = spec.first_number(other(side)) + *number;
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
    outcome.hops_ns.0 = stage.sync.hop_ns()?;
    let mut course = Course::new(stage, spec.samples);
    while course.goes_on(stage)? {
        if spec.touched {
            stage.out.fill(spec.first_number(stage.sync.side) + number);
        }
        stage.sync.barrier()?;
        let start = cpu_ns();
        one_way(subject, stage, spec.per_sample as usize)?;
        outcome.cpu_ns += cpu_ns() - start;
        outcome.messages += spec.per_sample;
        if spec.touched && !stage.is_first() {
            let first = spec.first_number(Side::First) + number;
            let checked = stage.into.check(first, spec.per_sample as usize);
            checked.map_err(|wrong| stage.wrong(spec, wrong))?;
        }
        number += stage.out.count() as u64;
    }
    outcome.hops_ns.1 = stage.sync.hop_ns()?;
    Ok(())
}

#[cfg(test)]
mod tests;
