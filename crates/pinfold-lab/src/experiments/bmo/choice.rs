//! `bmo-choice`: the latency of a probe below which it pays to choose each copy by it, on recorded
//! programs. Beyond the paper.

use std::collections::HashMap;

use pinfold::copy::{CacheState, Probe, probe};

use crate::{
    LabError,
    experiment::Run,
    models::{
        copying::{Before, Way, per_byte, processor::OPTERON_250},
        hierarchy::{Hierarchy, LINE, Place},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::replay::{self, Copied, Recording},
};

const ID: &str = "bmo-choice";
const RECORDED: [Recording; 5] =
    [replay::COMPILE, replay::SPOOL, replay::PIPE, replay::BULK, replay::CHAT];
/// Cycles of a probe, for the plot; a line from memory takes 400 (section 5.3).
const LATENCIES: [f64; 8] = [0.0, 18.0, 50.0, 100.0, 150.0, 200.0, 300.0, 400.0];
/// Longer blocks cost as much a byte as these.
const LONGEST: u64 = 64 << 10;
/// Probes of a block: of source and of destination.
const PROBES: f64 = 2.0;
const STATES: [Before; 2] = [Before::Uncached, Before::Cached];

/// The cycles of copies, by way, state of source and destination, and size.
struct Times {
    seed: u64,
    known: HashMap<(usize, [bool; 2], u64), f64>,
}

impl Times {
    /// Cycles of a copy: of one as long as the next power of two, by the byte.
    fn cycles(&mut self, way: usize, cached: [bool; 2], bytes: u64) -> f64 {
        let class = bytes.next_power_of_two().clamp(LINE, LONGEST);
        let seed = self.seed;
        let each = self.known.entry((way, cached, class)).or_insert_with(|| {
            let [from, to] = cached.map(|is| STATES[usize::from(is)]);
            per_byte(&OPTERON_250, Way::LINES[way], (from, to), class, seed)[0]
        });
        *each * bytes as f64
    }

    /// The cheapest way.
    fn best(&mut self, cached: [bool; 2], bytes: u64) -> usize {
        let all = (0..Way::LINES.len()).map(|way| (self.cycles(way, cached, bytes), way));
        all.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |best| best.1)
    }
}

/// A copy, and the state of both blocks before it: in truth, and by the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    cached: [bool; 2],
    said: [bool; 2],
}

/// The copies of a line or more, as the Opteron's caches have their blocks.
fn seen(copies: &[Copied]) -> Vec<Seen> {
    let with = &OPTERON_250;
    let mut caches = Hierarchy::new(with.first, with.second, with.sharing);
    let mut all = Vec::new();
    for copy in copies.iter().filter(|copy| copy.bytes >= LINE) {
        let places = copy.places.map(|place| place / LINE * LINE);
        let lines = copy.bytes.div_ceil(LINE);
        let is_cached = |caches: &Hierarchy, line| caches.find(line).0 != Place::Memory;
        let cached = places.map(|place| {
            let lines = (0..lines).map(|line| place + line * LINE);
            let count = lines.clone().filter(|&line| is_cached(&caches, line)).count();
            // The library's rule: from 40 % on it is no mistake to call a block cached.
            Probe::is_right(CacheState::Cached, count, lines.count())
        });
        let said = places.map(|place| is_cached(&caches, place));
        all.push(Seen { bytes: lines * LINE, cached, said });
        for line in 0..lines {
            caches.access(places[0] + line * LINE, false);
            caches.access(places[1] + line * LINE, true);
        }
    }
    all
}

/// The mean cycles of a block by each way to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    /// Into the cache, without prefetch: as the paper's kernel does.
    kernel: f64,
    /// The one way that is best for all together.
    fixed: f64,
    /// By two probes that cost nothing.
    probed: f64,
    /// By the truth, for nothing.
    known: f64,
}

impl Found {
    /// The cycles that a probe may take to be no loss, against one way for all.
    fn pays_below(self) -> f64 {
        (self.fixed - self.probed) / PROBES
    }
}

fn found(times: &mut Times, all: &[Seen]) -> Found {
    let mut sums = [0.0; Way::LINES.len()];
    let (mut probed, mut known) = (0.0, 0.0);
    for it in all {
        for (way, sum) in sums.iter_mut().enumerate() {
            *sum += times.cycles(way, it.cached, it.bytes);
        }
        let (by_probe, by_truth) = (times.best(it.said, it.bytes), times.best(it.cached, it.bytes));
        probed += times.cycles(by_probe, it.cached, it.bytes);
        known += times.cycles(by_truth, it.cached, it.bytes);
    }
    let mean = |sum: f64| sum / all.len().max(1) as f64;
    let fixed = sums.into_iter().fold(f64::INFINITY, f64::min);
    Found { kernel: mean(sums[0]), fixed: mean(fixed), probed: mean(probed), known: mean(known) }
}

/// Runs the experiment.
///
/// # Errors
/// A recording is damaged.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut times = Times { seed: run.seed(), known: HashMap::new() };
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Gain by two probes a block, against the best way for all",
        Axis::linear("cycles of a probe"),
        Axis::linear("% of the copies' time"),
    );
    let mut all = Vec::new();
    let mut by_size: HashMap<u64, Vec<Seen>> = HashMap::new();
    for (at, recording) in RECORDED.iter().enumerate() {
        run.progress(at as f64 / RECORDED.len() as f64, recording.name);
        let copies = replay::copies(recording)
            .map_err(|why| LabError::Failed { id: ID, why: why.to_string() })?;
        let seen = seen(&copies);
        for it in &seen {
            by_size.entry(it.bytes.next_power_of_two()).or_default().push(*it);
        }
        let it = found(&mut times, &seen);
        for (words, cycles) in [
            ("into the cache always", it.kernel),
            ("one way for all", it.fixed),
            ("by probes that cost nothing", it.probed),
            ("by the truth", it.known),
        ] {
            let value = Value::new("a block", recording.name, words, "cycles");
            outcome.values.push(value.model(cycles));
        }
        let value = Value::new("a probe pays below", recording.name, "", "cycles");
        outcome.values.push(value.model(it.pays_below()));
        let gain = |latency: f64| 100.0 * (1.0 - (it.probed + PROBES * latency) / it.fixed);
        let points = LATENCIES.into_iter().map(|latency| (latency, gain(latency)));
        plot.add(recording.name, Column::Model, points.collect());
        all.push((recording.name, it));
    }
    outcome.plots.push(plot);
    sizes(&mut times, &mut outcome, by_size);
    let here = here(run, &mut outcome);
    judge(&mut outcome, &all, here);
    outcome.note(
        "Ours: the blocks are those of `bmo-probe`'s recordings, of a line or more, in the \
         Opteron's caches; the times are `bmo-copybench`'s, of a block as long as the next power \
         of two, all of it cached or nothing. The caches see all copies as if they stored into \
         them: a copy past the cache would leave its destination uncached, which changes later \
         blocks and is not followed, nor is what programs do between copies. Two probes a block \
         look at the first lines of source and destination; a probe of a line that has to come \
         from memory brings it in, which the copy would do next, but its time is counted in full.",
    );
    Ok(outcome)
}

/// By size of block, over all programs.
fn sizes(times: &mut Times, outcome: &mut Outcome, by_size: HashMap<u64, Vec<Seen>>) {
    let mut by_size: Vec<(u64, Vec<Seen>)> = by_size.into_iter().collect();
    by_size.sort_unstable_by_key(|it| it.0);
    let mut points = Vec::new();
    for (bytes, seen) in by_size {
        let it = found(times, &seen);
        let at = format!("up to {bytes} B");
        let value = Value::new("a probe pays below", "all programs", at, "cycles");
        outcome.values.push(value.model(it.pays_below()));
        points.push((bytes as f64, it.pays_below()));
    }
    let mut plot = Plot::new(
        "The cycles that a probe may take, by size of block, all programs",
        Axis::log("bytes"),
        Axis::linear("cycles"),
    );
    plot.add("all programs", Column::Model, points);
    outcome.plots.push(plot);
}

/// The library's probe on this machine, ns: of a line that is cached and of one that is not.
fn here(run: &Run<'_>, outcome: &mut Outcome) -> Result<[f64; 2], String> {
    if !run.here() {
        return Err("this machine was not to be measured".into());
    }
    let cost = probe().map_err(|why| why.to_string())?.cost_ns();
    for (words, ns) in ["of a cached line", "of an uncached line"].into_iter().zip(cost) {
        outcome.values.push(Value::new("a probe", "the library's", words, "ns").here(ns));
    }
    Ok(cost)
}

fn judge(outcome: &mut Outcome, all: &[(&str, Found)], here: Result<[f64; 2], String>) {
    let words = |of: fn(Found) -> f64| -> String {
        let all: Vec<String> =
            all.iter().map(|(name, it)| format!("{name} {:.0}", of(*it))).collect();
        all.join(", ")
    };
    let most = all.iter().map(|it| it.1.pays_below()).fold(f64::NEG_INFINITY, f64::max);
    let claim = Claim::modelled(
        "in no recorded program may a probe take as long as a line from memory, 400 cycles",
        Finding::of(
            most < 400.0,
            format!("a probe pays below, cycles: {}", words(|it| it.pays_below())),
        ),
        "",
    );
    outcome.claims.push(claim.and_here(match here {
        Err(why) => Finding::not_measured(why),
        Ok([hit, miss]) => {
            let ns = most * 1000.0 / OPTERON_250.mhz;
            Finding::of(
                ns < miss,
                format!(
                    "the library's probe takes {hit:.0} ns of a cached line and {miss:.0} ns of \
                     another; the most that pays in the model is {ns:.0} ns"
                ),
            )
        }
    }));
    outcome.claims.push(Claim::modelled(
        "the first line is not right enough everywhere: in a recorded program choosing by it takes \
         longer than one way for all, even for nothing",
        Finding::of(
            all.iter().any(|(_, it)| it.probed > it.fixed)
                && all.iter().all(|(_, it)| it.known <= it.fixed),
            format!(
                "cycles a block that the truth would gain beyond the probe: {}; that the probe \
                 gains: {}",
                words(|it| it.probed - it.known),
                words(|it| it.fixed - it.probed)
            ),
        ),
        "the states of blocks here are not known",
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_may_take_half_of_what_two_gain() {
        let it = Found { kernel: 500.0, fixed: 300.0, probed: 240.0, known: 230.0 };
        assert_eq!(it.pays_below(), 30.0);
    }

    #[test]
    fn the_first_line_says_and_the_rest_is_the_truth() {
        const FAR: u64 = 1 << 24;
        // The first line of the second's source is not cached, all others are.
        let copies = [
            Copied { places: [0, FAR + 64], bytes: 1024 },
            Copied { places: [FAR, 2 * FAR], bytes: 1024 },
            Copied { places: [FAR, 2 * FAR], bytes: 63 },
        ];
        let all = seen(&copies);
        assert_eq!(all.len(), 2, "a block of less than a line is none");
        assert_eq!((all[0].cached, all[0].said), ([false; 2], [false; 2]));
        assert_eq!((all[1].cached, all[1].said), ([true, false], [false; 2]));
    }

    #[test]
    fn knowing_is_never_dearer_than_one_way_for_all() {
        let mut times = Times { seed: 1, known: HashMap::new() };
        let states = [[false, false], [false, true], [true, false], [true, true]];
        let all: Vec<Seen> = states.map(|cached| Seen { bytes: 4096, cached, said: cached }).into();
        let it = found(&mut times, &all);
        assert!(it.known <= it.fixed && it.fixed <= it.kernel, "{it:?}");
        assert_eq!(it.known, it.probed);
    }
}
