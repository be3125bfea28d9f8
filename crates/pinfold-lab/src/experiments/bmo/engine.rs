//! `bmo-engine`: a copy engine in the memory controller (Figure 6.2).

mod ddr5;

use crate::{
    LabError,
    experiment::Run,
    models::dram::{Controller, DDR333, DDR400, Dram},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    random::Random,
};

const BUFFERS: [u64; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
const BLOCKS: [u64; 5] = [256, 1024, 4096, 16_384, 65_536];
/// Bytes of memory that blocks lie in.
const MEMORY: u64 = 1 << 30;
const NOT_HERE: &str = "this machine's memory controller has no copy engine";

/// The places of source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// In any banks.
    Random,
    /// Never in the same bank at the same time.
    Apart,
    /// Always in the same bank, in different rows.
    Together,
}

impl Places {
    const ALL: [Places; 3] = [Places::Random, Places::Apart, Places::Together];

    fn words(self) -> &'static str {
        match self {
            Places::Random => "any banks",
            Places::Apart => "different banks",
            Places::Together => "the same bank",
        }
    }

    /// A source and a destination of so many bytes, aligned to their size.
    fn pick(self, dram: &Dram, block: u64, random: &mut Random) -> (u64, u64) {
        let unit = block.max(dram.row_bytes * dram.banks);
        let mut at = |end: u64| random.below(end);
        let (from, to) = (at(MEMORY / unit) * unit, (MEMORY + at(MEMORY / unit) * unit));
        let offset = at(unit / block) * block;
        let banks = match self {
            Places::Random => at(dram.banks),
            Places::Apart => 1,
            Places::Together => 0,
        };
        (from + offset, to + offset + banks * dram.row_bytes)
    }
}

/// The part of the peak that `count` copies reach, percent.
fn used(
    dram: Dram,
    places: Places,
    (block, buffer): (u64, u64),
    count: u64,
    random: &mut Random,
) -> f64 {
    let mut controller = Controller::new(dram);
    for _ in 0..count {
        let (from, to) = places.pick(&dram, block, random);
        controller.copy(from, to, block, buffer);
    }
    100.0 * controller.used(2 * block * count)
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let bytes = run.pick(4 << 20, 256 << 20);
    let count = |block: u64| (bytes / block).clamp(64, 4096);
    let mut outcome = Outcome::new();
    let mut plot =
        Plot::new("Figure 6.2: DDR400, any banks", Axis::log("buffer, bytes"), Axis::linear("%"));
    let mut grows = true;
    for (at, block) in BLOCKS.into_iter().enumerate() {
        run.progress(at as f64 / BLOCKS.len() as f64, "blocks");
        let mut points: Vec<(f64, f64)> = Vec::new();
        for buffer in BUFFERS.into_iter().filter(|buffer| *buffer <= block) {
            // The same blocks for each buffer.
            let mut random = run.random(block);
            let part = used(DDR400, Places::Random, (block, buffer), count(block), &mut random);
            grows &= points.last().is_none_or(|last| part >= last.1);
            points.push((buffer as f64, part));
            let series = format!("blocks of {block} B");
            let value = Value::new("used of the peak", &series, format!("{buffer} B"), "%");
            outcome.values.push(value.model(part));
        }
        plot.add(&format!("{block} B"), Column::Model, points);
    }
    plot.add("over 90 % with 1 KB", Column::Paper, vec![(1024.0, 90.0)]);
    let mut parts = Vec::new();
    for dram in [DDR400, DDR333] {
        for places in Places::ALL {
            let mut random = run.random(7);
            let part = used(dram, places, (65_536, 1024), count(65_536), &mut random);
            let place = format!("1,024 B, {}", places.words());
            let value = Value::new("used of the peak", dram.name, place, "%").model(part);
            outcome.values.push(match (dram == DDR400, places) {
                (true, Places::Random) => value.paper(90.0, "section 6.2, \"over 90 %\""),
                _ => value,
            });
            parts.push(part);
        }
        let value = Value::new("peak", dram.name, "", "MB/s").model(dram.peak());
        outcome.values.push(value);
    }
    let cycles = 2400.0 / DDR400.peak();
    let value = Value::new("peak of a processor of 2.4 GHz", DDR400.name, "", "cycles/B");
    outcome.values.push(value.paper(0.375, "section 4.3").model(cycles));
    outcome.claims = vec![
        Claim::modelled(
            "a buffer of 1 KB is enough for over 90 % of the peak, wherever the blocks are",
            Finding::of(
                parts[0] > 90.0,
                format!(
                    "{:.1} % with blocks in any banks, {:.1} % if source and destination are in \
                     different banks, {:.1} % in the same",
                    parts[0], parts[1], parts[2]
                ),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "over 90 % of the peak with 1 KB if source and destination are in different banks",
            Finding::of(parts[1] > 90.0, format!("{:.1} %", parts[1])),
            NOT_HERE,
        ),
        Claim::modelled(
            "a larger buffer is never worse, for blocks of any size",
            Finding::of(grows, format!("buffers of {BUFFERS:?} bytes up to the block's size")),
            NOT_HERE,
        ),
    ];
    outcome.plots.push(plot);
    ddr5::add(run, &mut outcome);
    outcome.note(
        "The memory's timing is that of data sheets; nothing is fitted. The engine reads a buffer \
         full, writes it, and goes on; its controller keeps rows open, opens a row as soon as the \
         bank allows, and does not refresh. The paper does not say where its blocks lay. If both \
         are in one bank, each turn of the buffer has to close one row and open another, which \
         1 KB cannot hide: blocks in any banks meet this one time in four, which costs the mean \
         what is missing to 90 %. An engine that may choose the order of blocks, as the paper \
         proposes, avoids some of it.",
    );
    outcome.note(
        "The comparison with the best copy of a processor, up to 20 %, is made by \
         `bmo-copybench`, which has a model of the processor's caches and prefetch.",
    );
    Ok(outcome)
}
