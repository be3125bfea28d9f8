//! Experiments of block memory operations.

mod copybench;
mod engine;
mod rdma;
mod reuse;
mod tso;
mod web;

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
    Experiment {
        id: "bmo-tso",
        paper: Paper::Bmo,
        title: "segmentation offload under Netperf",
        what: "Table 7.1 and Figure 7.3: the time of a stream of 1, 8 and 32 KB messages without \
               and with segmentation by the interface",
        claim: "offload saves 30 to 43 % of the time, most of it in memory operations",
        run: tso::run,
    },
    Experiment {
        id: "bmo-web",
        paper: Paper::Bmo,
        title: "segmentation offload under a web server",
        what: "Table 7.2: the time of files of 1.5 and 392 KB and of a mix, without and with \
               segmentation by the interface",
        claim: "offload does nothing for files of a segment, and halves the time of large ones",
        run: web::run,
    },
    Experiment {
        id: "bmo-rdma",
        paper: Paper::Bmo,
        title: "parallel programs over offload and RDMA",
        what: "Table 7.3: five NAS programs over plain messages, offload and RDMA",
        claim: "RDMA is faster in all five, offload in two",
        run: rdma::run,
    },
];
