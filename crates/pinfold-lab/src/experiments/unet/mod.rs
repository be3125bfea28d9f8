//! Experiments of U-Net/MM.

mod costs;
mod fair;
mod pages;
mod scale;
mod shared;
mod size;
mod stream;
mod tlb;
mod works;

use pinfold::translate::{SpaceId, tlb::GeometryError};

use crate::{
    LabError,
    experiment::{Experiment, Paper},
    models::unet::{Interface, PAGE_BYTES, PageState, systems::System},
};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "unet-costs",
        paper: Paper::Unet,
        title: "costs of translation",
        what: "Table 1: sends and receptions of five systems, with hits and misses of the TLB",
        claim: "a hit adds 1 to 2 µs, a miss 50 to 100 µs on the co-processor",
        run: costs::run,
    },
    Experiment {
        id: "unet-scale",
        paper: Paper::Unet,
        title: "pinned memory by processes",
        what: "Sections 2 and 4: memory that is pinned for 1 to 128 processes with 64 buffers each",
        claim: "pinned regions grow with the processes, a TLB's pages are bounded by its size",
        run: scale::run,
    },
    Experiment {
        id: "unet-tlb",
        paper: Paper::Unet,
        title: "misses of the TLB",
        what: "Figure 3: matrix multiply, radix sort, sample sort and sockets, with 1,024 and 256 \
               entries",
        claim: "with 1,024 entries all misses are compulsory, with 256 some programs have others",
        run: tlb::run,
    },
    Experiment {
        id: "unet-size",
        paper: Paper::Unet,
        title: "the size of a TLB",
        what: "Beyond the paper: 64 to 1,024 entries of 1, 2 and 4 ways, for pages of 4 and 16 KB",
        claim: "about as many entries are enough as a program's messages use pages",
        run: size::run,
    },
    Experiment {
        id: "unet-shared",
        paper: Paper::Unet,
        title: "a TLB for many endpoints",
        what: "Beyond the paper: 100 to 1,000,000 endpoints by Zipf's law, entries, ways, pages of \
               4 KB to 2 MB, shared or divided, and with an attacker",
        claim: "more endpoints miss more, and an attacker hurts them where the TLB is shared",
        run: shared::run,
    },
    Experiment {
        id: "unet-pages",
        paper: Paper::Unet,
        title: "large pages, and the IOTLB",
        what: "Beyond the paper: 16 to 4,096 entries of 1 to 8 ways for pages of 4 KB, 64 KB and \
               2 MB on recorded traces, their pins, and mappings that go with their transfers",
        claim: "larger pages miss less and pin more, and an IOTLB is of use only if mappings stay",
        run: pages::run,
    },
    Experiment {
        id: "unet-fair",
        paper: Paper::Unet,
        title: "a TLB in parts, and fairness",
        what: "Beyond the paper: a TLB of 16,384 entries shared, in 16, 256 or 4,096 parts, for \
               100 to 1,000,000 endpoints by Zipf's law, with 1 to 4,096 attackers",
        claim: "parts confine one attacker, cost misses, and do not help against as many attackers",
        run: fair::run,
    },
    Experiment {
        id: "unet-stream",
        paper: Paper::Unet,
        title: "a hundred million references",
        what: "Beyond the paper: a recording over and over and Zipf traffic, each of 100,000,000 \
               references in a full run, through the TLB and the pin-down cache as they come; and \
               the speed of the models on this machine",
        claim: "streams of any length need no more memory, and settle; models take a million \
                references a second or more",
        run: stream::run,
    },
    Experiment {
        id: "unet-impl",
        paper: Paper::Unet,
        title: "co-processor or fast trap",
        what: "Section 7.1: latency and the host's work for each message, PCA-200 and DC21140",
        claim: "a co-processor takes work off the host, and makes the overhead larger",
        run: works::run,
    },
];

fn failed(id: &'static str, why: GeometryError) -> LabError {
    LabError::Failed { id, why: why.to_string() }
}

/// The address of a page that a [`full`] TLB never had.
fn fresh(at: u64) -> u64 {
    (1 << 40) + at * PAGE_BYTES
}

/// An interface whose TLB is full, so that each miss unpins a page.
fn full(id: &'static str, system: System) -> Result<Interface, LabError> {
    let mut interface = Interface::new(system).map_err(|why| failed(id, why))?;
    for page in 0..1 << 14 {
        interface.send(SpaceId(0), page * PAGE_BYTES, PageState::Present);
    }
    Ok(interface)
}
