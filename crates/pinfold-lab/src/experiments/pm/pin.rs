//! `pm-pin`: the cost of pinning (Table 2).

use crate::{
    LabError,
    experiment::Run,
    here::pinning::{CacheCost, cache_cost},
    models::pm::{
        PAGE_BYTES, WIRE_BYTES_PER_S,
        pinning::{HIT_US, mixed},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const PAGES: [u64; 6] = [1, 2, 4, 16, 64, 256];
/// A page on a wire of 100 Gbit/s, µs.
const WIRE_TODAY_US: f64 = 4096.0 * 8.0 / 100e3;

/// Runs the experiment.
///
/// # Errors
/// The model's cache refused a transfer.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let failed = |why| LabError::Failed { id: "pm-pin", why };
    let count = run.pick(2000, 100_000);
    let wire_us = PAGE_BYTES as f64 / WIRE_BYTES_PER_S * 1e6;
    let (turns, calls) = run.pick((9, 40), (49, 200));
    let mut all = Vec::new();
    for (at, &pages) in PAGES.iter().enumerate() {
        run.progress(at as f64 / PAGES.len() as f64, "misses");
        let bytes = pages * PAGE_BYTES;
        let miss = mixed(bytes, 0, count, false).map_err(failed)?;
        let hit = mixed(bytes, 100, count, false).map_err(failed)?;
        let here = match run.here() {
            true => cache_cost(pages as usize, turns, calls),
            false => Err("it was not asked for".into()),
        };
        all.push((pages, hit.mean_us, miss.mean_us, here));
    }
    let mut outcome = Outcome::new();
    for (pages, hit_us, miss_us, here) in &all {
        let at = if *pages == 1 { "1 page".into() } else { format!("{pages} pages") };
        let of_here = |of: fn(&CacheCost) -> f64| here.as_ref().ok().map(|cost| of(cost) / 1e3);
        for (series, paper, model, here) in [
            ("hit", HIT_US, hit_us, of_here(|cost| cost.hit_ns)),
            ("miss", 40.0 + 7.0 * *pages as f64, miss_us, of_here(|cost| cost.miss_ns)),
        ] {
            let value = Value::new("pinning", series, &at, "µs").paper(paper, "Table 2");
            // The table's values are the model's parameters.
            outcome.values.push(value.model(*model).here(here).fitted());
        }
    }
    let wire = Value::new("wire", "Myrinet", "1 page", "µs").paper(25.6, "section 6.1");
    outcome.values.push(wire.model(wire_us));
    let (_, hit_us, miss_us, here) = &all[0];
    outcome.claims = claims(*hit_us, *miss_us, wire_us, here);
    outcome.plots.push(plot(&all));
    outcome.note(
        "The model is the library's own pin-down cache over a back end whose pins take the time \
         that Table 2 states, so hits and misses are the table's, and count for nothing; that the \
         cache hits when it should and misses when it should is counted. A page on the wire is \
         4,096 bytes at Myrinet's 1.28 Gbit/s. Here, misses are those of the same cache with room \
         for one area, over buffers registered with an io_uring, of two areas in turns: a miss \
         pins one and unpins the other. The paper's loop does the same, but does not say whether \
         its miss includes the release.",
    );
    if let Err(why) = here {
        outcome.note(format!("Not measured here: {why}."));
    }
    Ok(outcome)
}

type Row = (u64, f64, f64, Result<CacheCost, String>);

fn plot(all: &[Row]) -> Plot {
    let mut plot =
        Plot::new("Table 2: cost of a transfer's pinning", Axis::log("pages"), Axis::log("µs"));
    for (name, stated, model, here) in [
        (
            "hit",
            (|_| HIT_US) as fn(f64) -> f64,
            (|row| row.1) as fn(&Row) -> f64,
            (|cost| cost.hit_ns) as fn(&CacheCost) -> f64,
        ),
        ("miss", |pages| 40.0 + 7.0 * pages, |row| row.2, |cost| cost.miss_ns),
    ] {
        let points = |of: &dyn Fn(&Row) -> Option<f64>| {
            all.iter().filter_map(|row| Some((row.0 as f64, of(row)?))).collect::<Vec<_>>()
        };
        plot.add(name, Column::Model, points(&|row| Some(model(row))));
        plot.add(name, Column::Paper, points(&|row| Some(stated(row.0 as f64))));
        plot.add(
            name,
            Column::Here,
            points(&|row| row.3.as_ref().ok().map(|cost| here(cost) / 1e3)),
        );
    }
    plot
}

fn claims(hit_us: f64, miss_us: f64, wire_us: f64, here: &Result<CacheCost, String>) -> Vec<Claim> {
    let here = |judge: &dyn Fn(f64, f64) -> Finding| match here {
        Ok(cost) => judge(cost.hit_ns / 1e3, cost.miss_ns / 1e3),
        Err(why) => Finding::not_measured(why.clone()),
    };
    let dear = |miss_us: f64, wire_us: f64, wire: &str| {
        let why = format!("{miss_us:.2} µs against {wire_us:.2} µs on {wire}");
        Finding::of(miss_us > wire_us, why)
    };
    let cheap = |hit_us: f64, miss_us: f64| {
        let why =
            format!("{hit_us:.3} µs against {miss_us:.2} µs, {:.0} times less", miss_us / hit_us);
        // Table 2 has 89 times.
        Finding::of(hit_us * 20.0 < miss_us, why)
    };
    vec![
        Claim {
            sentence: "pinning a page takes longer than sending it".into(),
            model: dear(miss_us, wire_us, "Myrinet"),
            here: here(&|_, miss_us| dear(miss_us, WIRE_TODAY_US, "100 Gbit/s")),
        },
        Claim {
            sentence: "a hit takes less than a twentieth of a miss of one page".into(),
            model: cheap(hit_us, miss_us),
            here: here(&cheap),
        },
    ]
}
