//! `vmmr-dvma`: remapping against an IOMMU (section 1).

use super::{failed, sizes, total::at};
use crate::{
    LabError,
    experiment::{Depth, Run},
    models::{
        ppc601::{
            PAGE_BYTES,
            reassembly::{Search, remap},
        },
        sbus::{Iommu, SBUS},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
};

const ID: &str = "vmmr-dvma";
const NOT_HERE: &str = "no program may set up this machine's IOMMU";
/// The paper's rate of remapping 6,144 pages, Gbit/s (section 5), and its factor (section 1).
const STATED: (f64, f64) = (14.7, 15.0);

/// Runs the experiment.
///
/// # Errors
/// The library's bitmap or the page table had no room.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let (mut remapped, mut direct) = (Vec::new(), Vec::new());
    let mut largest = 0;
    for pages in sizes(run.depth() == Depth::Quick) {
        let us = remap(pages, Search::Minimal, true).map_err(failed(ID))?.us;
        let bytes = u64::from(pages) * PAGE_BYTES;
        let rate = (bytes * 8) as f64 / us / 1e3;
        let value = Value::new("bandwidth", "remapping", at(pages), "Gbit/s").model(rate);
        outcome.values.push(value);
        remapped.push((f64::from(pages), rate));
        // As few of the largest pages as hold it: the best case.
        let mut iommu = Iommu::default();
        if iommu.map(bytes, SBUS.large_bytes).is_some() {
            largest = largest.max(bytes);
            let value = Value::new("bandwidth", "IOMMU", at(pages), "Gbit/s");
            outcome.values.push(value.model(SBUS.peak_gbits()));
            direct.push((f64::from(pages), SBUS.peak_gbits()));
        }
    }
    let scattered = Iommu::default().reach(SBUS.small_bytes);
    for (series, bytes, stated) in [
        ("large pages", Iommu::default().reach(SBUS.large_bytes), Some(1.0)),
        ("small pages", scattered, None),
    ] {
        let value = Value::new("largest message", series, "", "MiB");
        let value = value.model(bytes as f64 / (1 << 20) as f64);
        outcome.values.push(match stated {
            Some(stated) => value
                .paper(stated, "section 1")
                .fitted()
                .note("16 entries are stated, and 1 MB: the page of 64 KB is their quotient"),
            None => value,
        });
    }
    let last = remapped.last().map_or(0.0, |point| point.1);
    let factor = last / SBUS.peak_gbits();
    let implied = STATED.0 / STATED.1;
    outcome.values.push(
        Value::new("remapping against the IOMMU", "", at(6144), "")
            .paper(STATED.1, "section 1")
            .model(factor)
            .note(
                "against the bus at its peak, which no device reaches; and 6,144 pages are a \
                 message that this IOMMU cannot map",
            ),
    );
    outcome.values.push(
        Value::new("bandwidth", "IOMMU, by the paper's factor", "", "Gbit/s")
            .paper(implied, "section 1: 14.7 Gbit/s by 15")
            .model(SBUS.gbits(SBUS.between))
            .fitted(),
    );
    let within = remapped.iter().filter(|point| point.0 <= 256.0);
    let best = within.map(|point| point.1 / implied).fold(0.0, f64::max);
    let least = remapped.iter().map(|point| point.1 / implied).fold(f64::MAX, f64::min);
    outcome.claims = vec![
        Claim::modelled(
            "an IOMMU of 16 entries cannot take a message of more than 1 MB, and remapping can",
            Finding::of(
                largest == 1 << 20 && remapped.last().is_some_and(|point| point.0 == 6144.0),
                format!(
                    "256 pages are the most with entries of 64 KB; with scattered pages of 8 KB it \
                     is {} KB",
                    scattered >> 10
                ),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "remapping has fifteen times the IOMMU's bandwidth",
            Finding::new(
                if (0.85..1.15).contains(&(last / implied / STATED.1)) {
                    Verdict::Fitted
                } else {
                    Verdict::Fails
                },
                format!(
                    "{:.1} times {implied:.2} Gbit/s for 6,144 pages, both of which were fitted, \
                     and {factor:.1} times the bus's peak",
                    last / implied
                ),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "and so it has for messages that both can take",
            Finding::of(
                best >= STATED.1 * 0.85,
                format!(
                    "{least:.1} times for 1 page, {best:.1} times at best up to 256 pages, by the \
                     same bandwidth"
                ),
            ),
            NOT_HERE,
        ),
    ];
    let mut plot = Plot::new("Remapping and an IOMMU", Axis::log("pages"), Axis::log("Gbit/s"));
    plot.add("remapping, minimal search", Column::Model, remapped);
    plot.add("IOMMU, bus at its peak", Column::Model, direct);
    outcome.plots.push(plot);
    outcome.note(format!(
        "The paper compares two different rates: that at which remapping makes pages contiguous, \
         while the data rests, and that at which a device behind the IOMMU moves data. Its factor \
         makes the latter {implied:.2} Gbit/s. SBus of 64 bits at 25 MHz has {:.2} Gbit/s at its \
         peak; bursts of 64 bytes with {} clocks between them give {:.2}, which is plausible, and \
         fitted.",
        SBUS.peak_gbits(),
        SBUS.between,
        SBUS.gbits(SBUS.between)
    ));
    outcome.note(
        "Pages of 64 KB have to be contiguous in memory, and a machine that has such pages has \
         little to reassemble: for pages as scattered as those that remapping takes, the limit is \
         a good deal below 1 MB.",
    );
    Ok(outcome)
}
