//! Experiments of block memory operations.

mod choice;
mod copybench;
mod engine;
mod future;
mod predict;
mod present;
mod probe;
mod profile;
mod rdma;
mod reuse;
mod select;
mod tables;
mod tso;
mod web;

use crate::experiment::{Experiment, Paper};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "bmo-profile",
        paper: Paper::Bmo,
        title: "how much kernels copy",
        what: "Table 3.1: the kernel's copies in five programs by their type, and the share of \
               cycles that they take",
        claim: "up to three quarters of all cycles go to copies",
        run: profile::run,
    },
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
        id: "bmo-probe",
        paper: Paper::Bmo,
        title: "how well the first line tells the state of a block",
        what: "Tables 5.1 and 5.2: how often the first line of a block is cached as the block is, \
               by size, in five programs",
        claim: "the first line tells the state of the block well over 90 % of the time",
        run: probe::run,
    },
    Experiment {
        id: "bmo-future",
        paper: Paper::Bmo,
        title: "destinations that are used again",
        what: "Table 5.3: the share of destination lines that are used before they leave the \
               cache, in five programs",
        claim: "significantly more than half of them are",
        run: future::run,
    },
    Experiment {
        id: "bmo-select",
        paper: Paper::Bmo,
        title: "choosing the algorithm by a software probe",
        what: "Table 5.4: run time of five programs with the probe, and the time that the probe \
               takes, against bounds from the paper's counts of blocks",
        claim: "the probe gains with Netperf alone, and would gain more if it were cheaper",
        run: select::run,
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
    Experiment {
        id: "bmo-choice",
        paper: Paper::Bmo,
        title: "the probe that pays",
        what: "Beyond the paper: the cycles that a probe may take so that choosing each copy by \
               two probes pays, in five recorded programs and by size of block",
        claim: "a probe has to be far cheaper than a line from memory",
        run: choice::run,
    },
    Experiment {
        id: "bmo-predict",
        paper: Paper::Bmo,
        title: "predictors of reuse",
        what: "Beyond the paper: how often last-time, 2-bit and history predictors and the \
               library's sites are right about a destination's reuse, in six recorded programs",
        claim: "by its site reuse is told better than by a fixed guess; that is not yet time saved",
        run: predict::run,
    },
    Experiment {
        id: "bmo-ddr5",
        paper: Paper::Bmo,
        title: "a copy engine of today",
        what: "Beyond the paper: the engine over DDR5-4800 by the latency of asking for a copy, \
               by page splits and their translation, and by the caches' answers",
        claim: "short blocks wait for the engine to be asked, small pages for their translation, \
                and few questions at a time for the caches",
        run: present::run,
    },
];
