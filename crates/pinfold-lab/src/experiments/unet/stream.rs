//! `unet-stream`: streams of any length through the TLB and the pin-down cache, as they come; and
//! the speed of the models. Beyond the paper.

use pinfold::translate::{pincache::Lru, tlb::Tlb};
use pinfold_sys::cpu::clock::now_ns;

use super::shared::{look_up, tlb};
use crate::{
    LabError,
    experiment::Run,
    here::speeds,
    models::pm::{PAGE_BYTES, pinning::Pinning},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::{
        replay::{self, Recording},
        touched::Stream,
    },
    workloads::zipf::Zipf,
};

const ID: &str = "unet-stream";
const ENTRIES: usize = 4096;
const WAYS: usize = 4;
/// Memory that may be pinned, and its least area.
const BUDGET: u64 = 1 << 30;
/// Buffers of the traffic by Zipf's law, and their bytes.
const BUFFERS: u64 = 1 << 20;
const BUFFER: u64 = 16 << 10;
/// The recording that goes over and over: in each round its processes are others, of so many.
const RECORDED: Recording = replay::SESSIONS;
const ROUNDS: u64 = 16;
/// Processes of a round, at most.
const PROCESSES: u64 = 64;
/// The bits of a program's addresses; a process's number is above them.
const ADDRESS_BITS: u32 = 47;
/// Parts of a stream that are told apart.
const PARTS: u64 = 10;
/// References a second that models are to take, at least.
const FAST: f64 = 1e6;

/// Both caches, with what they have counted.
struct Caches {
    tlb: Tlb<u64>,
    pinning: Pinning,
    /// References to pages, and transfers.
    references: u64,
    transfers: u64,
    hits: u64,
}

/// The counts of a part of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Part {
    references: u64,
    misses: u64,
    transfers: u64,
    hits: u64,
}

impl Part {
    fn misses(self) -> f64 {
        100.0 * self.misses as f64 / self.references.max(1) as f64
    }

    fn hits(self) -> f64 {
        100.0 * self.hits as f64 / self.transfers.max(1) as f64
    }
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: ID, why: why.to_string() }
}

impl Caches {
    fn new() -> Result<Caches, LabError> {
        let pages = BUDGET / PAGE_BYTES;
        Ok(Caches {
            tlb: tlb(ENTRIES / WAYS, WAYS, PAGE_BYTES)?,
            pinning: Pinning::new(pages, Lru::default(), false).map_err(failed)?,
            references: 0,
            transfers: 0,
            hits: 0,
        })
    }

    /// A transfer of a process.
    fn take(&mut self, process: u64, address: u64, bytes: u64) -> Result<(), LabError> {
        let address = process << ADDRESS_BITS | (address & ((1 << ADDRESS_BITS) - 1));
        self.transfers += 1;
        self.hits += u64::from(self.pinning.is_hit(address, bytes).map_err(failed)?);
        for page in address / PAGE_BYTES..=(address + bytes - 1) / PAGE_BYTES {
            look_up(&mut self.tlb, process, page * PAGE_BYTES);
            self.references += 1;
        }
        Ok(())
    }

    fn counted(&self) -> Part {
        Part {
            references: self.references,
            misses: self.tlb.counters().misses(),
            transfers: self.transfers,
            hits: self.hits,
        }
    }
}

/// A stream through both caches.
struct Streamed {
    name: &'static str,
    /// The counts at the end of each part.
    parts: Vec<Part>,
    /// The most that was ever pinned, bytes, and the entries in use at the end.
    pinned: u64,
    entries: usize,
    /// References a second, on this machine.
    speed: f64,
}

/// Sends a stream through both caches until there were so many references. `next` makes one
/// transfer after the other: process, address, bytes.
fn streamed(
    name: &'static str,
    count: u64,
    run: &mut Run<'_>,
    from: f64,
    mut next: impl FnMut() -> Result<(u64, u64, u64), LabError>,
) -> Result<Streamed, LabError> {
    let mut caches = Caches::new()?;
    let mut parts = Vec::new();
    let start = now_ns();
    for part in 1..=PARTS {
        run.progress(from + 0.4 * part as f64 / PARTS as f64, name);
        while caches.references < count / PARTS * part {
            let (process, address, bytes) = next()?;
            caches.take(process, address, bytes)?;
        }
        parts.push(caches.counted());
    }
    let seconds = now_ns().saturating_sub(start) as f64 / 1e9;
    Ok(Streamed {
        name,
        parts,
        pinned: caches.pinning.counters().most.bytes,
        entries: caches.tlb.entries(),
        speed: caches.references as f64 / seconds.max(1e-9),
    })
}

/// The transfers of a recording, decoded anew each time it is over.
fn over_and_over() -> Result<impl FnMut() -> Result<(u64, u64, u64), LabError>, LabError> {
    let mut stream = Stream::of(RECORDED).map_err(failed)?;
    Ok(move || {
        let (round, it) = stream.next_touched().map_err(failed)?;
        let process = round % ROUNDS * PROCESSES + u64::from(it.process) % PROCESSES;
        Ok((process, it.address, it.bytes))
    })
}

/// Runs the experiment.
///
/// # Errors
/// The recording is damaged, or a cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(100_000, 100_000_000);
    let mut random = run.random(1);
    let law = Zipf::new(&mut random, run.pick(BUFFERS / 16, BUFFERS));
    let all = [
        streamed("sessions, over and over", count, run, 0.0, over_and_over()?)?,
        streamed("Zipf", count, run, 0.4, || Ok((0, law.pick(&mut random) * BUFFER, BUFFER)))?,
    ];
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Misses of the TLB and hits of the cache, tenth by tenth",
        Axis::linear("references, % of all"),
        Axis::linear("%"),
    );
    for it in &all {
        add(&mut outcome, &mut plot, it, run.here());
    }
    outcome.plots.push(plot);
    let here = match run.here() {
        true => Ok(measured(run, &mut outcome, &all)?),
        false => Err("this machine was not to be measured".to_owned()),
    };
    judge(&mut outcome, &all, here);
    outcome.note(format!(
        "Ours. Each stream has {count} references to pages of 4 KB, which go one by one, as they \
         are made or decoded, through the library's TLB ({ENTRIES} entries, {WAYS}-way) and, a \
         transfer at a time, through its pin-down cache with room for 1 GiB, both on one \
         processor. Nothing of a stream is kept. The recording is that of `unet-tlb`'s sessions; \
         in each round its processes are new ones, of {ROUNDS} rounds in turn. The other stream \
         has {} buffers of 16 KiB by Zipf's law.",
        run.pick(BUFFERS / 16, BUFFERS)
    ));
    Ok(outcome)
}

fn add(outcome: &mut Outcome, plot: &mut Plot, it: &Streamed, here: bool) {
    let whole = it.parts.last().copied().unwrap_or_default();
    for (quantity, unit, model) in [
        ("references", "", whole.references as f64),
        ("misses of the TLB", "%", whole.misses()),
        ("hits of the pin-down cache", "%", whole.hits()),
        ("pinned at most", "MiB", it.pinned as f64 / (1 << 20) as f64),
        ("entries in use", "", it.entries as f64),
    ] {
        outcome.values.push(Value::new(quantity, it.name, "", unit).model(model));
    }
    if here {
        let value = Value::new("references a second", it.name, "TLB and pin-down cache", "");
        outcome.values.push(value.here(it.speed));
    }
    let mut before = Part::default();
    let (mut misses, mut hits) = (Vec::new(), Vec::new());
    for (at, part) in it.parts.iter().enumerate() {
        let tenth = Part {
            references: part.references - before.references,
            misses: part.misses - before.misses,
            transfers: part.transfers - before.transfers,
            hits: part.hits - before.hits,
        };
        let x = 100.0 * (at + 1) as f64 / PARTS as f64;
        misses.push((x, tenth.misses()));
        hits.push((x, tenth.hits()));
        before = *part;
    }
    plot.add(&format!("{}, misses", it.name), Column::Model, misses);
    plot.add(&format!("{}, hits", it.name), Column::Model, hits);
}

/// The speeds of this machine, references a second, with their names.
type Speeds = Vec<(String, f64)>;

/// Measures the models, and says how much memory this process took at most.
fn measured(
    run: &mut Run<'_>,
    outcome: &mut Outcome,
    all: &[Streamed],
) -> Result<Speeds, LabError> {
    let mut found: Speeds = all.iter().map(|it| (it.name.to_owned(), it.speed)).collect();
    // Before the models, which keep a trace for Belady's.
    if let Some(mib) = speeds::most_resident_mib() {
        outcome.values.push(Value::new("memory at most", "this process", "", "MiB").here(mib));
    }
    run.progress(0.8, "models");
    for (name, speed) in speeds::of_models(run.pick(200_000, 5_000_000)).map_err(failed)? {
        let value = Value::new("references a second", name, "", "");
        outcome.values.push(value.here(speed));
        found.push((name.to_owned(), speed));
    }
    Ok(found)
}

fn judge(outcome: &mut Outcome, all: &[Streamed], here: Result<Speeds, String>) {
    let bounded = all.iter().all(|it| it.pinned <= BUDGET && it.entries <= ENTRIES);
    let words: Vec<String> = all
        .iter()
        .map(|it| format!("{}: {} MiB and {} entries", it.name, it.pinned >> 20, it.entries))
        .collect();
    outcome.claims.push(Claim::modelled(
        "however long a stream is, no more is kept than the budget and the entries",
        Finding::of(bounded, words.join("; ")),
        "the model's state is the same on every machine",
    ));
    let claim = Claim::modelled(
        "each model takes a million references a second or more",
        Finding::not_measured("a speed is of a machine"),
        "",
    );
    outcome.claims.push(claim.and_here(match here {
        Err(why) => Finding::not_measured(why),
        Ok(found) => {
            let words: Vec<String> = found
                .iter()
                .map(|(name, speed)| format!("{name} {:.1} million", speed / 1e6))
                .collect();
            Finding::of(found.iter().all(|it| it.1 >= FAST), words.join(", "))
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_counted_once() {
        let mut caches = Caches::new().unwrap();
        caches.take(1, 4000, 200).unwrap();
        caches.take(1, 4000, 100).unwrap();
        caches.take(2, 4000, 100).unwrap();
        let expected = Part { references: 6, misses: 4, transfers: 3, hits: 1 };
        assert_eq!(caches.counted(), expected);
        assert_eq!((expected.misses(), expected.hits()), (400.0 / 6.0, 100.0 / 3.0));
    }

    #[test]
    fn rounds_have_other_processes_and_the_same_transfers() {
        let one: Vec<_> = crate::trace::touched::touched(&RECORDED).unwrap();
        let mut next = over_and_over().unwrap();
        for round in [0, 1] {
            for it in &one {
                let process = round * PROCESSES + u64::from(it.process);
                assert_eq!(next().unwrap(), (process, it.address, it.bytes));
            }
        }
        assert!(u64::from(one.iter().map(|it| it.process).max().unwrap()) < PROCESSES);
    }
}
