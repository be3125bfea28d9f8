//! `unet-scale`: pinned memory by the number of processes (sections 2 and 4).

use pinfold::translate::SpaceId;

use super::failed;
use crate::{
    LabError,
    experiment::Run,
    models::unet::{BUFFERS, Interface, PAGE_BYTES, PageState, systems::ATM_MM},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const PROCESSES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Entries of the TLB and of its victim list (section 5.1).
const ENTRIES: u64 = 1024 + 16;

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused its shape.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let rounds = run.pick(4, 64);
    let mib = |pages: u64| (pages * PAGE_BYTES) as f64 / (1 << 20) as f64;
    let (mut regions, mut translated) = (Vec::new(), Vec::new());
    let mut outcome = Outcome::new();
    for processes in PROCESSES {
        let mut random = run.random(processes);
        let mut interface = Interface::new(ATM_MM).map_err(|why| failed("unet-scale", why))?;
        // Each process's buffers are somewhere else, as its address space is laid out at random.
        let starts: Vec<u64> = (0..processes).map(|_| random.below(1 << 28) * PAGE_BYTES).collect();
        let mut most = 0;
        for _ in 0..rounds {
            for (space, start) in starts.iter().enumerate() {
                for buffer in 0..BUFFERS {
                    let address = start + buffer * PAGE_BYTES;
                    interface.offer(SpaceId(space as u64), address, PageState::Present);
                }
                most = most.max(interface.pinned() as u64);
            }
        }
        regions.push((processes as f64, mib(processes * BUFFERS)));
        translated.push((processes as f64, mib(most)));
        let at = processes.to_string();
        let counters = interface.counters();
        for (quantity, series, unit, model) in [
            ("pinned", "regions", "MiB", mib(processes * BUFFERS)),
            ("pinned", "TLB", "MiB", mib(most)),
            (
                "other misses",
                "TLB",
                "%",
                100.0 * counters.misses_other as f64 / counters.look_ups() as f64,
            ),
        ] {
            outcome.values.push(Value::new(quantity, series, &at, unit).model(model));
        }
    }
    let last = |points: &[(f64, f64)]| points.last().map_or(0.0, |point| point.1);
    let (of_regions, of_tlb) = (last(&regions), last(&translated));
    let doubles = regions.windows(2).all(|pair| pair[1].1 == 2.0 * pair[0].1);
    let not_here = "regions of a hundred processes are not pinned for it";
    outcome.claims.push(Claim::modelled(
        "pinned regions grow with the number of processes",
        Finding::of(doubles, format!("{of_regions:.0} MiB with 128 processes")),
        not_here,
    ));
    let bound = mib(ENTRIES);
    outcome.claims.push(Claim::modelled(
        "the memory that a TLB has pinned is bounded by its size, whatever the number of processes",
        Finding::of(
            translated.iter().all(|point| point.1 <= bound) && of_tlb < of_regions,
            format!("{of_tlb:.2} MiB with 128 processes, of {bound:.2} MiB at most"),
        ),
        not_here,
    ));
    let mut plot = Plot::new("Pinned memory", Axis::log("processes"), Axis::log("MiB"));
    plot.add("regions", Column::Model, regions);
    plot.add("TLB", Column::Model, translated);
    outcome.plots.push(plot);
    outcome.note(
        "Each process offers its 64 receive buffers of 4 KiB in turn, and all processes are as \
         active as the others: the worst case for a TLB. The paper states no number here. The TLB \
         is the library's, 1,024 entries, direct-mapped, and a victim list of 16.",
    );
    Ok(outcome)
}
