//! `bmo-ddr5`: a copy engine of today: what asking for a copy, page splits and coherence cost on
//! DDR5. Beyond the paper.

use pinfold::reassembly::gather::Costs;

use super::tables::size;
use crate::{
    LabError,
    experiment::Run,
    here::copying::beyond_caches,
    models::present::{FREE, Present, With},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    random::Random,
};

/// From a copy that is wanted to its first access, ns. For comparison: a write across PCIe and a
/// descriptor that is fetched take some 500 ns (taken, as in `bmo-engine`).
const SUBMISSIONS_NS: [f64; 6] = [0.0, 100.0, 250.0, 500.0, 1000.0, 2000.0];
const BLOCKS: [u64; 7] = [256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const PAGES: [(u64, &str); 3] = [(4 << 10, "4 KB"), (64 << 10, "64 KB"), (2 << 20, "2 MB")];
/// Finding the frames of a page, ns: a hit of an IOTLB and up, to a walk of several levels from
/// memory (taken).
const TRANSLATIONS_NS: [f64; 4] = [0.0, 50.0, 200.0, 500.0];
/// The caches' answer, ns: within a socket some 20 to 70, across sockets over 100 (taken).
const SNOOPS_NS: [f64; 4] = [0.0, 30.0, 60.0, 120.0];
const ASKED: [usize; 4] = [4, 16, 64, 256];
const DIRTY: [u64; 3] = [0, 50, 100];
/// Blocks of the sweeps of pages and of coherence.
const BLOCK: u64 = 256 << 10;
/// Bytes of memory that blocks lie in.
const MEMORY: u64 = 1 << 30;
const NOT_HERE: &str = "this machine's copy engine, if it has one, is not at hand";

/// The place of a page: any frame of its own size; of a block that is shorter, anywhere in it.
fn place(random: &mut Random, side: usize, page_bytes: u64, block: u64) -> u64 {
    const STEP: u64 = 4096;
    let room = page_bytes.saturating_sub(block) / STEP + 1;
    let frame = random.below(MEMORY / page_bytes) * page_bytes;
    (side as u64) * MEMORY + frame + random.below(room) * STEP
}

/// Copies so many blocks, and returns the time of one, ns.
fn each_ns(with: With, block: u64, count: u64, random: &mut Random) -> f64 {
    let mut engine = Present::new(with);
    for _ in 0..count {
        engine.copy(block, |side, _| place(random, side, with.page_bytes, block));
    }
    engine.end_ns() / count as f64
}

/// The part of the memory's peak that copies of [`BLOCK`] reach, %.
fn used(run: &Run<'_>, with: With, stream: u64) -> f64 {
    let count = run.pick(2, 64);
    let ns = each_ns(with, BLOCK, count, &mut run.random(stream));
    let peak = 2.0 * Present::memory().peak() / 1000.0;
    100.0 * (2 * BLOCK) as f64 / ns / peak
}

/// A processor's copy, by the costs that the library begins with, ns.
fn by_processor(bytes: u64) -> f64 {
    Costs::DEFAULT.copy_byte_ns * bytes as f64
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let least = submissions(run, &mut outcome);
    run.progress(0.5, "pages");
    let split = pages(run, &mut outcome);
    run.progress(0.7, "coherence");
    let asked = coherence(run, &mut outcome);
    run.progress(0.9, "this machine");
    here(run, &mut outcome);
    judge(&mut outcome, &least, &split, &asked);
    outcome.note(
        "Ours: the engine of `bmo-engine` with what today's has beside it, over a module of \
         DDR5-4800 by the standard's timing: a copy is asked for and starts that much later, each \
         page of source and destination lies in any frame and has to be translated, and the \
         caches are asked for each line, so many at a time, before memory may have it; a line \
         that a cache has written it hands out itself. Latencies of submission, translation and \
         caches are axes and not data sheets'. An engine whose copies are queued takes the next \
         one up when the last has ended.",
    );
    outcome.note(
        "The processor that it is compared with copies at 0.066 ns a byte: the library's own \
         cost of memory that is not cached, measured on a present-day virtual machine. It has no \
         submission; the engine leaves it free to do something else, which is not counted.",
    );
    Ok(outcome)
}

/// By submission: the least block of the axis from which on the engine is faster.
type Least = Vec<(f64, Option<u64>)>;

fn submissions(run: &mut Run<'_>, outcome: &mut Outcome) -> Least {
    let mut plot =
        Plot::new("Copies asked for one by one, DDR5-4800", Axis::log("bytes"), Axis::log("MB/s"));
    let mut all = Least::new();
    for (at, submission_ns) in SUBMISSIONS_NS.into_iter().enumerate() {
        run.progress(0.5 * at as f64 / SUBMISSIONS_NS.len() as f64, "submission");
        let with = With { submission_ns, is_queued: false, ..FREE };
        let series = format!("{submission_ns:.0} ns");
        let mut points = Vec::new();
        let mut slower = None;
        for (at, block) in BLOCKS.into_iter().enumerate() {
            let count = (run.pick(1 << 20, 32 << 20) / block).clamp(2, 64);
            let ns = each_ns(with, block, count, &mut run.random(block));
            let rate = 1000.0 * block as f64 / ns;
            let value =
                Value::new("copied", &format!("submission of {series}"), size(block), "MB/s");
            outcome.values.push(value.model(rate));
            points.push((block as f64, rate));
            if ns >= by_processor(block) {
                slower = Some(at);
            }
        }
        plot.add(&series, Column::Model, points);
        let least = BLOCKS.get(slower.map_or(0, |at| at + 1)).copied();
        let value = Value::new("faster than a processor from", "engine", series, "B");
        outcome.values.push(match least {
            Some(block) => value.model(block as f64),
            None => value.note("not up to 1 MB"),
        });
        all.push((submission_ns, least));
    }
    let processor = BLOCKS.map(|block| (block as f64, 1000.0 * block as f64 / by_processor(block)));
    plot.add("processor", Column::Model, processor.into());
    outcome.plots.push(plot);
    all
}

/// The part of the peak by page, translation, and if the next page is translated ahead.
type Split = Vec<[[f64; 2]; TRANSLATIONS_NS.len()]>;

fn pages(run: &Run<'_>, outcome: &mut Outcome) -> Split {
    let mut plot = Plot::new(
        "Page splits: blocks of 256 KB, queued",
        Axis::linear("translation of a page, ns"),
        Axis::linear("% of the peak"),
    );
    let mut all = Split::new();
    for (page_bytes, page) in PAGES {
        let mut of_page = [[0.0; 2]; TRANSLATIONS_NS.len()];
        for (parts, translation_ns) in of_page.iter_mut().zip(TRANSLATIONS_NS) {
            for (part, is_ahead) in parts.iter_mut().zip([false, true]) {
                let with = With { page_bytes, translation_ns, is_ahead, ..FREE };
                *part = used(run, with, page_bytes);
                let how = if is_ahead { "ahead" } else { "when it is needed" };
                let series = format!("pages of {page}, translated {how}");
                let at = format!("{translation_ns:.0} ns");
                let value = Value::new("used of the peak", &series, at, "%");
                outcome.values.push(value.model(*part));
            }
        }
        for (way, how) in ["", ", ahead"].into_iter().enumerate() {
            let points = TRANSLATIONS_NS.iter().zip(&of_page).map(|(&x, y)| (x, y[way]));
            plot.add(&format!("{page}{how}"), Column::Model, points.collect());
        }
        all.push(of_page);
    }
    outcome.plots.push(plot);
    all
}

/// The part of the peak by the caches' answer and lines asked for at a time.
type Asked = Vec<[f64; ASKED.len()]>;

fn coherence(run: &Run<'_>, outcome: &mut Outcome) -> Asked {
    let mut plot = Plot::new(
        "Coherence: blocks of 256 KB, queued",
        Axis::log("lines asked for at a time"),
        Axis::linear("% of the peak"),
    );
    let mut all = Asked::new();
    for snoop_ns in SNOOPS_NS {
        let mut of_snoop = [0.0; ASKED.len()];
        for (part, snoops) in of_snoop.iter_mut().zip(ASKED) {
            *part = used(run, With { snoop_ns, snoops, ..FREE }, 9);
            let series = format!("answer after {snoop_ns:.0} ns");
            let at = format!("{snoops} lines at a time");
            let value = Value::new("used of the peak", &series, at, "%");
            outcome.values.push(value.model(*part));
        }
        let points = ASKED.iter().zip(of_snoop).map(|(&x, y)| (x as f64, y));
        plot.add(&format!("{snoop_ns:.0} ns"), Column::Model, points.collect());
        all.push(of_snoop);
    }
    outcome.plots.push(plot);
    for dirty in DIRTY {
        let with = With { snoop_ns: SNOOPS_NS[2], snoops: ASKED[2], dirty, ..FREE };
        let ns = each_ns(with, BLOCK, run.pick(2, 64), &mut run.random(9));
        let at = format!("{dirty} % of the source dirty in a cache");
        let value = Value::new("copied", "answer after 60 ns, 64 lines at a time", at, "MB/s");
        outcome.values.push(value.model(1000.0 * BLOCK as f64 / ns));
    }
    all
}

/// The copies of this machine's processor.
fn here(run: &Run<'_>, outcome: &mut Outcome) {
    if !run.here() {
        return;
    }
    if let Ok(found) = beyond_caches(run.pick(64 << 20, 512 << 20), run.pick(3, 9)) {
        for (at, rate) in [("slowest place", found.least), ("fastest place", found.most)] {
            let value = Value::new("copied", "processor, beyond the caches", at, "MB/s");
            outcome.values.push(value.here(rate));
        }
    }
}

fn judge(outcome: &mut Outcome, least: &Least, split: &Split, asked: &Asked) {
    let far = |it: Option<u64>| it.unwrap_or(u64::MAX);
    let words: Vec<String> = least
        .iter()
        .map(|(ns, it)| match it {
            Some(block) => format!("{ns:.0} ns: {}", size(*block)),
            None => format!("{ns:.0} ns: not up to 1 MB"),
        })
        .collect();
    let (first, last) = (least[0].1, least[least.len() - 1].1);
    outcome.claims.push(Claim::modelled(
        "the longer a copy takes to be asked for, the longer the blocks for which the engine pays",
        Finding::of(
            least.windows(2).all(|pair| far(pair[0].1) <= far(pair[1].1)) && far(first) < far(last),
            words.join(", "),
        ),
        NOT_HERE,
    ));
    let [small, .., large] = &split[..] else { return };
    let late = TRANSLATIONS_NS.len() - 1;
    outcome.claims.push(Claim::modelled(
        "pages of 4 KB that are translated when they are needed take over half of the bandwidth \
         away, and pages of 2 MB next to nothing",
        Finding::of(
            small[late][0] < small[0][0] / 2.0 && large[late][0] > 0.9 * large[0][0],
            format!(
                "{:.0} ns a page: {:.1} % of the peak in place of {:.1} % with 4 KB, {:.1} % in \
                 place of {:.1} % with 2 MB",
                TRANSLATIONS_NS[late], small[late][0], small[0][0], large[late][0], large[0][0]
            ),
        ),
        NOT_HERE,
    ));
    outcome.claims.push(Claim::modelled(
        "translating ahead hides it",
        Finding::of(
            (0..split.len()).all(|at| split[at][late][1] > 0.9 * split[at][0][1]),
            format!("{:.1} % of the peak with 4 KB", small[late][1]),
        ),
        NOT_HERE,
    ));
    let [free, .., slow] = &asked[..] else { return };
    outcome.claims.push(Claim::modelled(
        "an engine that asks the caches for few lines at a time is bound by their answers, one \
         that asks for many by memory",
        Finding::of(
            slow[0] < free[0] / 4.0 && slow[ASKED.len() - 1] > 0.9 * free[ASKED.len() - 1],
            format!(
                "answers after {:.0} ns: {:.1} % of the peak with {} lines at a time, {:.1} % with \
                 {}; {:.1} % if nobody is asked",
                SNOOPS_NS[SNOOPS_NS.len() - 1],
                slow[0],
                ASKED[0],
                slow[ASKED.len() - 1],
                ASKED[ASKED.len() - 1],
                free[0]
            ),
        ),
        NOT_HERE,
    ));
}
