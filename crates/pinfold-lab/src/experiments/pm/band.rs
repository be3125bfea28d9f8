//! `pm-band`: bandwidth by size and hit ratio (Figures 2 and 5).

use crate::{
    LabError,
    experiment::Run,
    models::pm::{
        LATENCY_US, Pm, band,
        pinning::{HIT_US, mixed},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

/// Hit ratios of Figure 5, of 100.
const RATIOS: [u64; 5] = [0, 25, 50, 75, 100];
const KB: u64 = 1024;
/// The reason why nothing of it is measured here.
const NO_NETWORK: &str = "there is no second host here; pinfold perf tcp measures with one";

/// The model's bandwidth of zero-copy messages, 10^6 bytes a second.
///
/// # Errors
/// The cache refused a transfer.
fn zero_copy(pm: &Pm, bytes: u64, ratio: u64, count: u64) -> Result<f64, LabError> {
    let mixed = mixed(bytes, ratio, count, true);
    let mixed = mixed.map_err(|why| LabError::Failed { id: "pm-band", why })?;
    // A hit is part of the time without pinning.
    Ok(band(bytes, pm.zero_copy_us(bytes) + mixed.mean_us - HIT_US))
}

/// Runs the experiment.
///
/// # Errors
/// The cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let pm = Pm::fitted();
    let count = run.pick(400, 10_000);
    let per_octave = run.pick(1, 4);
    let sizes = super::sizes(4 * KB, 1024 * KB, per_octave);
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Figures 2 and 5: bandwidth of PM",
        Axis::log("message, bytes"),
        Axis::linear("MB/s"),
    );
    let mut curves = Vec::new();
    for (at, ratio) in RATIOS.into_iter().enumerate() {
        run.progress(at as f64 / RATIOS.len() as f64, "hit ratios");
        let rates: Result<Vec<f64>, LabError> =
            sizes.iter().map(|&bytes| zero_copy(&pm, bytes, ratio, count)).collect();
        let rates = rates?;
        let points = sizes.iter().zip(&rates).map(|(&bytes, &rate)| (bytes as f64, rate));
        plot.add(&format!("zero-copy, {ratio} % hits"), Column::Model, points.collect());
        let last = rates.last().copied().unwrap_or(0.0);
        let series = format!("zero-copy, {ratio} % hits");
        let value = Value::new("bandwidth", &series, "1 MB", "MB/s").model(last);
        outcome.values.push(match ratio {
            0 => value.paper(78.7, "section 6.1").fitted().note(
                "Table 2's miss paid once would give 91.4; paid for pinning and again for \
                 releasing it gives this, which is an inference",
            ),
            100 => value.paper(108.8, "section 6.1").fitted(),
            _ => value,
        });
        curves.push(rates);
    }
    let copied = |bytes: u64| band(bytes, pm.copied_us(bytes));
    let buffered = |bytes: u64| band(bytes, pm.buffered_us(bytes));
    for (name, paper, model) in [
        ("PM 1.0, no copy", 119.0, &buffered as &dyn Fn(u64) -> f64),
        ("PM 1.0, copy", 50.0, &copied),
    ] {
        let value = Value::new("bandwidth", name, "8 KB", "MB/s").paper(paper, "section 2");
        outcome.values.push(value.model(model(8 * KB)));
        let points = sizes.iter().map(|&bytes| (bytes as f64, model(bytes)));
        plot.add(name, Column::Model, points.collect());
        plot.add(name, Column::Paper, vec![(8.0 * KB as f64, paper)]);
    }
    for (ratio, rate) in [(0, 78.7), (100, 108.8)] {
        let name = format!("zero-copy, {ratio} % hits");
        plot.add(&name, Column::Paper, vec![(1024.0 * KB as f64, rate)]);
    }
    outcome.plots.push(plot);
    let latency = Value::new("one way", "PM 1.2", "4 B", "µs").paper(7.5, "section 6.1");
    outcome.values.push(latency.model(LATENCY_US).fitted());
    let crossover = super::crossover(|bytes| band(bytes, pm.zero_copy_us(bytes)) > copied(bytes));
    let value = Value::new("crossover", "zero-copy over copy", "100 % hits", "bytes");
    outcome.values.push(value.paper(8.0 * KB as f64, "section 6.1").model(crossover as f64).note(
        "The paper says that it is when a message is larger than 8 KB, and its sizes are powers of \
         two: between 4 and 8 KB nothing is known",
    ));
    judge(&mut outcome, &sizes, &curves, &copied, &buffered);
    outcome.note(format!(
        "The model: a page goes through the sender's DMA (PCI, 133 MB/s), the wire (160 MB/s) and \
         the receiver's DMA, each with one page at a time; a message begins when the one before is \
         over. The interface's processor adds {:.2} µs to each DMA, fitted to 108.8 MB/s of 1 MB \
         with all hits. From that follow 119 MB/s of PM 1.0, whose chunks of 8 KB are one DMA \
         each, and, with Table 1's copies, its 50 MB/s and the crossover. Pinning is the library's \
         pin-down cache with 1,024 pages, by Table 2's costs.",
        pm.dma_us
    ));
    Ok(outcome)
}

fn judge(
    outcome: &mut Outcome,
    sizes: &[u64],
    curves: &[Vec<f64>],
    copied: &dyn Fn(u64) -> f64,
    buffered: &dyn Fn(u64) -> f64,
) {
    let [none, .., all] = curves else { return };
    let large = || sizes.iter().enumerate().filter(|(_, bytes)| **bytes >= 8 * KB);
    let faster = large().filter(|(at, bytes)| all[*at] > copied(**bytes)).count();
    let below = large().filter(|(at, bytes)| all[*at] < buffered(**bytes)).count();
    let longest = sizes[sizes.len() - 1];
    let last = none[none.len() - 1];
    let ordered = |pair: &[Vec<f64>]| pair[0].iter().zip(&pair[1]).all(|(less, more)| less < more);
    let of = |count: usize| format!("at {count} of {} sizes from 8 KB on", large().count());
    outcome.claims = vec![
        Claim::modelled(
            "from 8 KB on zero-copy with all hits is faster than copying",
            Finding::of(faster == large().count(), of(faster)),
            NO_NETWORK,
        ),
        Claim::modelled(
            "it is always slower than PM 1.0 without copies",
            Finding::of(below == large().count(), of(below)),
            NO_NETWORK,
        ),
        Claim::modelled(
            "even with no hit at all, 1 MB is faster than by copying",
            Finding::of(
                last > copied(longest),
                format!("{last:.1} MB/s against {:.1} MB/s", copied(longest)),
            ),
            NO_NETWORK,
        ),
        Claim::modelled(
            "the more hits, the more bandwidth at every size",
            Finding::of(
                curves.windows(2).all(ordered),
                format!("over hit ratios of {RATIOS:?} % and {} sizes", sizes.len()),
            ),
            NO_NETWORK,
        ),
    ];
}
