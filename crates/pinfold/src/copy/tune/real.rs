#![allow(unsafe_code)]
//! Blocks of memory, brought into the state that a case wants, copied or zeroed, and read.
// Invariant: every block of a case lies within the memory that this bench owns (`blocks` sees to
// it), sources and destinations in different parts of it.

use pinfold_sys::cpu::{
    block::{self, Algorithm, flush},
    clock::{now_ns, ticks_per_us, timed},
    partner::{Blocks, Partner},
};

use super::{
    bench::{Bench, CannotTune},
    case::Case,
};
use crate::copy::{
    CacheState, Reader,
    table::{Operation, Placement},
};

/// Short blocks are measured together, up to so many bytes: one alone is over before a clock could
/// tell. Source and destination both fit into the nearest cache of any processor.
const TOGETHER: usize = 8 << 10;

/// The most blocks.
const BLOCKS_MAX: usize = 64;

/// Each run copies about so many bytes, again and again where that is not one batch, each time anew
/// from the state that the case wants.
const RUN_BYTES: usize = 64 << 10;

/// The most passes.
const PASSES_MAX: usize = 4;

/// The memory beside the longest block: for blocks to be placed, and gaps, bytes.
const SLACK: usize = 4 * 4096;

/// Measures this machine.
pub(super) struct RealBench {
    source: Vec<u8>,
    destination: Vec<u8>,
    partner: Option<Partner>,
    ticks_per_ns: f64,
    /// Ticks between two looks at the clock, with nothing between them.
    idle_ticks: u64,
    /// Contents of the next source: other than those of the last.
    seed: u64,
    /// The number of moves of all blocks to other pages.
    round: usize,
}

impl RealBench {
    /// For blocks of up to `len_max` bytes, read on `second`.
    pub(super) fn new(len_max: usize, second: Option<usize>) -> Result<RealBench, CannotTune> {
        let bytes = len_max.max(TOGETHER) + SLACK;
        let memory = |fill: u8| {
            let mut memory = Vec::new();
            memory.try_reserve_exact(bytes).map_err(|_| CannotTune::NoMemory(2 * bytes))?;
            // Written, so that the pages are there; not zeros, which could all be one page.
            memory.resize(bytes, fill);
            Ok(memory)
        };
        let bench = RealBench {
            source: memory(1)?,
            destination: memory(2)?,
            partner: second.and_then(Partner::start),
            ticks_per_ns: ticks_per_us() as f64 / 1000.0,
            idle_ticks: (0..1000).map(|_| timed(|| {})).min().unwrap_or(0),
            seed: 0,
            round: 0,
        };
        if !flush(&bench.source[..1]) {
            return Err(CannotTune::NoFlush);
        }
        Ok(bench)
    }

    /// Returns whether there is another core that reads.
    pub(super) fn has_other_core(&self) -> bool {
        self.partner.is_some()
    }

    /// The blocks of `case`: sources and destinations.
    fn blocks(&mut self, case: &Case) -> [Blocks; 2] {
        let len = case.len();
        let count = (TOGETHER / len).clamp(1, BLOCKS_MAX);
        // Far from another by any measure; or just ahead; or, at odd places of their lines.
        let [from, to] = match case.situation.placement {
            Placement::Plain => [0, 2048],
            Placement::Misaligned => [5, 2048 + 24],
            Placement::Aliased => [0, 64],
        };
        [(&mut self.source, from), (&mut self.destination, to)]
            .map(|(memory, offset)| Blocks::within(memory, offset, len, count, self.round))
    }

    /// Brings both sides to the places that `case` wants.
    fn prepare(&mut self, case: &Case, [from, to]: [Blocks; 2]) {
        let it = case.situation;
        match it.destination {
            // SAFETY: the blocks lie in memory of this bench, which nothing writes to meanwhile.
            CacheState::Uncached => unsafe { to.flush() },
            // Written or read here, and, if the case reads it there, read there.
            _ => {
                if it.destination == CacheState::Clean {
                    // SAFETY: as above.
                    unsafe {
                        to.flush();
                        to.read();
                    }
                } else {
                    // SAFETY: as above.
                    unsafe { to.write(0) };
                }
                let reads = it.reader == Reader::OtherCore;
                if let Some(partner) = self.partner.as_mut().filter(|_| reads) {
                    // SAFETY: as above, and this thread writes nothing meanwhile.
                    unsafe { partner.read(to) };
                }
            }
        }
        if it.operation == Operation::Copy {
            // A source was mostly written a moment ago, wherever it is by now.
            self.seed += 1;
            // SAFETY: as above.
            unsafe { from.write(self.seed) };
            if it.source == CacheState::Uncached {
                // SAFETY: as above.
                unsafe { from.flush() };
            }
        }
    }
}

impl Bench for RealBench {
    fn run(&mut self, case: &Case, algorithm: Algorithm) -> Option<f64> {
        let blocks @ [from, to] = self.blocks(case);
        let it = case.situation;
        if it.reader == Reader::OtherCore && self.partner.is_none() {
            return None;
        }
        let passes = (RUN_BYTES / (to.len * to.count)).clamp(1, PASSES_MAX);
        // All of a steady case is timed at one go: that much a clock can tell.
        let (batches, repeats) = if case.is_steady() { (1, passes) } else { (passes, 1) };
        let (pairs, len) = (|| from.each().zip(to.each()), to.len);
        let move_all = || match (it.operation, algorithm) {
            // As a plan has it done.
            (Operation::Copy, Algorithm::LIBC_FETCHED) => {
                // SAFETY: both lie in memory of this bench, in different parts, and the processor
                // has the algorithms that are measured.
                pairs().for_each(|(from, to)| unsafe { block::copy_fetched(from, to, len) });
            }
            (Operation::Copy, _) => {
                // SAFETY: as above.
                pairs().for_each(|(from, to)| unsafe { block::copy(algorithm, from, to, len) });
            }
            (Operation::Zero, _) => {
                // SAFETY: as above.
                to.each().for_each(|to| unsafe { block::zero(algorithm, to, len) });
            }
        };
        let run = || {
            move_all();
            if it.reader == Reader::Me {
                // SAFETY: as above.
                unsafe { to.read() };
            }
        };
        let mut taken = 0;
        for _ in 0..batches {
            // A case is about the place of blocks, not about the place of the code that copies
            // them.
            if to.len * to.count <= RUN_BYTES {
                move_all();
            }
            for _ in 0..to.rehearsals(case.is_cached()) {
                self.prepare(case, blocks);
                run();
                // SAFETY: as above.
                unsafe { to.read() };
            }
            self.prepare(case, blocks);
            let here = timed(|| (0..repeats).for_each(|_| run()));
            taken += here.saturating_sub(self.idle_ticks);
            let reads = it.reader == Reader::OtherCore;
            if let Some(partner) = self.partner.as_mut().filter(|_| reads) {
                // SAFETY: as above, and this thread writes nothing meanwhile.
                taken += unsafe { partner.read(to) };
            }
        }
        Some(taken as f64 / self.ticks_per_ns / (passes * to.count) as f64)
    }

    fn move_on(&mut self) {
        self.round += 1;
    }

    fn hop_ns(&mut self) -> Option<f64> {
        self.partner.as_mut().map(Partner::hop_ns)
    }

    fn now_ns(&mut self) -> u64 {
        now_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::tune::case::cases;

    #[test]
    fn every_case_moves_its_bytes() {
        let second = pinfold_sys::cpu::affinity::current_cpus().last().copied();
        // As on this machine; long blocks take long, and are as the others.
        let (cache, len_max) = (1 << 20, 16 << 10);
        let mut bench = match RealBench::new(len_max, second) {
            Ok(bench) => bench,
            Err(why) => return eprintln!("SKIPPED: {why}"),
        };
        for case in cases(cache).into_iter().filter(|case| case.len() <= len_max) {
            let [from, to] = bench.blocks(&case);
            let len = case.len();
            for algorithm in Algorithm::all().filter(|it| it.is_supported() && case.suits(*it)) {
                bench.destination.fill(7);
                let ns = bench.run(&case, algorithm).unwrap();
                assert!(ns >= 0.0 && ns.is_finite());
                for (from, to) in from.each().zip(to.each()) {
                    let of = |block: *mut u8| {
                        // SAFETY: in memory of this bench, which nothing writes to.
                        unsafe { std::slice::from_raw_parts(block, len) }
                    };
                    match case.situation.operation {
                        Operation::Copy => assert!(of(to) == of(from), "{case:?} {algorithm}"),
                        Operation::Zero => assert!(of(to).iter().all(|it| *it == 0), "{case:?}"),
                    }
                }
                let apart = bench.blocks(&case).map(|blocks| blocks.first.addr());
                let placed = match case.situation.operation {
                    Operation::Copy => Placement::of_copy(apart[0], apart[1]),
                    Operation::Zero => Placement::of_zero(apart[1]),
                };
                assert_eq!(placed, case.situation.placement);
            }
        }
    }
}
