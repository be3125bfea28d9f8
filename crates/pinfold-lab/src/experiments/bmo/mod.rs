//! Experiments of block memory operations.

mod copybench;
mod engine;
mod reuse;

use crate::experiment::{Experiment, Paper};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "bmo-copybench",
        paper: Paper::Bmo,
        title: "copies by the place of source and destination",
        what: "Figures 4.2 and 4.4: cycles a byte of copies with and without prefetch, into the \
               cache and past it, by lines and by words, on an Opteron 250 and a Pentium 4",
        claim: "stores into the cache are best if the destination is cached, stores past it if \
                not, up to twice as fast",
        run: copybench::run,
    },
    Experiment {
        id: "bmo-reuse",
        paper: Paper::Bmo,
        title: "copies that are read afterwards",
        what: "Figure 4.3: the copies of `bmo-copybench` to an uncached destination, which is read \
               next",
        claim: "stores into the cache are best, by 5 to 25 %, until the block exceeds the cache",
        run: reuse::run,
    },
    Experiment {
        id: "bmo-engine",
        paper: Paper::Bmo,
        title: "a copy engine in the memory controller",
        what: "Figure 6.2: the part of DDR400's bandwidth that copies of blocks through a buffer \
               reach",
        claim: "a buffer of 1 KB is enough for over 90 % of the memory's peak",
        run: engine::run,
    },
];
