//! Experiments of the pin-down cache of PM.

mod band;
mod copy;
mod cross;
mod memlock;
mod mpi;
mod nas;
mod pin;
mod policy;
mod translated;

use crate::experiment::{Experiment, Paper};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "pm-copy",
        paper: Paper::Pm,
        title: "bandwidth of copies beyond the cache",
        what: "Table 1: bcopy of blocks that no cache holds, the destination at several offsets, \
               on five machines",
        claim: "copying is slower than the network on most machines, and depends heavily on the \
                machine",
        run: copy::run,
    },
    Experiment {
        id: "pm-pin",
        paper: Paper::Pm,
        title: "cost of pinning",
        what: "Table 2: a hit and a miss of the pin-down cache, beside a page on the wire",
        claim: "pinning a page takes longer than sending it, and a hit takes next to nothing",
        run: pin::run,
    },
    Experiment {
        id: "pm-band",
        paper: Paper::Pm,
        title: "bandwidth by size and hit ratio",
        what: "Figures 2 and 5: PM 1.0 with and without copies, PM 1.2 from hit ratio 0 to 100 %",
        claim: "from 8 KB on zero-copy is faster than copying, even if it never hits",
        run: band::run,
    },
    Experiment {
        id: "pm-mpi",
        paper: Paper::Pm,
        title: "bandwidth of MPI",
        what: "Figure 6: MPI over copies, and over zero-copy with hit ratio 0 and 100 %",
        claim: "zero-copy pays from 8 KB on if it always hits, from 20 KB on if it never does",
        run: mpi::run,
    },
    Experiment {
        id: "pm-nas",
        paper: Paper::Pm,
        title: "hits in NAS IS and FT",
        what: "Table 3: class A on 64 processors, hits and misses of a cache of 1,024 pages",
        claim: "IS hits in nine of ten transfers, FT seldom, and both are faster than with copies",
        run: nas::run,
    },
    Experiment {
        id: "pm-policy",
        paper: Paper::Pm,
        title: "policies of eviction and budgets",
        what: "Beyond the paper: LRU, FIFO, CLOCK, SIEVE, S3-FIFO and Belady's optimum in the \
               library's pin-down cache, with room for 256 KiB to 8 MiB",
        claim: "LRU is good where some buffers are popular, and bad in loops and scans",
        run: policy::run,
    },
    Experiment {
        id: "pm-sends",
        paper: Paper::Pm,
        title: "an endpoint's own translations",
        what: "Beyond the paper: recorded translations of messages that leave from kept memory, \
               replayed in the library's TLB and pin-down cache of several sizes",
        claim: "the caches answer as the endpoint's did, and misses fall with the budget",
        run: translated::run,
    },
    Experiment {
        id: "pm-memlock",
        paper: Paper::Pm,
        title: "policies of eviction over all of memlock",
        what: "Beyond the paper: the policies of `pm-policy` with room for 64 KiB to 8 GiB, on \
               traces of up to 16 GiB and on recorded ones, beside Belady's optimum",
        claim: "no policy comes near the optimum between a hundredth of the buffers and all of \
                them, and more memory gains more than another policy",
        run: memlock::run,
    },
    Experiment {
        id: "pm-cross",
        paper: Paper::Pm,
        title: "pinning each time, registering or copying",
        what: "Beyond the paper: the cheapest of the three by the length of a message and the \
               cache's hit ratio, for PM's machine and by the costs that the library begins with",
        claim: "pinning pays from some length on, in PM's cache the sooner the more it hits",
        run: cross::run,
    },
];

/// Sizes from one to another, so many in each doubling, whole and not twice.
fn sizes(from: u64, to: u64, per_octave: u32) -> Vec<u64> {
    let step =
        |at: u32| (from as f64 * 2f64.powf(f64::from(at) / f64::from(per_octave))).round() as u64;
    let mut all: Vec<u64> = (0..).map(step).take_while(|&size| size < to).collect();
    all.push(to);
    all.dedup();
    all
}

/// Crossovers are looked for up to this size.
const CROSSOVER_BYTES_MAX: u64 = 64 << 10;

/// The least size up to [`CROSSOVER_BYTES_MAX`], a multiple of 64 bytes, from which on a way is
/// always the faster one; behind the last if it never is.
fn crossover(is_faster: impl Fn(u64) -> bool) -> u64 {
    const STEP: u64 = 64;
    let sizes = (1..=CROSSOVER_BYTES_MAX / STEP).map(|at| at * STEP);
    let slow = sizes.rev().find(|&bytes| !is_faster(bytes));
    slow.map_or(STEP, |bytes| bytes + STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_and_end_with_the_last() {
        assert_eq!(sizes(4, 32, 1), [4, 8, 16, 32]);
        assert_eq!(sizes(1024, 4096, 2), [1024, 1448, 2048, 2896, 4096]);
        assert_eq!(sizes(1024, 5000, 1), [1024, 2048, 4096, 5000]);
    }

    #[test]
    fn a_crossover_is_where_the_slow_sizes_end() {
        assert_eq!(crossover(|bytes| bytes >= 8192), 8192);
        assert_eq!(crossover(|bytes| bytes >= 8192 && bytes != 16_384), 16_448);
        assert_eq!(crossover(|_| true), 64);
        assert_eq!(crossover(|_| false), 65_600);
    }
}
