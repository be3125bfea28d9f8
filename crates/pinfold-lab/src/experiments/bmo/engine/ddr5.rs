//! The copy engine over a present memory: two sub-channels of DDR5. Beyond the paper.

use super::{NOT_HERE, Places};
use crate::{
    experiment::Run,
    models::{
        dram::{DDR5_4800, Dram},
        engine::Engine,
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

/// Sub-channels of a module.
const CHANNELS: u64 = 2;
const BUFFERS: [u64; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const BLOCKS: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// From the end of a copy to the beginning of one that was asked for then, ns. Taken: the order of
/// a write across a bus and of a descriptor that is fetched.
const SUBMISSION_NS: f64 = 500.0;
const NAME: &str = "DDR5-4800, two sub-channels";

/// The part of the peak that copies reach, percent.
fn used((block, buffer): (u64, u64), submission_ns: f64, run: &Run<'_>) -> f64 {
    let mut engine = Engine::new(DDR5_4800, CHANNELS, submission_ns);
    let mut random = run.random(block ^ 0xDD5);
    let count = (run.pick(1 << 20, 64 << 20) / block).max(4);
    // The rows of all banks of all channels that are open together are one place.
    let places = Dram {
        row_bytes: DDR5_4800.row_bytes * DDR5_4800.groups * CHANNELS,
        banks: 4,
        ..DDR5_4800
    };
    for _ in 0..count {
        let (from, to) = Places::Random.pick(&places, block, &mut random);
        engine.copy(from, to, block, buffer);
    }
    100.0 * engine.used(2 * block * count)
}

/// Adds values, a plot and claims.
pub(super) fn add(run: &mut Run<'_>, outcome: &mut Outcome) {
    let peak = Engine::new(DDR5_4800, CHANNELS, 0.0).peak();
    outcome.values.push(Value::new("peak", NAME, "", "MB/s").model(peak));
    let mut plot = Plot::new(
        "beyond the paper: DDR5-4800, two sub-channels, any banks",
        Axis::log("bytes"),
        Axis::linear("%"),
    );
    let by_buffer: Vec<(f64, f64)> = BUFFERS
        .into_iter()
        .map(|buffer| (buffer as f64, used((64 << 10, buffer), 0.0, run)))
        .collect();
    for (buffer, part) in &by_buffer {
        let value = Value::new("used of the peak", NAME, format!("{buffer} B"), "%");
        outcome.values.push(value.model(*part));
    }
    let enough = by_buffer.iter().find(|it| it.1 > 90.0);
    let at_one = by_buffer[0].1;
    let alone: Vec<(f64, f64)> = BLOCKS
        .into_iter()
        .map(|block| (block as f64, used((block, 16 << 10), SUBMISSION_NS, run)))
        .collect();
    for (block, part) in &alone {
        let at = format!("blocks of {block} B, each asked for after the last");
        outcome.values.push(Value::new("used of the peak", NAME, at, "%").model(*part));
    }
    let said = match enough {
        Some((buffer, part)) => format!("{buffer:.0} B are enough, with {part:.1} %"),
        None => "no buffer up to 64 KB is enough".into(),
    };
    outcome.claims.push(Claim::modelled(
        "beyond the paper: on DDR5 a buffer of 1 KB is not enough any more",
        Finding::of(at_one < 90.0, format!("{at_one:.1} % with 1 KB; {said}")),
        NOT_HERE,
    ));
    let half = alone.iter().find(|it| it.1 > 50.0);
    outcome.claims.push(Claim::modelled(
        "beyond the paper: an engine that is asked for each copy after the last is for long blocks",
        Finding::of(
            alone.windows(2).all(|pair| pair[0].1 < pair[1].1) && alone[0].1 < 50.0,
            format!(
                "{:.0} % with blocks of 4 KB, {}",
                alone[0].1,
                half.map_or("never half of the peak".to_owned(), |it| format!(
                    "over half from {:.0} B on",
                    it.0
                ))
            ),
        ),
        NOT_HERE,
    ));
    plot.add("buffer, blocks of 64 KB, queued", Column::Model, by_buffer);
    plot.add("block, buffer of 16 KB, asked for one by one", Column::Model, alone);
    outcome.plots.push(plot);
    outcome.note(
        "Beyond the paper: the same engine over a module of DDR5-4800 by the standard's timing, \
         with eight groups of banks that consecutive lines take turns in, and two sub-channels \
         that take turns line by line. A burst takes a third of the time that it takes on \
         DDR400 (3.3 against 10 ns), but turning the bus around from writing to reading takes 46 \
         clocks, 19 ns, where it took 5 clocks, 25 ns: that is six bursts instead of two and a \
         half, and a buffer has to be larger to hide it. The 500 ns between a copy and the next, \
         for engines that are asked for one at a time, are taken and not from a data sheet.",
    );
}
