//! `pm-mpi`: bandwidth of MPI (Figure 6).

use crate::{
    LabError,
    experiment::Run,
    models::pm::{
        PAGE_BYTES, Pm, band,
        pinning::{HIT_US, mixed, pages},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const KB: u64 = 1024;
/// The paper's points: hit ratio, bytes, MB/s.
const STATED: [(u64, u64, f64); 3] =
    [(0, 128 * KB, 71.6), (100, 128 * KB, 99.1), (100, 1024 * KB, 103.8)];
/// The bandwidth of the old MPI at 128 KB, MB/s.
const OLD: f64 = 42.8;
/// The crossovers: hit ratio, bytes.
const CROSSOVERS: [(u64, u64); 2] = [(100, 8 * KB), (0, 20 * KB)];
/// Crossovers are looked for up to so many pages.
const CROSSOVER_PAGES: u64 = super::CROSSOVER_BYTES_MAX / PAGE_BYTES;
const NO_NETWORK: &str = "there is no second host here, and no MPI is run by the lab";

/// The time that pinning adds to a message, µs; a hit is part of the time without.
///
/// # Errors
/// The cache refused a transfer.
fn pinning_us(bytes: u64, ratio: u64, count: u64) -> Result<f64, LabError> {
    let mixed = mixed(bytes, ratio, count, true);
    let mixed = mixed.map_err(|why| LabError::Failed { id: "pm-mpi", why })?;
    Ok(mixed.mean_us - HIT_US)
}

/// Runs the experiment.
///
/// # Errors
/// The cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let pm = Pm::fitted();
    let count = run.pick(100, 2000);
    let new = |bytes: u64, ratio: u64| -> Result<f64, LabError> {
        Ok(band(bytes, pm.mpi_us(bytes, pinning_us(bytes, ratio, count)?)))
    };
    let old = |bytes: u64| band(bytes, pm.copied_us(bytes));
    let sizes = super::sizes(KB, 1024 * KB, run.pick(2, 8));
    let mut outcome = Outcome::new();
    let mut plot =
        Plot::new("Figure 6: bandwidth of MPI", Axis::log("message, bytes"), Axis::linear("MB/s"));
    let points = sizes.iter().map(|&bytes| (bytes as f64, old(bytes)));
    plot.add("old", Column::Model, points.collect());
    plot.add("old", Column::Paper, vec![(128.0 * KB as f64, OLD)]);
    let value = Value::new("bandwidth", "old", "128 KB", "MB/s").paper(OLD, "section 6.2");
    outcome.values.push(value.model(old(128 * KB)));
    for ratio in [0, 100] {
        let name = format!("new, {ratio} % hits");
        let rate = |&bytes: &u64| Ok((bytes as f64, new(bytes, ratio)?));
        let points: Result<Vec<_>, LabError> = sizes.iter().map(rate).collect();
        plot.add(&name, Column::Model, points?);
        let here = || STATED.into_iter().filter(|stated| stated.0 == ratio);
        plot.add(&name, Column::Paper, here().map(|(_, at, rate)| (at as f64, rate)).collect());
        for (_, bytes, rate) in here() {
            let value = Value::new("bandwidth", &name, format!("{} KB", bytes / KB), "MB/s");
            outcome.values.push(value.paper(rate, "section 6.2").model(new(bytes, ratio)?));
        }
    }
    outcome.plots.push(plot);
    run.progress(0.5, "crossovers");
    let mut found = Vec::new();
    for (ratio, bytes) in CROSSOVERS {
        // A transfer's pinning depends on its pages alone.
        let of_pages = |pages: u64| pinning_us(pages * PAGE_BYTES, ratio, 2);
        let pinning: Vec<f64> = (1..=CROSSOVER_PAGES).map(of_pages).collect::<Result<_, _>>()?;
        let is_faster = |bytes: u64| {
            let pinning_us = pinning[(pages(bytes) - 1) as usize];
            band(bytes, pm.mpi_us(bytes, pinning_us)) > old(bytes)
        };
        let at = super::crossover(is_faster);
        let value = Value::new("crossover", "new over old", format!("{ratio} % hits"), "bytes");
        outcome.values.push(value.paper(bytes as f64, "section 6.2").model(at as f64));
        found.push(at);
    }
    judge(&mut outcome, &found, new(128 * KB, 0)?, new(128 * KB, 100)?, old(128 * KB));
    outcome.note(
        "Nothing is fitted here. The model of pm-band, and before each message a round trip in \
         which sender and receiver agree. Each pins its memory meanwhile, which costs Table 2's \
         miss for pinning and again for releasing, as in pm-band; since both do it at once, it \
         counts once. The old MPI copies as PM 1.0 does. The crossover is the least size in steps \
         of 64 bytes from which on the new MPI is faster.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, crossovers: &[u64], misses: f64, hits: f64, old: f64) {
    let words: Vec<String> = crossovers.iter().map(|at| format!("{at} bytes")).collect();
    let is_ordered = crossovers.windows(2).all(|pair| pair[0] < pair[1]);
    outcome.claims = vec![
        Claim::modelled(
            "zero-copy pays from a few KB on if it always hits, and later if it never does",
            Finding::of(is_ordered, format!("from {} on", words.join(", and from "))),
            NO_NETWORK,
        ),
        Claim::modelled(
            "even if it never hits, the new MPI is faster than the old one at 128 KB",
            Finding::of(
                misses > old,
                format!("{misses:.1} MB/s, {hits:.1} if it always hits, against {old:.1} MB/s"),
            ),
            NO_NETWORK,
        ),
    ];
}
