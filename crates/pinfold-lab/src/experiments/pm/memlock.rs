//! `pm-memlock`: policies of eviction against Belady's optimum, from 64 KiB to 8 GiB of memory that
//! may be pinned. Beyond the paper.

use pinfold::translate::pincache::{Clock, Evict, Lru, NoPin};

use super::policy::{nexts, zipf};
use crate::{
    LabError,
    experiment::{Depth, Run},
    models::{
        eviction::{Belady, Driver, Fifo, Policy, S3Fifo, Sieve},
        pm::{PAGE_BYTES, pinning::Pinning},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::replay,
};

const ID: &str = "pm-memlock";
const NOT_HERE: &str = "the traces are made from a seed or recorded; nothing is pinned here";
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The least and the most that may be pinned.
const LEAST: u64 = 64 * KIB;
const MOST: u64 = 8 * GIB;
/// Memory that the made-up programs send from.
const MEMORY: u64 = 16 * GIB;
/// The lengths of buffers: of recorded programs, and of the small and the large ones of others.
const SMALL: u64 = 16 * KIB;
const LARGE: u64 = MIB;
/// Small buffers of the trace that has both.
const SMALL_BUFFERS: u64 = 4096;
/// Times that the popular buffers of the phases change.
const PHASES: usize = 8;
const POLICIES: [&str; 6] = ["LRU", "FIFO", "CLOCK", "SIEVE", "S3-FIFO", "Belady"];
/// The positions of two of them.
const LRU: usize = 0;
const BELADY: usize = 5;

/// A trace: the buffer of each transfer.
struct Trace {
    name: &'static str,
    buffers: Vec<u64>,
    /// Buffers with lower numbers have [`SMALL`] bytes, the others `large`.
    small: u64,
    large: u64,
}

impl Trace {
    /// Address and bytes of a buffer.
    fn area(&self, buffer: u64) -> (u64, u64) {
        match buffer.checked_sub(self.small) {
            None => (buffer * SMALL, SMALL),
            Some(at) => ((1 << 50) + at * self.large, self.large),
        }
    }

    /// The length of the shortest buffers.
    fn shortest(&self) -> u64 {
        if self.small > 0 { SMALL } else { self.large }
    }

    fn is_uniform(&self) -> bool {
        self.small == 0 || self.small == u64::MAX
    }

    /// The bytes of all buffers that are used.
    fn bytes(&self) -> u64 {
        let mut used = self.buffers.clone();
        used.sort_unstable();
        used.dedup();
        used.into_iter().map(|buffer| self.area(buffer).1).sum()
    }
}

/// The hit ratios of a policy by budget, %.
type Ratios = Vec<f64>;

/// The results of a trace: its ratios by policy, the bytes of its buffers, and true if those are
/// all of one length.
struct Found {
    name: &'static str,
    ratios: Vec<Ratios>,
    bytes: u64,
    is_uniform: bool,
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: ID, why: why.to_string() }
}

fn traces(run: &Run<'_>) -> Result<Vec<Trace>, LabError> {
    // The whole experiment has shorter buffers, and so a longer trace.
    let (large, count) = run.pick((LARGE, 16_000), (64 * KIB, 2_000_000));
    let buffers = MEMORY / large;
    let made = |name, buffers| Trace { name, buffers, small: 0, large };
    let popular = zipf(&mut run.random(1), buffers, count);
    let mut scanned = zipf(&mut run.random(2), buffers / 2, count);
    scanned.iter_mut().skip(3).step_by(4).zip(1 << 30..).for_each(|(buffer, once)| *buffer = once);
    let mut phases = Vec::with_capacity(count);
    for phase in 0..PHASES {
        phases.extend(zipf(&mut run.random(10 + phase as u64), buffers, count / PHASES));
    }
    // Every second transfer is of a small buffer, whatever the lengths of the others.
    let mut mixed = zipf(&mut run.random(3), MEMORY / LARGE, count);
    mixed.iter_mut().for_each(|buffer| *buffer += SMALL_BUFFERS);
    let few = zipf(&mut run.random(4), SMALL_BUFFERS, count / 2);
    mixed.iter_mut().step_by(2).zip(few).for_each(|(buffer, small)| *buffer = small);
    let mut all = vec![
        made("Zipf", popular),
        made("Zipf and scan", scanned),
        made("phases", phases),
        Trace { name: "small and large", buffers: mixed, small: SMALL_BUFFERS, large: LARGE },
    ];
    for recorded in [replay::SESSIONS, replay::SPOOL, replay::COMPILE] {
        let buffers = replay::buffers(&recorded, SMALL).map_err(failed)?;
        all.push(Trace { name: recorded.name, buffers, small: u64::MAX, large: 0 });
    }
    Ok(all)
}

/// Powers of two; in a quick run each third, and the last.
fn budgets(depth: Depth) -> Vec<u64> {
    let step = if depth == Depth::Quick { 3 } else { 1 };
    let powers = (0..).step_by(step).map(|at| LEAST << at);
    let mut all: Vec<u64> = powers.take_while(|budget| *budget < MOST).collect();
    all.push(MOST);
    all
}

/// The hits of a trace under a budget, and true if nothing had to give way. `told` is a policy's
/// driver, if it has one.
fn hits<E: Evict, P: Policy>(
    trace: &Trace,
    budget: u64,
    evict: E,
    told: Option<(&Driver<P>, &[u64])>,
) -> Result<(u64, bool), LabError> {
    let areas = (budget / trace.shortest()).max(1);
    let pinning = Pinning::of_areas(budget / PAGE_BYTES, areas, evict, false);
    let mut pinning = pinning.map_err(failed)?;
    let mut hits = 0;
    let mut is_short = false;
    for (at, &buffer) in trace.buffers.iter().enumerate() {
        let (address, bytes) = trace.area(buffer);
        if let Some((driver, nexts)) = told {
            driver.upcoming(address, nexts[at]);
        }
        match pinning.is_hit(address, bytes) {
            Ok(true) => {
                hits += 1;
                if let Some((driver, _)) = told {
                    driver.hit(address);
                }
            }
            Ok(false) => {}
            // Longer than all that may be pinned: it goes another way.
            Err(NoPin::TooLarge) => is_short = true,
            Err(why) => return Err(failed(why)),
        }
    }
    Ok((hits, !is_short && pinning.counters().evictions == 0))
}

/// The same of a policy that is told of transfers.
fn told<P: Policy>(
    trace: &Trace,
    budget: u64,
    nexts: &[u64],
    policy: P,
) -> Result<(u64, bool), LabError> {
    let (driver, evict) = Driver::new(policy);
    hits(trace, budget, evict, Some((&driver, nexts)))
}

/// The hit ratios of a policy under all budgets, %. Budgets behind one that is never full have the
/// same.
fn ratios(
    policy: usize,
    trace: &Trace,
    budgets: &[u64],
    nexts: &[u64],
) -> Result<Ratios, LabError> {
    const UNTOLD: Option<(&Driver<Fifo>, &[u64])> = None;
    let mut all = Ratios::new();
    for &budget in budgets {
        let (hits, is_enough) = match POLICIES[policy] {
            "LRU" => hits(trace, budget, Lru::default(), UNTOLD),
            "FIFO" => told(trace, budget, nexts, Fifo::default()),
            "CLOCK" => hits(trace, budget, Clock::default(), UNTOLD),
            "SIEVE" => told(trace, budget, nexts, Sieve::default()),
            "S3-FIFO" => {
                let areas = (budget / trace.shortest()).max(1);
                told(trace, budget, nexts, S3Fifo::new(areas as usize))
            }
            _ => told(trace, budget, nexts, Belady::default()),
        }?;
        let ratio = 100.0 * hits as f64 / trace.buffers.len().max(1) as f64;
        let left = if is_enough { budgets.len() - all.len() } else { 1 };
        all.extend(std::iter::repeat_n(ratio, left));
        if is_enough {
            break;
        }
    }
    Ok(all)
}

/// A budget in words.
fn words(bytes: u64) -> String {
    match bytes {
        GIB.. => format!("{} GiB", bytes / GIB),
        MIB.. => format!("{} MiB", bytes / MIB),
        _ => format!("{} KiB", bytes / KIB),
    }
}

/// Runs the experiment.
///
/// # Errors
/// The cache refused a transfer, or a recording is damaged.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let budgets = budgets(run.depth());
    let traces = traces(run)?;
    let mut outcome = Outcome::new();
    let mut all = Vec::new();
    for (at, trace) in traces.iter().enumerate() {
        let mut plot = Plot::new(
            &format!("Hit ratio by memlock: {}", trace.name),
            Axis::log("bytes that may be pinned"),
            Axis::linear("hits, %"),
        );
        let nexts = nexts(&trace.buffers);
        let mut found = Vec::new();
        for (policy, name) in POLICIES.iter().enumerate() {
            let part = at as f64 + policy as f64 / POLICIES.len() as f64;
            run.progress(part / traces.len() as f64, &format!("{}, {name}", trace.name));
            let ratios = ratios(policy, trace, &budgets, &nexts)?;
            for (&budget, &ratio) in budgets.iter().zip(&ratios) {
                let quantity = format!("hits, {}", trace.name);
                let value = Value::new(&quantity, name, words(budget), "%");
                outcome.values.push(value.model(ratio));
            }
            let points = budgets.iter().zip(&ratios).map(|(&x, &y)| (x as f64, y));
            plot.add(name, Column::Model, points.collect());
            found.push(ratios);
        }
        outcome.plots.push(plot);
        let (bytes, is_uniform) = (trace.bytes(), trace.is_uniform());
        let value = Value::new("buffers that are used", trace.name, "", "MiB");
        outcome.values.push(value.model(bytes as f64 / MIB as f64));
        all.push(Found { name: trace.name, ratios: found, bytes, is_uniform });
    }
    judge(&mut outcome, &all, &budgets);
    outcome.note(
        "Ours: PM's paper has LRU and 4 MB alone. The library's own pin-down cache runs each \
         policy, as in `pm-policy`. The made-up programs send from 16 GiB: by Zipf's law with \
         exponent 0.9; from 8 GiB in the same way, with a buffer that is never used again as \
         every fourth; with other popular buffers in each eighth of the trace; and with every \
         second transfer from one of 4,096 buffers of 16 KiB. The large buffers have 1 MiB, in a \
         full run 64 KiB, where the trace has 2,000,000 transfers in place of 16,000. A buffer \
         that is longer than all that may be pinned misses. Recorded programs are taken in pieces \
         of 16 KiB; they use so little memory that budgets behind some MiB are all alike.",
    );
    outcome.note(
        "Belady's rule is the optimum where all buffers have one length, and pins every buffer \
         that is used, as the cache does. Where lengths differ it looks at the next use alone and \
         not at the bytes that an area takes, and a policy that keeps many short buffers may hit \
         more often.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, all: &[Found], budgets: &[u64]) {
    let uniform = || all.iter().filter(|found| found.is_uniform);
    let above = |found: &Found| {
        let best = &found.ratios[BELADY];
        let others = found.ratios.iter().flat_map(|of| of.iter().zip(best));
        others.filter(|(ratio, best)| **ratio > **best + 1e-9).count()
    };
    let count: usize = uniform().map(above).sum();
    outcome.claims.push(Claim::modelled(
        "where all buffers have one length, no policy hits more often than Belady's",
        Finding::of(
            count == 0,
            format!("{count} of {} are above it", uniform().count() * budgets.len() * BELADY),
        ),
        NOT_HERE,
    ));
    let online = |found: &Found, at: usize| {
        let ratios = found.ratios[..BELADY].iter().map(|of| of[at]);
        ratios.fold(0.0, f64::max)
    };
    // The greatest gap of the best policy to the optimum, and its budget as a part of the buffers.
    let worst = |found: &Found| {
        let gaps = (0..budgets.len()).map(|at| (found.ratios[BELADY][at] - online(found, at), at));
        let (gap, at) = gaps.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((0.0, 0));
        (gap, at, 100.0 * budgets[at] as f64 / found.bytes as f64)
    };
    let said: Vec<String> = uniform()
        .map(|found| {
            let (gap, at, part) = worst(found);
            format!(
                "{}: {gap:.1} points at {}, {part:.1} % of its buffers",
                found.name,
                words(budgets[at])
            )
        })
        .collect();
    let inside = uniform().all(|found| (0.5..=100.0).contains(&worst(found).2));
    outcome.claims.push(Claim::modelled(
        "the best policy is farthest from the optimum between a hundredth of the buffers and all \
         of them",
        Finding::of(inside, said.join("; ")),
        NOT_HERE,
    ));
    // The gain of the best policy over LRU, beside LRU's own gain by the next budget of the sweep.
    let (mut memory, mut steps) = (0, 0);
    for found in all {
        for at in 0..budgets.len() - 1 {
            let lru = &found.ratios[LRU];
            if lru[at + 1] > lru[at] {
                steps += 1;
                memory += usize::from(lru[at + 1] >= online(found, at));
            }
        }
    }
    let factor = budgets[1] / budgets[0];
    outcome.claims.push(Claim::modelled(
        format!("{factor} times the memory gains LRU more than another policy does, mostly"),
        Finding::of(
            memory * 4 >= steps * 3,
            format!("in {memory} of the {steps} steps of the sweep in which it gains at all"),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_go_from_64_kib_to_8_gib() {
        let quick = budgets(Depth::Quick);
        assert_eq!(
            quick.iter().map(|it| words(*it)).collect::<Vec<_>>().join(", "),
            "64 KiB, 512 KiB, 4 MiB, 32 MiB, 256 MiB, 2 GiB, 8 GiB"
        );
        assert_eq!(budgets(Depth::Full).len(), 18);
    }

    #[test]
    fn buffers_of_two_lengths_lie_apart_and_long_ones_may_not_fit() {
        let buffers = vec![0, 2, 0, 2, 1, 3, 1];
        let trace = Trace { name: "", buffers, small: 2, large: LARGE };
        assert_eq!((trace.area(1), trace.area(3)), ((SMALL, SMALL), ((1 << 50) + LARGE, LARGE)));
        assert_eq!(trace.bytes(), 2 * SMALL + 2 * LARGE);
        let nexts = nexts(&trace.buffers);
        // In 64 KiB the small ones stay, and the large ones miss; in 1 MiB and a small one's more
        // the third transfer finds its buffer, the fourth not.
        for (policy, name) in POLICIES.iter().enumerate() {
            let budgets = [64 * KIB, LARGE + SMALL, 4 * LARGE, MOST];
            let found = ratios(policy, &trace, &budgets, &nexts).unwrap();
            assert_eq!(found[0], 200.0 / 7.0, "{}", name);
            assert!(found[1] > 0.0, "{}", name);
            assert_eq!(found[2..], [300.0 / 7.0; 2], "{}", name);
        }
    }
}
