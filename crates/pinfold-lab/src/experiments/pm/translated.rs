//! `pm-sends`: an endpoint's own translations, recorded, and replayed in the library's caches.

use std::{cell::RefCell, rc::Rc};

use pinfold::translate::{
    Rights, SpaceId,
    pincache::{Area, Budget, Clock, Evict, Handle, Lru, PinCache, Pinner, Refused},
    tlb::{Geometry, Lookup, Tlb},
};

use crate::{
    LabError,
    experiment::Run,
    here::sends::{self, Sends},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::{Call, Segment, TraceError, replay::SENDS},
};

const ID: &str = "pm-sends";
const PAGE: u64 = 4096;
const HERE: SpaceId = SpaceId(0);
const NOT_HERE: &str = "it is the recording that is replayed";
/// The levels, in their order.
const LEVELS: [Call; 3] = [Call::TlbHit, Call::PinHit, Call::PinMiss];
/// Bytes that the recorded endpoint might have pinned: half of the 8 MiB that its process might
/// lock.
const BUDGET: u64 = 4 << 20;
/// Budgets, MiB.
const BUDGETS: [u64; 4] = [1, 2, 4, 8];
/// Entries of the TLB's first level.
const ENTRIES: [usize; 4] = [16, 64, 256, 1024];
/// The messages of the recording.
const SENT: Sends = Sends { messages: 2000, buffers: 100, bytes: 64 << 10, seed: 1998 };

/// A back end that says which areas are not found any more.
#[derive(Default)]
struct Telling(Rc<RefCell<Vec<Area>>>);

impl Pinner for Telling {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn pin(&mut self, area: Area) -> Result<Handle, Refused> {
        Ok(Handle(area.start))
    }

    fn unpin(&mut self, _handle: Handle, _area: Area) {}

    fn forget(&mut self, area: Area) {
        self.0.borrow_mut().push(area);
    }
}

fn failed(why: impl ToString) -> LabError {
    LabError::Failed { id: ID, why: why.to_string() }
}

/// The recorded translations: the level that answered, and the memory.
fn recorded() -> Result<Vec<(Call, Segment)>, TraceError> {
    let mut all = Vec::new();
    for event in SENDS.events()? {
        let event = event?;
        if LEVELS.contains(&event.call) {
            all.extend(event.segments.iter().map(|segment| (event.call, *segment)));
        }
    }
    Ok(all)
}

/// The level that answers each of some translations: the TLB over the pin-down cache, as an
/// endpoint has them.
fn replayed<E: Evict>(
    asked: &[(Call, Segment)],
    entries: usize,
    budget: u64,
    evict: E,
) -> Result<Vec<Call>, LabError> {
    let gone = Rc::new(RefCell::new(Vec::new()));
    let geometry = Geometry { sets: entries, page_bytes: PAGE, ..Geometry::default() };
    let mut tlb: Tlb<()> = Tlb::new(geometry).map_err(failed)?;
    let telling = Telling(Rc::clone(&gone));
    let mut pins =
        PinCache::with_policy(telling, Budget::of_bytes(budget), evict).map_err(failed)?;
    let mut levels = Vec::with_capacity(asked.len());
    for (_, segment) in asked {
        let is_known = matches!(tlb.look_up(HERE, segment.address, Rights::Read), Lookup::Hit(()));
        let hold = pins.begin(HERE, segment.address, segment.bytes).map_err(failed)?;
        let level = match (hold.pinned(), is_known) {
            (true, _) => Call::PinMiss,
            (false, true) => Call::TlbHit,
            (false, false) => Call::PinHit,
        };
        pins.end(hold);
        for area in gone.borrow_mut().drain(..) {
            tlb.invalidate_range(HERE, area.start, area.len(), |_| ());
        }
        if level != Call::TlbHit {
            let _ = tlb.insert(HERE, segment.address, Rights::ReadWrite, ());
        }
        levels.push(level);
    }
    Ok(levels)
}

fn percent(levels: impl Iterator<Item = Call> + Clone, level: Call) -> f64 {
    let all = levels.clone().count().max(1);
    100.0 * levels.filter(|it| *it == level).count() as f64 / all as f64
}

/// The shares of the levels on this machine, %.
fn here() -> Result<[f64; 3], String> {
    let counters = sends::run(&SENT)?;
    let all = [counters.tlb_hits, counters.pin_hits, counters.pin_misses];
    let sum = all.iter().sum::<u64>().max(1) as f64;
    Ok(all.map(|count| 100.0 * count as f64 / sum))
}

/// Runs the experiment.
///
/// # Errors
/// The recording is damaged, or a cache refused its shape or a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    run.progress(0.0, "replay");
    let asked = recorded().map_err(failed)?;
    let levels = replayed(&asked, 1024, BUDGET, Lru::default())?;
    let mut outcome = Outcome::new();
    let ran = run.here().then(here);
    for (at, level) in LEVELS.into_iter().enumerate() {
        let value = |series| Value::new("answered by", series, level.word(), "%");
        outcome.values.push(value("recorded").model(percent(asked.iter().map(|it| it.0), level)));
        let value = value("replayed").model(percent(levels.iter().copied(), level));
        outcome.values.push(match &ran {
            Some(Ok(shares)) => value.here(shares[at]),
            _ => value,
        });
    }
    let hits = entries(&mut outcome, &asked)?;
    let misses = budgets(&mut outcome, &asked)?;
    let agree = levels.iter().zip(&asked).filter(|(level, it)| **level == it.0).count();
    let shares = LEVELS.map(|level| {
        let recorded = percent(asked.iter().map(|it| it.0), level);
        (recorded - percent(levels.iter().copied(), level)).abs()
    });
    let apart = shares.into_iter().fold(0.0, f64::max);
    let agree = 100.0 * agree as f64 / levels.len().max(1) as f64;
    let mut first = Claim::modelled(
        "the library's TLB and pin-down cache, replayed, give each level the endpoint's share, \
         within two points",
        Finding::of(
            apart <= 2.0,
            format!("{apart:.2} points apart at most; {agree:.1} % at the very same level"),
        ),
        NOT_HERE,
    );
    match ran {
        Some(Ok(shares)) => {
            let off = (shares[2] - percent(asked.iter().map(|it| it.0), Call::PinMiss)).abs();
            let why = format!("the share of misses is {off:.1} points off the recording's");
            first = first.and_here(Finding::of(off < 10.0, why));
        }
        Some(Err(why)) => first = first.and_here(Finding::not_measured(why)),
        None => {}
    }
    let falls = misses.windows(2).all(|two| two[1] <= two[0]);
    outcome.claims = vec![
        first,
        Claim::modelled(
            "a TLB of 64 entries answers all but a few of what one of 1,024 does: a message asks \
             for the page that it begins in",
            Finding::of(
                hits[3] - hits[1] < 10.0,
                format!(
                    "{:.1} %, and {:.1} % with 16 entries, of {:.1} %",
                    hits[1], hits[0], hits[3]
                ),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "misses fall with the budget, down to the compulsory ones where all buffers fit",
            Finding::of(
                falls && misses[3] < misses[2] / 2.0,
                format!(
                    "{:.1}, {:.1}, {:.1} and {:.1} % with 1, 2, 4 and 8 MiB, by LRU",
                    misses[0], misses[1], misses[2], misses[3]
                ),
            ),
            NOT_HERE,
        ),
    ];
    outcome.note(format!(
        "Beyond the paper. `pinfold trace record --translations` recorded a process that sends {} \
         messages of 64 KiB over TCP from {} buffers by Zipf's law, out of memory that its \
         endpoint keeps pinned, 4 MiB at most. What is sent in parts is asked for in parts. The \
         replay is the library's own TLB over its own pin-down cache; it ends each transfer \
         before the next begins, which the endpoint does not, and knows of no time. On this \
         machine the same messages are sent anew, and the endpoint's counters read; the budget is \
         that of the machine's limit. The claims were put when the recording had been replayed \
         once; the first one asked for 95 % of the translations at the very same level before, \
         and failed by one point.",
        SENT.messages, SENT.buffers
    ));
    Ok(outcome)
}

/// The TLB's hits by its entries, %.
fn entries(outcome: &mut Outcome, asked: &[(Call, Segment)]) -> Result<Vec<f64>, LabError> {
    let mut hits = Vec::new();
    for entries in ENTRIES {
        let levels = replayed(asked, entries, BUDGET, Lru::default())?;
        let percent = percent(levels.iter().copied(), Call::TlbHit);
        let value = Value::new("answered by the TLB", "", format!("{entries} entries"), "%");
        outcome.values.push(value.model(percent));
        hits.push(percent);
    }
    let mut plot = Plot::new(
        "Answered by the TLB",
        Axis::log("entries of its first level"),
        Axis::linear("%"),
    );
    let points = ENTRIES.iter().zip(&hits).map(|(&entries, &hits)| (entries as f64, hits));
    plot.add("replayed", Column::Model, points.collect());
    outcome.plots.push(plot);
    Ok(hits)
}

/// The misses by budget, %, of LRU.
fn budgets(outcome: &mut Outcome, asked: &[(Call, Segment)]) -> Result<Vec<f64>, LabError> {
    let mut plot = Plot::new(
        "Pinned for the transfer",
        Axis::log("MiB that may be pinned"),
        Axis::linear("%"),
    );
    let mut of_lru = Vec::new();
    for policy in ["LRU", "CLOCK"] {
        let mut points = Vec::new();
        for mib in BUDGETS {
            let levels = match policy {
                "LRU" => replayed(asked, 1024, mib << 20, Lru::default())?,
                _ => replayed(asked, 1024, mib << 20, Clock::default())?,
            };
            let percent = percent(levels.iter().copied(), Call::PinMiss);
            let value = Value::new("pinned for the transfer", policy, format!("{mib} MiB"), "%");
            outcome.values.push(value.model(percent));
            points.push((mib as f64, percent));
        }
        if policy == "LRU" {
            of_lru = points.iter().map(|it| it.1).collect();
        }
        plot.add(policy, Column::Model, points);
    }
    outcome.plots.push(plot);
    Ok(of_lru)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: u64, bytes: u64) -> (Call, Segment) {
        (Call::TlbHit, Segment { address, bytes })
    }

    #[test]
    fn levels_by_hand() {
        // Two buffers of four pages, and room for one.
        let asked = [
            at(0, 4 * PAGE),
            at(0, 4 * PAGE),
            at(PAGE, PAGE),
            at(PAGE, PAGE),
            at(1 << 20, 4 * PAGE),
            at(PAGE, PAGE),
        ];
        let levels = replayed(&asked, 16, 4 * PAGE, Lru::default()).unwrap();
        use Call::{PinHit, PinMiss, TlbHit};
        // The third begins in another page of what is pinned; the fifth takes the room of the
        // first, whose pages the TLB forgets.
        assert_eq!(levels, [PinMiss, TlbHit, PinHit, TlbHit, PinMiss, PinMiss]);
    }

    #[test]
    fn the_recording_has_a_translation_for_each_message() {
        let asked = recorded().unwrap();
        assert!(asked.len() as u64 >= SENT.messages, "{}", asked.len());
        assert!(asked.iter().all(|it| it.1.bytes <= SENT.bytes as u64));
        let sum: f64 = LEVELS.iter().map(|it| percent(asked.iter().map(|one| one.0), *it)).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
    }
}
