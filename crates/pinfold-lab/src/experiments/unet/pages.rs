//! `unet-pages`: the TLB of a network interface, or of an IOMMU before it, by entries, ways and
//! size of page up to 2 MB, on recorded traces; the pins that it asks for; and what an IOMMU loses
//! by taking each mapping away. Beyond the paper.

use pinfold::translate::{
    SpaceId,
    tlb::{Geometry, Tlb},
};

use super::{failed, shared::look_up};
use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
    trace::{
        replay::{self, Recording},
        touched::{Touched, touched},
    },
};

const ID: &str = "unet-pages";
const NOT_HERE: &str = "the TLB is that of an interface or of an IOMMU";
const ENTRIES: [usize; 5] = [16, 64, 256, 1024, 4096];
const WAYS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of a page that an entry translates.
const PAGES: [(u64, &str); 3] = [(4 << 10, "4 KB"), (64 << 10, "64 KB"), (2 << 20, "2 MB")];
/// Ways, and entries, of the other sweeps.
const MIDDLE: (usize, usize) = (256, 4);
/// More groups of pages than any recording has.
const GROUPS: usize = 1 << 19;
/// Mappings that Linux collects before it empties the IOTLB (`IOVA_DEFAULT_FQ_SIZE` of
/// `drivers/iommu/dma-iommu.c`, from memory; it empties it after 10 ms as well, which here does not
/// count).
const COLLECTED: u64 = 256;
/// The end of a mapping in an IOMMU, when its transfer has ended.
const KEEPING: [&str; 3] = ["taken away at once", "taken away in 256s", "kept"];
const RECORDED: [Recording; 4] = [replay::SESSIONS, replay::SPOOL, replay::BULK, replay::CHAT];

/// The counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    /// Misses, % of look-ups.
    misses: f64,
    /// Those of pages that were asked for before, % of look-ups.
    other: f64,
    /// Pages pinned for each thousand look-ups: each miss pins one.
    pins: f64,
    /// Memory pinned at the end, MiB.
    mib: f64,
}

/// The lives of mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// A page is invalid as soon as its transfer has ended.
    Never,
    /// All are, once so many transfers have ended.
    Some(u64),
    /// Until it has to give way.
    Always,
}

/// Replays the pages of a trace's transfers, in the order in which they were made.
fn replayed(
    trace: &[Touched],
    (entries, ways): (usize, usize),
    page_bytes: u64,
    keep: Keep,
) -> Result<Found, LabError> {
    let sets = entries / ways;
    let geometry = Geometry { sets, ways, victims: 0, page_bytes, history_groups_max: GROUPS };
    let mut tlb: Tlb<u64> = Tlb::new(geometry).map_err(|why| failed(ID, why))?;
    let processes = trace.iter().map(|it| it.process + 1).max().unwrap_or(0);
    let mut ended = 0;
    for it in trace {
        let end = it.address.saturating_add(it.bytes - 1) / page_bytes;
        for page in it.address / page_bytes..=end {
            look_up(&mut tlb, it.process.into(), page * page_bytes);
        }
        ended += 1;
        match keep {
            Keep::Never => {
                tlb.invalidate_range(SpaceId(it.process.into()), it.address, it.bytes, |_| {});
            }
            Keep::Some(count) if ended % count == 0 => {
                for process in 0..processes {
                    tlb.invalidate_range(SpaceId(process.into()), 0, u64::MAX, |_| {});
                }
            }
            _ => {}
        }
    }
    let counters = tlb.counters();
    let part = |count: u64| 100.0 * count as f64 / counters.look_ups().max(1) as f64;
    Ok(Found {
        misses: part(counters.misses()),
        other: part(counters.misses_other),
        pins: 10.0 * part(counters.insertions),
        mib: (tlb.entries() as u64 * page_bytes) as f64 / (1 << 20) as f64,
    })
}

/// By page, ways and entries.
type Sweep = [[[Found; ENTRIES.len()]; WAYS.len()]; PAGES.len()];

fn sweep(trace: &[Touched]) -> Result<Sweep, LabError> {
    let mut all = Sweep::default();
    for (by_ways, (page_bytes, _)) in all.iter_mut().zip(PAGES) {
        for (by_entries, ways) in by_ways.iter_mut().zip(WAYS) {
            for (found, entries) in by_entries.iter_mut().zip(ENTRIES) {
                *found = replayed(trace, (entries, ways), page_bytes, Keep::Always)?;
            }
        }
    }
    Ok(all)
}

/// Runs the experiment.
///
/// # Errors
/// A recording is damaged, or the library's TLB refused its shape.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut outcome = Outcome::new();
    let (mut all, mut kept) = (Vec::new(), Vec::new());
    for (at, recording) in RECORDED.iter().enumerate() {
        run.progress(at as f64 / RECORDED.len() as f64, recording.name);
        let trace =
            touched(recording).map_err(|why| LabError::Failed { id: ID, why: why.to_string() })?;
        let found = sweep(&trace)?;
        add(&mut outcome, recording.name, &found);
        all.push((recording.name, found));
        let mut lives = [Found::default(); KEEPING.len()];
        let keeps = [Keep::Never, Keep::Some(COLLECTED), Keep::Always];
        for ((life, keep), words) in lives.iter_mut().zip(keeps).zip(KEEPING) {
            *life = replayed(&trace, MIDDLE, PAGES[0].0, keep)?;
            let series = format!("{}, 4 KB, {} entries, 4-way", recording.name, MIDDLE.0);
            let value = Value::new("misses by the life of mappings", &series, words, "%");
            outcome.values.push(value.model(life.misses));
        }
        kept.push((recording.name, lives));
    }
    judge(&mut outcome, &all, &kept);
    outcome.note(
        "Ours: `unet-size` has pages of 4 and 16 KB on the paper's programs. The traces here are \
         recorded from real programs: each call's bytes are one transfer, which the interface \
         makes from or into the program's own memory, page after page; addresses are the \
         programs' own, as an interface with addresses of processes, or an IOMMU for each \
         process, sees them. The TLB is the library's, without a victim list. A larger page pins \
         more for each entry, whether the program uses it or not: the memory that is pinned is \
         that of the entries that are valid at the end.",
    );
    outcome.note(
        "An IOMMU under Linux takes a mapping away when its transfer has ended: at once \
         (`iommu.strict=1`), or lazily, where it collects 256 of them and empties the IOTLB then. \
         The number is cited from memory. A registered buffer keeps its mapping.",
    );
    Ok(outcome)
}

/// Values and a plot of a trace.
fn add(outcome: &mut Outcome, name: &str, found: &Sweep) {
    let mut plot =
        Plot::new(&format!("Misses: {name}"), Axis::log("entries"), Axis::linear("% of look-ups"));
    let mut pins = Plot::new(&format!("Pinned: {name}"), Axis::log("entries"), Axis::log("MiB"));
    for (by_ways, (_, page)) in found.iter().zip(PAGES) {
        for (by_entries, ways) in by_ways.iter().zip(WAYS) {
            let shape = format!("{page}, {ways}-way");
            for (it, entries) in by_entries.iter().zip(ENTRIES) {
                let (series, at) = (format!("{name}, {shape}"), format!("{entries} entries"));
                let value = Value::new("misses", &series, &at, "%");
                outcome.values.push(value.model(it.misses));
                if ways == MIDDLE.1 {
                    let value = Value::new("misses, not compulsory", &series, &at, "%");
                    outcome.values.push(value.model(it.other));
                    let value = Value::new("pins per 1,000 look-ups", &series, &at, "");
                    outcome.values.push(value.model(it.pins));
                    let value = Value::new("pinned at the end", &series, &at, "MiB");
                    outcome.values.push(value.model(it.mib));
                }
            }
            if ways == 1 || ways == MIDDLE.1 {
                let points = ENTRIES.iter().zip(by_entries).map(|(&x, y)| (x as f64, y.misses));
                plot.add(&shape, Column::Model, points.collect());
            }
            if ways == MIDDLE.1 {
                let points = ENTRIES.iter().zip(by_entries).map(|(&x, y)| (x as f64, y.mib));
                pins.add(page, Column::Model, points.collect());
            }
        }
    }
    outcome.plots.extend([plot, pins]);
}

/// The place of four ways among [`WAYS`].
const FOUR: usize = 2;

fn judge(outcome: &mut Outcome, all: &[(&str, Sweep)], kept: &[(&str, [Found; KEEPING.len()])]) {
    // At 64 entries, 4-way: misses by page.
    let words: Vec<String> = all
        .iter()
        .map(|(name, found)| {
            let by = found.map(|by_ways| by_ways[FOUR][1].misses);
            format!("{name} {:.1}, {:.1} and {:.1} %", by[0], by[1], by[2])
        })
        .collect();
    let falls = |found: &Sweep| {
        (1..ENTRIES.len()).all(|at| {
            let by = found.map(|by_ways| by_ways[FOUR][at].misses);
            by[0] >= by[1] && by[1] >= by[2]
        })
    };
    outcome.claims.push(Claim::modelled(
        "from 64 entries on larger pages have fewer misses",
        Finding::of(
            all.iter().all(|it| falls(&it.1)),
            format!("with 64 entries, pages of 4 KB, 64 KB and 2 MB: {}", words.join("; ")),
        ),
        NOT_HERE,
    ));
    let most = |page: usize| {
        let of = |it: &(&str, Sweep)| it.1[page][FOUR][ENTRIES.len() - 1].mib;
        all.iter().map(of).fold(0.0, f64::max)
    };
    outcome.claims.push(Claim::modelled(
        "and pages of 2 MB have over ten times the memory pinned",
        Finding::of(
            all.iter().all(|(_, it)| {
                let last = ENTRIES.len() - 1;
                it[2][FOUR][last].mib > 10.0 * it[0][FOUR][last].mib
            }),
            format!(
                "with {} entries at most {:.1}, {:.1} and {:.0} MiB",
                ENTRIES[ENTRIES.len() - 1],
                most(0),
                most(1),
                most(2)
            ),
        ),
        NOT_HERE,
    ));
    let mut gains: Vec<(&str, f64, f64)> = Vec::new();
    for (name, found) in all {
        let of = |ways: usize, entries: usize| found[0][ways][entries].misses;
        // Eight ways against one, and four times the entries.
        gains.push((name, of(0, 1) - of(3, 1), of(0, 1) - of(0, 2)));
    }
    let words: Vec<String> = gains
        .iter()
        .map(|(name, ways, entries)| format!("{name} {ways:.1} and {entries:.1} points"))
        .collect();
    outcome.claims.push(Claim::modelled(
        "four times the entries take more misses away than eight ways do, or as many",
        Finding::of(
            gains.iter().all(|it| it.2 >= it.1),
            format!("64 entries of 4 KB, ways and entries: {}", words.join("; ")),
        ),
        NOT_HERE,
    ));
    let words: Vec<String> = kept
        .iter()
        .map(|(name, by)| {
            format!("{name} {:.0}, {:.0} and {:.0} %", by[0].misses, by[1].misses, by[2].misses)
        })
        .collect();
    outcome.claims.push(Claim::modelled(
        "an IOTLB whose mappings go with their transfers misses most of the time; one whose \
         mappings are kept does not",
        Finding::of(
            kept.iter().all(|(_, by)| by[0].misses > 50.0 && by[2].misses < by[0].misses / 2.0),
            format!("{}: {}", KEEPING.join(", "), words.join("; ")),
        ),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four transfers of two pages each, the same two times.
    fn trace() -> Vec<Touched> {
        let one = |at: u64| Touched { process: 0, address: at % 2 * 8192, bytes: 8192 };
        (0..4).map(one).collect()
    }

    #[test]
    fn a_mapping_that_goes_misses_again() {
        let misses =
            |keep| replayed(&trace(), (16, 4), 4096, keep).map(|it| (it.misses, it.pins)).unwrap();
        assert_eq!(misses(Keep::Always), (50.0, 500.0));
        assert_eq!(misses(Keep::Never), (100.0, 1000.0));
        // All are taken away after the second transfer, when all four pages are known.
        assert_eq!(misses(Keep::Some(2)), (100.0, 1000.0));
        assert_eq!(misses(Keep::Some(3)), (75.0, 750.0));
    }

    #[test]
    fn a_large_page_has_all_and_pins_all() {
        let found = replayed(&trace(), (16, 4), 2 << 20, Keep::Always).unwrap();
        assert_eq!((found.misses, found.other, found.mib), (25.0, 0.0, 2.0));
        let found = replayed(&trace(), (16, 4), 4096, Keep::Always).unwrap();
        assert_eq!((found.misses, found.mib), (50.0, 4.0 / 256.0));
        // Two entries of one way, and four pages in turn.
        assert!(replayed(&trace(), (2, 1), 4096, Keep::Always).unwrap().other > 0.0);
    }
}
