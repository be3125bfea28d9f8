//! `ape-elapsed`: elapsed time and throughput of three drivers (Tables 5.2 and 5.3).

use super::{
    NO_ADAPTER,
    tables::{
        ELAPSED_SCDA, ELAPSED_SCDB, ELAPSED_TWO_COPY, SIZES, THROUGHPUT_SCDA, THROUGHPUT_SCDB,
        THROUGHPUT_TWO_COPY,
    },
};
use crate::{
    LabError,
    clock::Time,
    experiment::Run,
    models::{
        ape25::{Ape25, Frame, LOAD_BYTES},
        driver::{Costs, Driver, pages_of},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value, Verdict},
};

const DRIVERS: [Driver; 3] = [Driver::TwoCopy, Driver::Scda, Driver::Scdb];

/// How nearly equal "nearly equal" is: what Table 5.2 has from 536 bytes on, as a part.
const NEARLY: f64 = 0.015;
/// The size from which on it is.
const NEARLY_FROM: u64 = 536;

/// The paper's columns of a driver: elapsed time, throughput.
fn stated(driver: Driver) -> [&'static [f64; 20]; 2] {
    match driver {
        Driver::Scda => [&ELAPSED_SCDA, &THROUGHPUT_SCDA],
        Driver::Scdb => [&ELAPSED_SCDB, &THROUGHPUT_SCDB],
        Driver::TwoCopy | Driver::Scdc => [&ELAPSED_TWO_COPY, &THROUGHPUT_TWO_COPY],
    }
}

/// The time for the load by a driver, s.
fn elapsed_s(driver: Driver, bytes: u64, count: usize) -> f64 {
    let host = Time::from_us(Costs::fitted().host_us(driver, bytes));
    Ape25::fitted().elapsed_s(bytes, count, |at| {
        let pieces = if driver.is_scattered() { pages_of(at, bytes) as u32 } else { 1 };
        Frame { bytes, pieces, host }
    })
}

fn throughput(seconds: f64) -> f64 {
    LOAD_BYTES * 8.0 / 1e6 / seconds
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(256, 4096);
    let mut outcome = Outcome::new();
    let (mut model, mut plots) = (Vec::new(), plots());
    for (at, driver) in DRIVERS.into_iter().enumerate() {
        run.progress(at as f64 / 3.0, driver.name());
        let times = SIZES.map(|bytes| elapsed_s(driver, bytes, count));
        let rates = times.map(throughput);
        let [paper_times, paper_rates] = stated(driver);
        for (quantity, unit, table, paper, own) in [
            ("elapsed time", "s", "Table 5.2", paper_times, &times),
            ("throughput", "Mbit/s", "Table 5.3", paper_rates, &rates),
        ] {
            for at in 0..SIZES.len() {
                let value = Value::new(quantity, driver.name(), format!("{} B", SIZES[at]), unit);
                let value = value.paper(paper[at], table).model(own[at]);
                // The engine's time for a frame was fitted to Table 5.6 at this size.
                outcome.values.push(value.fitted_if(SIZES[at] == 136));
            }
        }
        for (plot, [own, paper]) in
            plots.iter_mut().zip([[&times, paper_times], [&rates, paper_rates]])
        {
            for (column, values) in [(Column::Model, own), (Column::Paper, paper)] {
                let points = SIZES.iter().zip(values).map(|(&bytes, &value)| (bytes as f64, value));
                plot.add(driver.name(), column, points.collect());
            }
        }
        model.push(times);
    }
    outcome.plots.extend(plots);
    judge(&mut outcome, &model);
    outcome.note(
        "The model: the line sends cells of 53 bytes, 48 of them payload, at 25.6 Mbit/s; a frame \
         has a trailer of 8 bytes; the engine that reads descriptors and fetches cells, and its \
         three buffers, are those of ape-gather, whose parameters are fitted there to three cells \
         of Table 5.6. The host's time for a frame is that of ape-system. Nothing is fitted to \
         Tables 5.2 and 5.3, but Table 5.6 has the same frames of 136 bytes, so these count for \
         nothing here. The line alone, without the engine, would give 19.7 s at 336 bytes and 17.5 \
         s at 3,936, 7 % and 2 % below the paper.",
    );
    Ok(outcome)
}

fn plots() -> [Plot; 2] {
    let x = || Axis::linear("frame, bytes");
    [
        Plot::new("Figure 5.2: elapsed time for 50 MB", x(), Axis::linear("elapsed time, s")),
        Plot::new("Figure 5.3: throughput", x(), Axis::linear("throughput, Mbit/s")),
    ]
}

/// The sizes at which a frame of the next larger size has less throughput than this one.
fn falls(rates: impl Fn(usize) -> f64) -> Vec<u64> {
    (1..SIZES.len()).filter(|&at| rates(at) < rates(at - 1)).map(|at| SIZES[at]).collect()
}

fn judge(outcome: &mut Outcome, model: &[[f64; 20]]) {
    let spread = |at: usize| {
        let all = || model.iter().map(|times| times[at]);
        all().fold(0.0, f64::max) / all().fold(f64::MAX, f64::min) - 1.0
    };
    let from = SIZES.iter().position(|&bytes| bytes == NEARLY_FROM).unwrap_or(0);
    let widest = (from..SIZES.len()).map(spread).fold(0.0, f64::max);
    let of_model = falls(|at| throughput(model[0][at]));
    let of_paper = falls(|at| THROUGHPUT_TWO_COPY[at]);
    outcome.claims = vec![
        Claim::modelled(
            "from 536 bytes on all drivers take nearly the same time",
            Finding::of(
                widest <= NEARLY,
                format!(
                    "the slowest takes {:.2} % more than the fastest at most; in Table 5.2 it is \
                     1.2 %",
                    widest * 100.0
                ),
            ),
            NO_ADAPTER,
        ),
        Claim::modelled(
            "throughput is a saw-tooth: it falls at 1,536, 2,736 and 3,936 bytes, where a cell \
             more is nearly empty, and rises elsewhere",
            Finding::of(
                of_model == of_paper,
                format!("it falls at {of_model:?} in the model, at {of_paper:?} in Table 5.3"),
            ),
            NO_ADAPTER,
        ),
        Claim::modelled(
            "SCDA takes much longer than two-copy at 336 bytes, and is always slower",
            Finding::new(
                Verdict::PaperContradictsItself,
                "section 5.1 and chapter 6 say so; by Table 5.2 it takes 21.08 s against 21.09 s \
                 at 336 bytes, and by Table 5.3 it is faster at 10 sizes from 936 to 2,736 bytes",
            ),
            NO_ADAPTER,
        ),
    ];
}
