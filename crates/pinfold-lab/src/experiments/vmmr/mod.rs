//! Experiments of virtual memory MTU reassembly.

mod classes;
mod dvma;
mod levels;
mod maps;
mod nocache;
mod partial;
mod pools;
mod random;
mod random_test;
mod shoot;
mod total;

use crate::{
    LabError,
    experiment::{Experiment, Paper},
    models::ppc601::{
        machine::Caching,
        reassembly::{Search, copy, remap},
    },
};

/// The table of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: "vmmr-total",
        paper: Paper::Vmmr,
        title: "remapping against copying, all cached",
        what: "Figure 4: copying, and remapping without, with the least and with the worst search, \
               1 to 6,144 pages",
        claim: "remapping is 5 times as fast at 1 page and 83 times at 6,144, but not with the \
                worst search up to some 60 pages",
        run: total::run,
    },
    Experiment {
        id: "vmmr-classes",
        paper: Paper::Vmmr,
        title: "a map for each size",
        what: "Figures 9 and 10: maps whose bits stand for 1, 4, 16, 64 and 256 pages",
        claim: "the time does not depend on what is taken, and is one to two orders of magnitude \
                below a copy's, but for the worst search for one page",
        run: classes::run,
    },
    Experiment {
        id: "vmmr-nocache",
        paper: Paper::Vmmr,
        title: "remapping against copying, nothing cached",
        what: "Figure 5: the sizes and searches of Figure 4 without the first-level cache",
        claim: "remapping is 33 times as fast at 1 page and 64 times at the end, as from 16 pages \
                on",
        run: nocache::run,
    },
    Experiment {
        id: "vmmr-partial",
        paper: Paper::Vmmr,
        title: "a part of memory cached",
        what: "Section 4.1: the cache for supervisor space alone, and for page table and bitmap \
               alone",
        claim: "with the cache for supervisor space alone nothing differs from Figure 4, with that \
                for the page table alone nothing from Figure 5",
        run: partial::run,
    },
    Experiment {
        id: "vmmr-maps",
        paper: Paper::Vmmr,
        title: "page pools of the random test",
        what: "Figure 6: 3,000 bitmaps by random frees, 500, 50 and 25 a map",
        claim: "the maps cover all levels of allocation, and high ones densely",
        run: maps::run,
    },
    Experiment {
        id: "vmmr-random",
        paper: Paper::Vmmr,
        title: "random searches",
        what: "Figure 7: 23 sizes, searches from random words of the maps of Figure 6",
        claim: "the time is the same for all levels at 1 page, suffers between 50 and 95 % at 2 to \
                4 pages, and drops again above 85 % from 6 pages on",
        run: random::run,
    },
    Experiment {
        id: "vmmr-levels",
        paper: Paper::Vmmr,
        title: "random searches against copying",
        what: "Figure 8: the longest of the random searches, and the means at 40 % and 10 %",
        claim: "the longest loses to a copy for 2 to 32 pages; up to 40 % remapping always wins",
        run: levels::run,
    },
    Experiment {
        id: "vmmr-pools",
        paper: Paper::Vmmr,
        title: "organisations of the page pool",
        what: "Section 4.1: bitmap, size classes, buddy system and ordered tree on the same traces",
        claim: "buddy systems and balanced trees are faster and more efficient than the bitmap",
        run: pools::run,
    },
    Experiment {
        id: "vmmr-dvma",
        paper: Paper::Vmmr,
        title: "remapping against an IOMMU",
        what: "Section 1: an SBus interface with an IOMMU of 16 entries for 1 MB",
        claim: "remapping has fifteen times its bandwidth, and no limit of 1 MB",
        run: dvma::run,
    },
    Experiment {
        id: "vmmr-shoot",
        paper: Paper::Vmmr,
        title: "remapping beside other cores",
        what: "Beyond the paper: the fragments that the library's plan moves, by their size and \
               the cores that take shoot-downs, with the cost of an interrupt as a parameter",
        claim: "each core that has to drop its translations makes the shortest fragment that is \
                worth moving longer",
        run: shoot::run,
    },
];

/// Sizes, pages.
const QUICK: [u32; 18] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 1024, 3072, 6144];

/// The sizes of a figure: some 80, or the fewer of `quick`.
fn sizes(quick: bool) -> Vec<u32> {
    if quick {
        return QUICK.to_vec();
    }
    let mut all: Vec<u32> =
        (0..100).map(|at| 6144f64.powf(f64::from(at) / 99.0).round() as u32).collect();
    all.dedup();
    all
}

/// The times of a size, µs.
#[derive(Clone, Copy, Debug)]
struct Times {
    pages: u32,
    copy: f64,
    none: f64,
    minimal: f64,
    worst: f64,
}

fn failed(id: &'static str) -> impl Fn(String) -> LabError {
    move |why| LabError::Failed { id, why }
}

/// The four times of a size.
fn times(id: &'static str, pages: u32, caching: impl Into<Caching>) -> Result<Times, LabError> {
    let caching = caching.into();
    let us = |search| remap(pages, search, caching).map(|remapped| remapped.us).map_err(failed(id));
    Ok(Times {
        pages,
        copy: copy(u64::from(pages), caching),
        none: us(Search::None)?,
        minimal: us(Search::Minimal)?,
        worst: us(Search::Worst)?,
    })
}

/// The least size, up to 256 pages, from which on the worst search does not lose to a copy.
fn worst_wins(id: &'static str, cached: bool) -> Result<u32, LabError> {
    // Both times rise in straight lines, and the copy's is the steeper: halving finds the place.
    let (mut loses, mut wins) = (1, 256);
    while wins - loses > 1 {
        let pages = (loses + wins) / 2;
        let worst = remap(pages, Search::Worst, cached).map_err(failed(id))?.us;
        *(if worst < copy(u64::from(pages), cached) { &mut wins } else { &mut loses }) = pages;
    }
    Ok(wins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_from_one_page_to_all() {
        let all = sizes(false);
        assert!((75..=85).contains(&all.len()), "{}", all.len());
        assert_eq!((all[0], all[all.len() - 1]), (1, 6144));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
