//! Experiments of virtual memory MTU reassembly.

mod classes;
mod nocache;
mod total;

use crate::{
    LabError,
    experiment::{Experiment, Paper},
    models::ppc601::reassembly::{Search, copy, remap},
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
fn times(id: &'static str, pages: u32, cached: bool) -> Result<Times, LabError> {
    let us = |search| remap(pages, search, cached).map(|remapped| remapped.us).map_err(failed(id));
    Ok(Times {
        pages,
        copy: copy(u64::from(pages), cached),
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
