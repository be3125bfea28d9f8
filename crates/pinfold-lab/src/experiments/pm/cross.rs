//! `pm-cross`: pinning for each message, registering in a pin-down cache, or copying: the cheapest
//! by length and hit ratio. Beyond the paper.

use pinfold::route::{SendMode, SendModes};

use crate::{
    LabError,
    experiment::Run,
    here::{copying, memory::Block, pinning::cache_cost, timing::median_ns},
    models::pm::{
        Pm,
        pinning::{HIT_US, miss_us, mixed, pages},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    size::thresholds,
};

const ID: &str = "pm-cross";
const KB: u64 = 1024;
/// Hit ratios, of 100.
const RATIOS: [u64; 6] = [0, 25, 50, 75, 90, 100];
/// Crossovers are looked for up to this length, in steps, up to [`NEAR`] in smaller ones.
const LONGEST: u64 = 4 << 20;
const STEP: u64 = 256;
const NEAR: u64 = 64 * KB;
/// Lengths that the least hit ratio is given for.
const SHOWN: [u64; 6] = [4 * KB, 16 * KB, 64 * KB, 256 * KB, 1024 * KB, 4096 * KB];
const MACHINES: [&str; 2] = ["PM", "costs that the library begins with"];
/// Transfers of a mix; the mean of it does not depend on them.
const MIX: u64 = 200;

/// The costs of a message, µs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Costs {
    copy: f64,
    /// Pinned for this message.
    each: f64,
    /// Registered before.
    hit: f64,
    /// Registered now, and another buffer let go.
    miss: f64,
}

impl Costs {
    /// By a cache that hits so often, of 100.
    fn cached(&self, ratio: u64) -> f64 {
        let part = ratio as f64 / 100.0;
        part * self.hit + (1.0 - part) * self.miss
    }

    /// The least hit ratio with which registering is no dearer than copying, %; none if even a hit
    /// is.
    fn least_ratio(&self) -> Option<f64> {
        if self.hit > self.copy {
            return None;
        }
        if self.miss <= self.copy {
            return Some(0.0);
        }
        Some(100.0 * (self.miss - self.copy) / (self.miss - self.hit))
    }
}

/// PM's: a message of its own each, unpinning as dear as pinning.
fn of_pm(pm: &Pm, bytes: u64) -> Costs {
    let hit = pm.zero_copy_us(bytes);
    let pinned = hit - HIT_US + 2.0 * miss_us(pages(bytes));
    Costs { copy: pm.copied_us(bytes), each: pinned, hit, miss: pinned }
}

/// Those that endpoints begin with, of processor time: a miss costs what holding the pages for a
/// send does.
fn of_library(modes: &SendModes, bytes: u64) -> Costs {
    let us = |mode| thresholds::cost_by(modes, mode, bytes) / 1000.0;
    let each = us(SendMode::PerSend);
    Costs { copy: us(SendMode::Plain), each, hit: us(SendMode::Cached), miss: each }
}

/// The least length from which on a way is always cheaper; none up to [`LONGEST`].
fn crossover(is_cheaper: impl Fn(u64) -> bool) -> Option<u64> {
    let near = (1..NEAR / STEP).map(|at| at * STEP);
    let lengths: Vec<u64> = near.chain((1..=LONGEST / NEAR).map(|at| at * NEAR)).collect();
    let dear = lengths.iter().rposition(|&bytes| !is_cheaper(bytes));
    lengths.get(dear.map_or(0, |at| at + 1)).copied()
}

/// The mean that PM's cache itself comes to is that of the costs.
///
/// # Errors
/// The cache refused a transfer, or it is another mean.
fn check_mix(pm: &Pm, bytes: u64, ratio: u64) -> Result<(), LabError> {
    let failed = |why| LabError::Failed { id: ID, why };
    let mean = mixed(bytes, ratio, MIX, true).map_err(failed)?.mean_us;
    let by_cache = pm.zero_copy_us(bytes) - HIT_US + mean;
    let by_costs = of_pm(pm, bytes).cached(ratio);
    if (by_cache / by_costs - 1.0).abs() > 1e-6 {
        let why = format!("{bytes} bytes, {ratio} % hits: {by_cache} µs by the cache, {by_costs}");
        return Err(failed(why));
    }
    Ok(())
}

/// This machine's costs: the library's cache over buffers registered with an io_uring, and the
/// library's copy.
fn of_here(run: &Run<'_>, bytes: u64) -> Result<Costs, String> {
    let (turns, calls) = (run.pick(5, 21), run.pick(20, 100));
    let cost = cache_cost(pages(bytes) as usize, turns, calls)?;
    let from = Block::new(bytes as usize, 1);
    let mut to = Block::new(bytes as usize, 2);
    let copy = median_ns(turns, calls, |_| {
        copying::copy(copying::uncached(), from.get(), to.get_mut());
        Ok::<(), String>(())
    })?;
    crate::here::memory::check(to.get(), 0, 1)?;
    let [hit, miss, copy] = [cost.hit_ns, cost.miss_ns, copy].map(|ns| ns / 1000.0);
    Ok(Costs { copy, each: miss, hit, miss })
}

/// Runs the experiment.
///
/// # Errors
/// The cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let (pm, modes) = (Pm::fitted(), SendModes::priors());
    let ways: [&dyn Fn(u64) -> Costs; 2] =
        [&|bytes| of_pm(&pm, bytes), &|bytes| of_library(&modes, bytes)];
    let mut outcome = Outcome::new();
    let mut title = Plot::new(
        "Length from which registering costs less than copying",
        Axis::linear("hits, %"),
        Axis::log("bytes"),
    );
    let mut all = Vec::new();
    for (at, (machine, costs)) in MACHINES.into_iter().zip(ways).enumerate() {
        run.progress(at as f64 / 3.0, machine);
        let each = crossover(|bytes| costs(bytes).each < costs(bytes).copy);
        let by_ratio =
            RATIOS.map(|ratio| crossover(|bytes| costs(bytes).cached(ratio) < costs(bytes).copy));
        let from = |name: &str, at: String, found: Option<u64>| {
            let value =
                Value::new("cheaper than copying from", machine, format!("{name}{at}"), "B");
            match found {
                Some(bytes) => value.model(bytes as f64),
                None => value.note("never, up to 4 MiB"),
            }
        };
        outcome.values.push(from("pinned each time", String::new(), each));
        for (ratio, found) in RATIOS.into_iter().zip(by_ratio) {
            outcome.values.push(from("registered, ", format!("{ratio} % hits"), found));
        }
        let points = RATIOS.iter().zip(by_ratio);
        let points = points.filter_map(|(&ratio, it)| Some((ratio as f64, it? as f64)));
        title.add(machine, Column::Model, points.collect());
        all.push((each, by_ratio));
    }
    for bytes in SHOWN {
        for ratio in RATIOS {
            check_mix(&pm, bytes, ratio)?;
        }
    }
    outcome.plots.push(title);
    run.progress(0.7, "this machine");
    let here = ratios(run, &mut outcome, &ways);
    judge(&mut outcome, &all, here);
    outcome.note(
        "PM's machine is that of `pm-band`: copying is PM 1.0's stream through pinned buffers, and \
         an unpin costs what a pin does. The library's costs are those that endpoints begin with, \
         of processor time to send to another host: copied by the kernel, pages held for this \
         send, or a registered buffer; it takes a miss to cost what holding the pages does. So in \
         both a cache that never hits is pinning each time. By the library's costs even a hit is \
         dearer than holding pages for a send of up to some length; there hits make it worse. Here \
         a registered buffer is one of an io_uring's, a miss registers one and lets another go, \
         and the copy is the library's, of memory to memory.",
    );
    Ok(outcome)
}

/// The least hit ratios by length. Returns this machine's with their lengths.
fn ratios(
    run: &Run<'_>,
    outcome: &mut Outcome,
    ways: &[&dyn Fn(u64) -> Costs; 2],
) -> Result<Vec<(u64, Option<f64>)>, String> {
    let mut plot = Plot::new(
        "Hit ratio from which registering costs no more than copying",
        Axis::log("message, bytes"),
        Axis::linear("hits, %"),
    );
    let value = |machine: &str, bytes: u64, ratio: Option<f64>| {
        let at = format!("{} KB", bytes / KB);
        let value = Value::new("hits wanted", machine, at, "%");
        match ratio {
            Some(_) => value,
            None => value.note("even a hit costs more than the copy"),
        }
    };
    for (machine, costs) in MACHINES.into_iter().zip(ways) {
        let found = SHOWN.map(|bytes| (bytes, costs(bytes).least_ratio()));
        for (bytes, ratio) in found {
            let value = value(machine, bytes, ratio);
            outcome.values.push(match ratio {
                Some(ratio) => value.model(ratio),
                None => value,
            });
        }
        let points = found.into_iter().filter_map(|(x, y)| Some((x as f64, y?)));
        plot.add(machine, Column::Model, points.collect());
    }
    let mut found = Err("this machine was not to be measured".to_owned());
    if run.here() {
        let one = |bytes| Ok((bytes, of_here(run, bytes)?.least_ratio()));
        found = SHOWN.into_iter().map(one).collect::<Result<Vec<_>, String>>();
        for &(bytes, ratio) in found.iter().flatten() {
            let one = value("this machine", bytes, ratio);
            outcome.values.push(one.here(ratio));
        }
        let points = found.iter().flatten().filter_map(|&(x, y)| Some((x as f64, y?)));
        plot.add("this machine", Column::Here, points.collect());
    }
    outcome.plots.push(plot);
    found
}

/// By machine: pinned each time, and by hit ratio.
type Crossovers = [(Option<u64>, [Option<u64>; RATIOS.len()])];

fn judge(outcome: &mut Outcome, all: &Crossovers, here: Result<Vec<(u64, Option<f64>)>, String>) {
    const NOT_HERE: &str = "the lengths at which costs cross are the models'";
    let far = |it: Option<u64>| it.unwrap_or(u64::MAX);
    let said = |it: Option<u64>| it.map_or("never".to_owned(), |bytes| format!("{bytes} B"));
    let list = |by: &[Option<u64>]| by.iter().map(|it| said(*it)).collect::<Vec<_>>().join(", ");
    let falls = |by: &[Option<u64>]| by.windows(2).all(|pair| far(pair[1]) <= far(pair[0]));
    let words: Vec<String> = MACHINES
        .iter()
        .zip(all)
        .map(|(machine, (_, by))| format!("{machine}: {}", list(by)))
        .collect();
    outcome.claims.push(Claim::modelled(
        "on PM's machine the cache pays for shorter messages the more it hits",
        Finding::of(
            all.first().is_some_and(|(_, by)| falls(by) && far(by[RATIOS.len() - 1]) < far(by[0])),
            format!("by hit ratios of {RATIOS:?} %, {}", words.join("; ")),
        ),
        NOT_HERE,
    ));
    let words: Vec<String> = MACHINES
        .iter()
        .zip(all)
        .map(|(machine, (each, by))| {
            format!("{machine}: each time from {}, all hits from {}", said(*each), said(by[5]))
        })
        .collect();
    let claim = Claim::modelled(
        "pinning each time, too, costs less than copying from some length on",
        Finding::of(all.iter().all(|(each, _)| each.is_some()), words.join("; ")),
        NOT_HERE,
    );
    outcome.claims.push(match here {
        Err(why) => claim.and_here(Finding::not_measured(why)),
        Ok(found) => {
            let words: Vec<String> = found
                .iter()
                .map(|(bytes, ratio)| match ratio {
                    Some(ratio) => format!("{} KB {ratio:.0} %", bytes / KB),
                    None => format!("{} KB never", bytes / KB),
                })
                .collect();
            let holds = found.iter().any(|it| it.1 == Some(0.0));
            claim.and_here(Finding::of(holds, format!("hits wanted: {}", words.join(", "))))
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::pm::PAGE_BYTES;

    #[test]
    fn the_ratio_is_where_the_costs_are_equal() {
        let costs = Costs { copy: 20.0, each: 50.0, hit: 10.0, miss: 50.0 };
        assert_eq!(costs.least_ratio(), Some(75.0));
        assert_eq!(costs.cached(75), 20.0);
        assert_eq!(Costs { hit: 21.0, ..costs }.least_ratio(), None);
        assert_eq!(Costs { miss: 20.0, ..costs }.least_ratio(), Some(0.0));
    }

    #[test]
    fn crossovers_are_searched_from_above() {
        assert_eq!(crossover(|bytes| bytes > 8 * KB), Some(8 * KB + STEP));
        assert_eq!(crossover(|_| false), None);
        assert_eq!(crossover(|_| true), Some(STEP));
    }

    #[test]
    fn a_miss_of_pm_pins_and_unpins_its_pages() {
        let pm = Pm::fitted();
        let costs = of_pm(&pm, 2 * PAGE_BYTES);
        assert!((costs.miss - costs.hit - (2.0 * 54.0 - HIT_US)).abs() < 1e-9, "{costs:?}");
    }
}
