//! `unet-size`: how large a TLB has to be: entries, ways, and size of page. Beyond the paper.

use pinfold::translate::tlb::Geometry;

use super::tlb::{Trace, radix, replay, sample, sessions};
use crate::{
    LabError,
    experiment::Run,
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const ID: &str = "unet-size";
const NOT_HERE: &str = "the TLB is that of an interface's processor";
/// Entries of the first level. All have a victim list of 16.
const ENTRIES: [usize; 5] = [64, 128, 256, 512, 1024];
const WAYS: [usize; 3] = [1, 2, 4];
/// Bytes of a page that an entry translates.
const PAGES: [u64; 2] = [4096, 16_384];

/// Misses that are not compulsory, % of look-ups, by page, ways and entries.
type Sweep = [[[f64; ENTRIES.len()]; WAYS.len()]; PAGES.len()];

fn sweep(trace: &Trace) -> Result<Sweep, LabError> {
    let mut all = Sweep::default();
    for (by_ways, page_bytes) in all.iter_mut().zip(PAGES) {
        for (by_entries, ways) in by_ways.iter_mut().zip(WAYS) {
            for (percent, entries) in by_entries.iter_mut().zip(ENTRIES) {
                let sets = entries / ways;
                let geometry = Geometry { sets, ways, page_bytes, ..Geometry::default() };
                let misses = replay(trace, geometry);
                *percent = misses
                    .map_err(|why| LabError::Failed { id: ID, why: why.to_string() })?
                    .other();
            }
        }
    }
    Ok(all)
}

/// The fewest entries with which no miss but compulsory ones is left.
fn enough(by_entries: &[f64; ENTRIES.len()]) -> Option<usize> {
    let last = by_entries.iter().rposition(|percent| *percent > 0.0);
    ENTRIES.get(last.map_or(0, |at| at + 1)).copied()
}

/// Runs the experiment.
///
/// # Errors
/// The library's TLB refused a shape, or a program failed.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let seed = run.seed();
    let traces = [radix(seed)?, sample(seed)?, sessions(&mut run.random(3), 4)];
    let mut outcome = Outcome::new();
    let mut all = Vec::new();
    for (at, trace) in traces.iter().enumerate() {
        run.progress(at as f64 / traces.len() as f64, trace.name);
        let found = sweep(trace)?;
        let mut plot = Plot::new(
            &format!("Misses that are not compulsory: {}", trace.name),
            Axis::log("entries"),
            Axis::linear("%"),
        );
        for (by_ways, page_bytes) in found.iter().zip(PAGES) {
            for (by_entries, ways) in by_ways.iter().zip(WAYS) {
                let shape = format!("{} KB, {ways}-way", page_bytes >> 10);
                for (percent, entries) in by_entries.iter().zip(ENTRIES) {
                    let series = format!("{}, {shape}", trace.name);
                    let at = format!("{entries} entries");
                    let value = Value::new("misses, not compulsory", &series, at, "%");
                    outcome.values.push(value.model(*percent));
                }
                let points = ENTRIES.iter().zip(by_entries).map(|(&x, &y)| (x as f64, y));
                plot.add(&shape, Column::Model, points.collect());
            }
        }
        outcome.plots.push(plot);
        all.push((trace.name, found));
    }
    judge(&mut outcome, &all);
    outcome.note(
        "Ours: the paper has two sizes, direct-mapped. The traces are those of unet-tlb: radix \
         sort and sample sort by large messages on 8 ranks, and sockets, made up, with four \
         processes at once. All shapes have the victim list of 16 entries. An entry for 16 KB \
         translates four pages of the trace, as if these were neighbours in memory, too.",
    );
    outcome.note(
        "An interface needs about as many entries as the pages that its processes use at a time, \
         64 receive buffers among them; larger pages divide the need. More ways are no \
         substitute: radix sort and the receive buffers go around, and where such a loop is \
         longer than the TLB the oldest of a set goes just before it is used, so that \
         direct-mapped ones, which keep what they have in some sets, miss less. Nor does it \
         always help to double the entries: with them changes which rows of pages share sets, and \
         in the steps named above the new sharing is worse.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, all: &[(&str, Sweep)]) {
    let rows = || all.iter().flat_map(|(_, sweep)| sweep.iter().flatten());
    let rises = rows().flat_map(|row| row.windows(2)).filter(|pair| pair[1] > pair[0]).count();
    outcome.claims.push(Claim::modelled(
        "twice the entries never have more misses",
        Finding::of(rises == 0, format!("in {rises} of {} steps they have", rows().count() * 4)),
        NOT_HERE,
    ));
    let words = |page: usize, ways: usize| -> Vec<String> {
        let one = |(name, sweep): &(&str, Sweep)| match enough(&sweep[page][ways]) {
            Some(entries) => format!("{entries} for {name}"),
            None => format!("more than {} for {name}", ENTRIES[ENTRIES.len() - 1]),
        };
        all.iter().map(one).collect()
    };
    let suffices = all.iter().all(|(_, sweep)| enough(&sweep[0][0]).is_some());
    outcome.claims.push(Claim::modelled(
        "the paper's 1,024 entries are enough for pages of 4 KB, and direct-mapped",
        Finding::of(suffices, format!("entries: {}", words(0, 0).join(", "))),
        NOT_HERE,
    ));
    let fewer = all.iter().all(|(_, sweep)| {
        enough(&sweep[1][0]).zip(enough(&sweep[0][0])).is_some_and(|(large, small)| large < small)
    });
    outcome.claims.push(Claim::modelled(
        "pages of 16 KB need fewer entries",
        Finding::of(fewer, format!("entries: {}", words(1, 0).join(", "))),
        NOT_HERE,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::references::{Reference, Way};

    #[test]
    fn enough_is_the_least_without_misses_behind_it() {
        assert_eq!(enough(&[3.0, 1.0, 0.0, 0.0, 0.0]), Some(256));
        assert_eq!(enough(&[3.0, 0.0, 1.0, 0.0, 0.0]), Some(512));
        assert_eq!(enough(&[0.0; 5]), Some(64));
        assert_eq!(enough(&[0.0, 0.0, 0.0, 0.0, 0.1]), None);
    }

    #[test]
    fn a_loop_of_pages_needs_as_many_entries_or_a_fourth() {
        // 128 pages in a row, four times: 64 entries and 16 victims are too few, in large pages of
        // four they are 32.
        let pages = (0..4).flat_map(|_| 0..128);
        let references = pages.map(|page| (0, Reference { way: Way::Transmit, page })).collect();
        let found = sweep(&Trace { name: "", interfaces: vec![references] }).unwrap();
        assert!(found[0][0][0] > 0.0);
        assert_eq!((enough(&found[0][0]), enough(&found[1][0])), (Some(128), Some(64)));
    }
}
