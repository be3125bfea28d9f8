//! Experiments of the single-copy driver for the APE25.

mod elapsed;
mod gather;
mod lock;
mod system;
mod tables;

use crate::experiment::{Experiment, Paper};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "ape-system",
        paper: Paper::Ape,
        title: "system time of four drivers",
        what: "Tables 5.1 and 5.5: the processor's time in the kernel for 50 MB in frames of 136 \
               to 3,936 bytes",
        claim: "locking each frame costs more than copying it; locking once costs less",
        run: system::run,
    },
    Experiment {
        id: "ape-elapsed",
        paper: Paper::Ape,
        title: "elapsed time and throughput of three drivers",
        what: "Tables 5.2 and 5.3: the time for 50 MB in frames of 136 to 3,936 bytes",
        claim: "the line decides: all drivers take nearly the same time from 536 bytes on",
        run: elapsed::run,
    },
    Experiment {
        id: "ape-gather",
        paper: Paper::Ape,
        title: "elapsed time by pieces of a frame",
        what: "Table 5.6: the time for 50 MB in frames that lie in 1, 2, 4 or 8 pieces of memory",
        claim: "more pieces are slower, most so below 1 KB",
        run: gather::run,
    },
    Experiment {
        id: "ape-lock",
        paper: Paper::Ape,
        title: "locking, copying and unlocking a frame",
        what: "Table 5.4: cycles of the three functions for 520 to 7,520 bytes",
        claim: "locking and unlocking together cost more than copying at every size measured",
        run: lock::run,
    },
];

/// The reason why the thesis's measurements are not made here.
const NO_ADAPTER: &str = "there is no ATM adapter here";
