//! The options of `pinfold perf copy`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{
    cell::{self, Destination, Next, Place, Source, Wish},
    measure::Pace,
};
use crate::{
    args::size,
    bounds::Bounds,
    fail::{Fail, Result},
    units,
};

/// Seconds of the whole run, unless told otherwise.
const SECONDS: f64 = 540.0;

/// The longest block.
const SIZE_MAX: usize = 1 << 30;

/// Messages of the ring, unless told otherwise.
const RING_SIZES: [usize; 3] = [1 << 20, 2 << 20, 4 << 20];

/// Measure copies within one process: every algorithm, the plan's choice, and memcpy
///
/// Over size, where source and destination are cached, who reads the copy next, and how the blocks
/// lie to each other. Blocks are brought into each state for real; reading the copy counts; every
/// copy is checked. Within a round, who copies when is a matter of luck.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct CopyArgs {
    /// Fewer sizes and states, in at most 30 seconds
    #[arg(long)]
    quick: bool,

    /// Sizes of blocks, such as 64,4K,1M [default: 64 B to 64 MiB by fours; of messages of --ring
    /// 1 to 4 MiB]
    #[arg(long, value_parser = size, value_delimiter = ',', value_name = "LIST")]
    sizes: Vec<usize>,

    /// Where the source is [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    sources: Vec<Source>,

    /// Where the destination is [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    destinations: Vec<Destination>,

    /// Who reads the copy [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    readers: Vec<Next>,

    /// How the blocks lie to each other [default: all; with --quick aligned]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LIST")]
    placements: Vec<Place>,

    #[command(flatten)]
    bounds: Bounds,

    /// Measure a two-copy ring between two cores instead, with one algorithm after the other
    #[arg(long, conflicts_with_all = ["sources", "destinations", "readers", "placements", "html", "all"])]
    ring: bool,

    /// Print every cell, not only those that miss an aim
    #[arg(long, conflicts_with = "json")]
    all: bool,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    json: bool,

    /// Also write plots and tables into one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

const AFTER: &str = "\
Examples:
  pinfold perf copy --quick
  pinfold perf copy --sizes 1M --readers other-core --all
  pinfold perf copy --html copy.html
  pinfold perf copy --ring
  PINFOLD_COPY=avx2 pinfold perf copy --quick     # that instead of the plan's choice

Aims, in every cell: the plan's choice reaches 90 % of the speed of the best algorithm, and 95 % of
libc's. The fastest of all algorithms in the same rounds is so by luck, too. So the first rounds only
choose finalists, and what counts are rounds of these, the plan and libc. Cells that miss an aim, or
meet it by 5 % or less, have more of them as long as there is time; those that miss are printed. Over all
cells where a side is uncached or another core reads, the plan should be 1.3 times as fast as libc.

States: a cached source was written a moment ago by the core that copies. A cached destination is dirty
(that core wrote it; if another core reads the copy, that one read it since) or clean (both have read
it). Uncached blocks were flushed from all caches; they are neither. The plan is told the state, and
whether the other core was near or far a moment before. The code that copies has just run, as that of a
program which copies often. Blocks of which two do not fit into the last cache are measured uncached and
aligned only.

Fields of a line of --json:
  what           cell, ring, or totals (the last line of a grid)
  of a cell      size, source, destination, reader, placement; class (near, far or mixed: how far apart
                 the cores were in the rounds that count; null if one core did all); rounds, that count;
                 verified, copies checked; libc_ns, plan_ns, best_ns, best_temporal_ns,
                 best_streaming_ns: medians, with the reading; plan, best, best_temporal, best_streaming:
                 algorithms; of_best, of_libc: the plan's speed over theirs, medians of what came out
                 round by round (who is the best, one half of the rounds says of the other); meets_best,
                 meets_libc; learnt_ns, learnt_of_best, learnt_of_libc: the same of what a site has learnt
                 that began with the plan's choice (null below 1 KiB: nothing is learnt there)
  of the ring    size of messages; chunk, bytes that are copied at once; contestant (libc, plan, or the
                 algorithm that copies in, with the plan's on the way out), into and out_of, the
                 algorithms; class; hop_ns, from core to core; rounds; verified, messages checked; gb_s, 10^9 bytes; of_libc
  of the totals  plan (defaults, tuned or variable); cells, meet_best, meet_libc; learnt_meet_best,
                 learnt_meet_libc, the same of what sites have learnt, or else of the plan; short (below 256
                 bytes), short_meet_libc; apart (a side uncached, or read by another core), apart_gain
                 (speed over libc's, geometric mean), apart_best_gain (if it were the best each time)

Exit status:
  0  everything was measured, whatever came out, and every copy was right
  1  the measurement failed: a wrong copy, no memory, output that cannot be written
  2  the command line makes no sense";

/// The outputs that the results go to.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) all: bool,
    pub(super) html: Option<PathBuf>,
}

impl CopyArgs {
    /// Returns whether the ring is to be measured.
    pub(super) fn is_ring(&self) -> bool {
        self.ring
    }

    /// The measurements to make.
    ///
    /// # Errors
    /// [`Fail::Usage`] if blocks are too long.
    pub(super) fn wish(&self) -> Result<Wish> {
        let or_usual = |usual: Vec<usize>| {
            if self.sizes.is_empty() { usual } else { self.sizes.clone() }
        };
        let sizes = match (self.ring, self.quick) {
            (true, _) => or_usual(RING_SIZES.to_vec()),
            (false, true) => or_usual(cell::quick_sizes()),
            (false, false) => or_usual(cell::sizes()),
        };
        if let Some(&size) = sizes.iter().find(|&&size| size > SIZE_MAX) {
            let (size, most) = (units::bytes(size), units::bytes(SIZE_MAX));
            return Err(Fail::Usage(format!("--sizes: {size} is too long; {most} is the most")));
        }
        let placements = match self.quick {
            true => or_all(&self.placements, &[Place::Aligned]),
            false => or_all(&self.placements, Place::value_variants()),
        };
        Ok(Wish {
            sizes,
            sources: or_all(&self.sources, Source::value_variants()),
            destinations: or_all(&self.destinations, Destination::value_variants()),
            readers: or_all(&self.readers, Next::value_variants()),
            placements,
        })
    }

    /// Time of the whole run.
    ///
    /// # Errors
    /// [`Fail::Usage`] if the time is zero, or more than `--quick` promises.
    pub(super) fn pace(&self) -> Result<Pace> {
        let usual = match (self.quick, self.ring) {
            (true, true) => 3,
            (true, false) => 7,
            (false, true) => 9,
            (false, false) => 15,
        };
        let rounds = self.bounds.rounds(usual) as usize;
        let time = self.bounds.time(self.quick, SECONDS)?;
        Ok(Pace { rounds, rounds_min: rounds.min(3), time })
    }

    /// The processors asked for.
    ///
    /// # Errors
    /// [`Fail::Usage`] if they are not two that this process may use.
    pub(super) fn cores(&self) -> Result<Option<[usize; 2]>> {
        self.bounds.cores()
    }

    /// The outputs that the results go to.
    pub(super) fn output(&self) -> Output {
        Output { json: self.json, all: self.all, html: self.html.clone() }
    }
}

/// Each variant once, in the order of their kind.
fn or_all<T: Copy + PartialEq + ValueEnum>(some: &[T], all: &[T]) -> Vec<T> {
    if some.is_empty() {
        return all.to_vec();
    }
    T::value_variants().iter().copied().filter(|it| some.contains(it)).collect()
}
