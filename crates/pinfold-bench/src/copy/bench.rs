//! Blocks of memory, brought into the state that a cell wants, copied, read, and checked.
#![allow(unsafe_code)]
// Invariant: every block of a cell lies within the memory that this bench owns (`blocks` sees to
// it), sources and destinations in different parts of it, and only this thread writes to it.

use std::{collections::HashMap, fmt, hint::black_box};

use pinfold::copy::{self, Algorithm, CacheState, Hints, Reader, Site};
use pinfold_sys::cpu::{
    block::{self, flush},
    clock::{ticks_per_us, timed},
    partner::{Blocks, Partner},
};

use super::cell::{Cell, Destination, Next, Place, Source};
use crate::{
    class::Class,
    fail::{Fail, Result},
    units, verify,
};

/// The code that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    /// The C library's `memcpy`, called as any program would.
    Libc,
    /// The plan's choice, asked for each time.
    Plan,
    /// The choice of a site that has learnt, beginning with the plan's.
    Learnt,
    /// One algorithm of the matrix.
    Matrix(Algorithm),
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Libc => f.write_str("libc"),
            Contestant::Plan => f.write_str("the plan's choice"),
            Contestant::Learnt => f.write_str("what a site has learnt"),
            Contestant::Matrix(algorithm) => algorithm.fmt(f),
        }
    }
}

impl Contestant {
    /// All contestants that this processor can have: libc first, then the plan, and the learning
    /// site.
    pub(super) fn all() -> Vec<Contestant> {
        let matrix = Algorithm::all().filter(|it| *it != Algorithm::LIBC && it.is_supported());
        [Contestant::Libc, Contestant::Plan, Contestant::Learnt]
            .into_iter()
            .chain(matrix.map(Contestant::Matrix))
            .collect()
    }
}

/// Short blocks are measured together, up to so many bytes: one alone is over before a clock could
/// tell. Source and destination both fit into the nearest cache of any processor.
const TOGETHER: usize = 8 << 10;

/// The most blocks that are measured together.
const BLOCKS_MAX: usize = 64;

/// Bytes that each turn copies, about: again and again where one batch has fewer.
const TURN_BYTES: usize = 64 << 10;

/// The most batches of a turn; and the most if each is handed to another core, which may be a long
/// wait on a busy machine.
const PASSES_MAX: usize = 16;
const PASSES_MAX_THERE: usize = 4;

/// Memory beside the longest block: to place blocks, and between short ones, bytes.
const SLACK: usize = 64 << 10;

/// Measures this machine, in the thread that made it.
pub(super) struct Bench {
    source: Vec<u8>,
    destination: Vec<u8>,
    partner: Option<Partner>,
    ticks_per_ns: f64,
    /// Ticks that two looks at the clock take, with nothing between them.
    idle_ticks: u64,
    pairs: Vec<(*const u8, *mut u8)>,
    /// The seed of the next batch's contents, other than those of the last.
    seed: u64,
    /// The number of times that all blocks were moved to other pages.
    round: usize,
    /// A site for each cell, which has heard of its copies alone.
    sites: HashMap<Cell, Site>,
}

/// A site is done with its first tries after so many turns at most: two of each candidate.
const LEARNING_MAX: usize = 2 * copy::CANDIDATES_MAX + 1;

impl Bench {
    /// For blocks of up to `size_max` bytes.
    pub(super) fn new(size_max: usize, partner: Option<Partner>) -> Result<Bench> {
        let bytes = size_max.saturating_add(SLACK);
        let memory = |fill: u8| -> Result<Vec<u8>> {
            let mut memory = Vec::new();
            memory.try_reserve_exact(bytes).map_err(|_| {
                let size = units::bytes(size_max);
                Fail::Said(format!(
                    "there is no memory for blocks of {size}; ask for smaller --sizes"
                ))
            })?;
            // Written, so that the pages are there; not zeros, which could all be one page.
            memory.resize(bytes, fill);
            Ok(memory)
        };
        let (source, destination) = (memory(1)?, memory(2)?);
        if !flush(&source[..1]) {
            return Err(Fail::Said(
                "this processor has no instruction that empties its caches".into(),
            ));
        }
        let pairs = Vec::with_capacity(BLOCKS_MAX);
        let ticks_per_ns = ticks_per_us() as f64 / 1000.0;
        let mut bench = Bench {
            source,
            destination,
            partner,
            ticks_per_ns,
            idle_ticks: 0,
            pairs,
            seed: 0,
            round: 0,
            sites: HashMap::new(),
        };
        bench.idle_ticks = (0..1000).map(|_| timed(|| {})).min().unwrap_or(0);
        Ok(bench)
    }

    /// Lets the turns from now on be taken with other memory.
    pub(super) fn move_on(&mut self) {
        self.round += 1;
    }

    /// Nanoseconds from core to core; `None` without a second one.
    pub(super) fn hop_ns(&mut self) -> Option<f64> {
        self.partner.as_mut().map(Partner::hop_ns)
    }

    /// The addresses of the first blocks of `cell`: source and destination.
    pub(super) fn place(&mut self, cell: &Cell) -> [usize; 2] {
        self.blocks(cell).map(|blocks| blocks.first.addr())
    }

    /// The places of the blocks of `cell`: sources and destinations.
    fn blocks(&mut self, cell: &Cell) -> [Blocks; 2] {
        let len = cell.size;
        let count = (TOGETHER / len).clamp(1, BLOCKS_MAX);
        // The largest power of two of that.
        let count = 1 << count.ilog2();
        // Far from the other by any measure; at odd places of their lines; or just ahead.
        let [from, to] = match cell.placement {
            Place::Aligned => [0, 2048],
            Place::Misaligned => [5, 2048 + 24],
            Place::Aliased => [0, 64],
        };
        [(&mut self.source, from), (&mut self.destination, to)]
            .map(|(memory, offset)| Blocks::within(memory, offset, len, count, self.round))
    }

    /// Lets the site of `cell` hear of copies until it has tried all its choices, and returns how
    /// many copies were checked. Copies below [`copy::LEARNT_MIN`] teach it nothing.
    ///
    /// # Errors
    /// As [`turn`](Bench::turn).
    pub(super) fn learn(&mut self, cell: &Cell, apart: Option<Class>) -> Result<u64> {
        let mut verified = 0;
        for _ in 0..LEARNING_MAX {
            verified += self.turn(cell, apart, Contestant::Learnt)?.1;
            if self.sites.get(cell).is_none_or(|site| site.is_settled(cell.size)) {
                break;
            }
        }
        Ok(verified)
    }

    /// The turn of `who`: nanoseconds a block, including the reading after it, and how many copies
    /// were checked byte by byte. The plan is told that the cores are so far `apart`.
    ///
    /// # Errors
    /// [`Fail::Wrong`]; [`Fail::Said`] if the cell needs a second core that is not there.
    pub(super) fn turn(
        &mut self,
        cell: &Cell,
        apart: Option<Class>,
        who: Contestant,
    ) -> Result<(f64, u64)> {
        let blocks @ [from, to] = self.blocks(cell);
        let reads_there = cell.reader == Next::OtherCore;
        if reads_there && self.partner.is_none() {
            return Err(Fail::Said(format!("{cell}: there is no other core")));
        }
        let most = if reads_there { PASSES_MAX_THERE } else { PASSES_MAX };
        let passes = (TURN_BYTES / (from.len * from.count)).clamp(1, most);
        // Such a cell is after a copy as before it, but for the contents.
        let steady =
            !reads_there && cell.source == Source::Cached && cell.destination == Destination::Dirty;
        let (rounds, repeats) = if steady { (1, passes) } else { (passes, 1) };
        let planned = copying(who, cell.hints(apart));
        let mut site =
            (who == Contestant::Learnt).then(|| self.sites.remove(cell).unwrap_or_default());
        let (mut taken, mut verified) = (0, 0);
        self.pairs.clear();
        self.pairs.extend(from.each().map(<*mut u8>::cast_const).zip(to.each()));
        for _ in 0..rounds {
            let block = cell.block(apart, from.first.addr(), to.first.addr());
            let choice = site
                .as_mut()
                .and_then(|site| site.next(cell.size, || copy::plan().candidates(&block)));
            let (copy_all, algorithm) =
                choice.map_or(planned, |choice| (by_algorithm as CopyAll, choice.algorithm));
            // A cell is about the places of blocks, not about that of the code that copies them. So
            // the code is near, as in a program that copies often.
            if from.len * from.count <= TURN_BYTES {
                // SAFETY: the pairs lie in memory of this bench, in different parts.
                unsafe { copy_all(algorithm, &self.pairs, cell.size) };
            }
            for _ in 0..to.rehearsals(cell.is_cached()) {
                self.prepare(cell, blocks);
                self.copy_and_read(cell, (copy_all, algorithm), to);
                // SAFETY: the blocks lie in memory of this bench, and nothing writes to them
                // meanwhile.
                unsafe { to.read() };
            }
            self.prepare(cell, blocks);
            let here = timed(|| {
                for _ in 0..repeats {
                    self.copy_and_read(cell, (copy_all, algorithm), to);
                }
            });
            let mut took = here.saturating_sub(self.idle_ticks);
            if let Some(partner) = self.partner.as_mut().filter(|_| reads_there) {
                // SAFETY: as above, and this thread writes nothing meanwhile.
                took += unsafe { partner.read(to) };
            }
            if let Some((site, choice)) = site.as_mut().zip(choice).filter(|(_, it)| it.timed) {
                let ns = took as f64 / self.ticks_per_ns / (repeats * to.count) as f64;
                site.observe(cell.size, choice.algorithm, ns as u64);
            }
            taken += took;
            verified += self.check(cell, who, to)?;
        }
        if let Some(site) = site {
            self.sites.insert(*cell, site);
        }
        let copies = passes * to.count;
        let ns = taken as f64 / self.ticks_per_ns / copies as f64;
        Ok((ns.max(0.01), verified))
    }

    /// Copies the pairs of `cell`, and reads the copies if they are to be read here.
    #[inline]
    fn copy_and_read(&self, cell: &Cell, (copy_all, algorithm): (CopyAll, Algorithm), to: Blocks) {
        // SAFETY: the pairs lie in memory of this bench, in different parts.
        unsafe { copy_all(algorithm, &self.pairs, cell.size) };
        if cell.reader == Next::Me {
            // SAFETY: as above.
            unsafe { to.read() };
        }
    }

    /// Brings both sides to the state of `cell`, with other contents than before.
    fn prepare(&mut self, cell: &Cell, [from, to]: [Blocks; 2]) {
        match cell.destination {
            // SAFETY: the blocks lie in memory of this bench, which nothing writes to meanwhile.
            Destination::Uncached => unsafe { to.flush() },
            Destination::Dirty => {
                // SAFETY: as above.
                unsafe { to.write(0) };
                self.show(cell, to);
            }
            Destination::Clean => {
                // SAFETY: as above.
                unsafe {
                    to.flush();
                    to.read();
                }
                self.show(cell, to);
            }
        }
        self.seed += 1;
        for (at, block) in from.each().enumerate() {
            // SAFETY: the blocks lie in memory of this bench, to which nothing else refers now.
            let block = unsafe { std::slice::from_raw_parts_mut(block, from.len) };
            verify::fill(block, self.seed_of(at));
        }
        if cell.source == Source::Uncached {
            // SAFETY: the blocks lie in memory of this bench, which nothing writes to meanwhile.
            unsafe { from.flush() };
        }
    }

    fn seed_of(&self, block: usize) -> u64 {
        verify::seed(self.seed << 8 | block as u64)
    }

    /// Lets the other core read the bytes that it will read again after the copy.
    fn show(&mut self, cell: &Cell, blocks: Blocks) {
        if let Some(partner) = self.partner.as_mut().filter(|_| cell.reader == Next::OtherCore) {
            // SAFETY: the blocks lie in memory of this bench, and this thread writes nothing
            // meanwhile.
            unsafe { partner.read(blocks) };
        }
    }

    /// Checks every byte of every copy, and returns how many copies that were.
    fn check(&self, cell: &Cell, who: Contestant, to: Blocks) -> Result<u64> {
        let mut checked = 0;
        for (at, block) in to.each().enumerate() {
            // SAFETY: the blocks lie in memory of this bench, which nothing writes to meanwhile.
            let block = unsafe { std::slice::from_raw_parts(block, to.len) };
            verify::check(block, self.seed_of(at)).map_err(|source| Fail::Wrong {
                subject: format!("{who} ({cell})"),
                size: to.len,
                source,
            })?;
            checked += 1;
        }
        Ok(checked)
    }
}

/// Copies so many bytes from the first of each pair to the second, by the named algorithm if it
/// uses one.
///
/// # Safety
/// The pairs are blocks of that length, readable and writable, and none overlaps another.
type CopyAll = unsafe fn(Algorithm, &[(*const u8, *mut u8)], usize);

/// The function and the algorithm by which `who` copies. Finding them is no part of a copy.
fn copying(who: Contestant, hints: Hints) -> (CopyAll, Algorithm) {
    match who {
        Contestant::Libc => (by_libc, Algorithm::LIBC),
        // If a site has nothing to say, its copies are the plan's.
        Contestant::Plan | Contestant::Learnt => (planned(hints), Algorithm::LIBC),
        Contestant::Matrix(algorithm) => (by_algorithm, algorithm),
    }
}

/// Nothing is known before a call but the caller's own facts: each copy is made by itself.
fn each(
    pairs: &[(*const u8, *mut u8)],
    len: usize,
) -> impl Iterator<Item = ((*const u8, *mut u8), usize)> {
    pairs.iter().map(move |&pair| black_box((pair, len)))
}

/// As a [`CopyAll`].
unsafe fn by_libc(_: Algorithm, pairs: &[(*const u8, *mut u8)], len: usize) {
    // SAFETY: as the caller promised.
    each(pairs, len).for_each(|((from, to), len)| unsafe { from.copy_to_nonoverlapping(to, len) });
}

/// As a [`CopyAll`].
unsafe fn by_algorithm(algorithm: Algorithm, pairs: &[(*const u8, *mut u8)], len: usize) {
    // SAFETY: as the caller promised.
    each(pairs, len).for_each(|((from, to), len)| unsafe { block::copy(algorithm, from, to, len) });
}

/// A function that copies as the plan says. A caller of such a copy knows its hints at compile
/// time, so only the size from which on they count remains at run time; here, all hints that exist
/// are compiled.
fn planned(of: Hints) -> CopyAll {
    use CacheState::{Cached, Clean, Dirty, Uncached};
    macro_rules! copying {
        ($reader:ident, $source:ident, $destination:ident) => {{
            /// As a [`CopyAll`].
            unsafe fn copy(_: Algorithm, pairs: &[(*const u8, *mut u8)], len: usize) {
                let reader = Reader::$reader;
                let (source, destination) = ($source, $destination);
                let hints = Hints { reader, source, destination, hears_reader: false };
                // SAFETY: as the caller promised.
                each(pairs, len).for_each(|((from, to), len)| unsafe {
                    copy::copy_as_planned(hints, from, to, len);
                });
            }
            copy
        }};
        ($reader:ident, $source:ident) => {
            match of.destination {
                Dirty => copying!($reader, $source, Dirty),
                Clean => copying!($reader, $source, Clean),
                _ => copying!($reader, $source, Uncached),
            }
        };
        ($reader:ident) => {
            match of.source {
                Cached => copying!($reader, Cached),
                _ => copying!($reader, Uncached),
            }
        };
    }
    match of.reader {
        Reader::Me => copying!(Me),
        Reader::OtherCore => copying!(OtherCore),
        Reader::NearCore => copying!(NearCore),
        Reader::FarCore => copying!(FarCore),
        Reader::Device | Reader::Nobody => copying!(Nobody),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use pinfold::copy::table::Placement;

    use super::{
        super::cell::{Wish, grid},
        *,
    };

    fn bench(size_max: usize) -> Option<Bench> {
        let cpu = pinfold_sys::cpu::affinity::current_cpus().last().copied();
        match Bench::new(size_max, cpu.and_then(Partner::start)) {
            Ok(bench) => Some(bench),
            Err(why) => {
                pinfold_tests::skip::skip(&why.to_string());
                None
            }
        }
    }

    fn cells(sizes: &[usize]) -> Vec<Cell> {
        let wish = Wish {
            sizes: sizes.to_vec(),
            sources: Source::value_variants().to_vec(),
            destinations: Destination::value_variants().to_vec(),
            readers: Next::value_variants().to_vec(),
            placements: Place::value_variants().to_vec(),
        };
        grid(&wish, 32 << 20, true).0
    }

    #[test]
    fn every_cell_is_placed_copied_and_checked() {
        let Some(mut bench) = bench(20_000) else { return };
        for cell in cells(&[1, 64, 300, 20_000]) {
            let [from, to] = bench.blocks(&cell);
            for (from, to) in from.each().zip(to.each()) {
                let placement = Placement::of_copy(from.addr(), to.addr());
                let wanted = match cell.placement {
                    Place::Aligned => Placement::Plain,
                    Place::Misaligned => Placement::Misaligned,
                    Place::Aliased => Placement::Aliased,
                };
                assert_eq!(placement, wanted, "{cell}");
            }
            for who in Contestant::all() {
                let (ns, checked) = bench.turn(&cell, None, who).unwrap();
                assert!(ns > 0.0 && ns.is_finite());
                assert!(checked >= to.count as u64);
            }
        }
    }

    #[test]
    fn a_copy_that_was_not_made_is_noticed() {
        let Some(mut bench) = bench(4096) else { return };
        for cell in cells(&[64, 4096]) {
            let blocks @ [_, to] = bench.blocks(&cell);
            bench.turn(&cell, Some(Class::Far), Contestant::Libc).unwrap();
            // Contents of the last turn must not do for the next one.
            bench.prepare(&cell, blocks);
            let why = bench.check(&cell, Contestant::Plan, to).unwrap_err().to_string();
            assert!(why.contains("the plan's choice") && why.contains("wrong contents"), "{why}");
        }
    }

    #[test]
    fn everybody_has_a_turn() {
        let all = Contestant::all();
        assert_eq!(all[..3], [Contestant::Libc, Contestant::Plan, Contestant::Learnt]);
        let supported = Algorithm::all().filter(|it| it.is_supported()).count();
        assert_eq!(all.len(), supported + 2);
    }

    #[test]
    fn sites_try_what_they_choose_among_and_no_more() {
        let Some(mut bench) = bench(20_000) else { return };
        for cell in cells(&[300, 20_000]) {
            assert!(bench.learn(&cell, None).unwrap() > 0);
            let site = &bench.sites[&cell];
            assert!(site.is_settled(cell.size), "{cell}");
            assert_eq!(site.using(cell.size).is_some(), cell.size == 20_000, "{cell}");
        }
    }
}
