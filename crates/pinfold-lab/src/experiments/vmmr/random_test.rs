//! The random test (section 4.2): searches from random words of the maps of Figure 6.

use super::failed;
use crate::{
    LabError,
    experiment::{Depth, Run},
    models::ppc601::{
        PAPER,
        machine::Machine,
        pool_maps::{MAPS, Maps, level, with_run},
        reassembly::{Search, remap, search_us},
    },
};

/// Pages of the map, and of a word of it.
const PAGES: u32 = pinfold::reassembly::window::PAPER_PAGES;
const WORD: u32 = 32;
/// Quick runs take a map of the first thousand at each step of so much of its level, %.
const STEP: f64 = 2.5;

/// The searches of a map for one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    /// Pages that are taken, %.
    pub level: f64,
    /// The mean time of a remapping, µs.
    pub us: f64,
}

/// The searches of a size.
#[derive(Clone, Debug)]
pub(super) struct Searched {
    /// The size, pages.
    pub pages: u32,
    /// A point for each map.
    pub points: Vec<Point>,
    /// The shortest and the longest time of all searches, µs.
    pub least: f64,
    /// See `least`.
    pub most: f64,
}

impl Searched {
    /// The mean time of the maps whose level is within a range, µs; 0 if there is none.
    pub fn mean(&self, levels: std::ops::Range<f64>) -> f64 {
        let of = self.points.iter().filter(|point| levels.contains(&point.level));
        let (sum, count) = of.fold((0.0, 0), |(sum, count), point| (sum + point.us, count + 1));
        if count == 0 { 0.0 } else { sum / f64::from(count) }
    }
}

/// Searches all maps for all sizes: 3,000 and 32 times each, or 40 and 4 times each in a quick run.
pub(super) fn search(
    run: &mut Run<'_>,
    id: &'static str,
    sizes: &[u32],
) -> Result<Vec<Searched>, LabError> {
    let failed = failed(id);
    let quick = run.depth() == Depth::Quick;
    let times = run.pick(4, 32);
    let mut all = Vec::new();
    for &pages in sizes {
        let rest = remap(pages, Search::None, true).map_err(&failed)?.us;
        let points = Vec::new();
        all.push((rest, Searched { pages, points, least: f64::MAX, most: 0.0 }));
    }
    let mut machine = Machine::new(PAPER, true);
    let mut maps = Maps::new().map_err(&failed)?;
    let (mut random, mut next) = (run.random(7), 100.0 - STEP);
    while maps.advance().map_err(&failed)? {
        if quick && (maps.made() > MAPS || maps.level() > next) {
            continue;
        }
        next -= STEP;
        run.progress(f64::from(maps.made()) / f64::from(MAPS * 3), "maps");
        for (rest, searched) in &mut all {
            let mut map = with_run(maps.map(), searched.pages).map_err(&failed)?;
            let mut sum = 0.0;
            for _ in 0..times {
                // A word from which the run at the end can still be found.
                let words = (PAGES - searched.pages) / WORD + 1;
                let from = random.below(u64::from(words)) as u32 * WORD;
                let us = search_us(&mut machine, &mut map, from, searched.pages);
                let us = us.map_err(&failed)? + *rest;
                sum += us;
                searched.least = searched.least.min(us);
                searched.most = searched.most.max(us);
            }
            searched.points.push(Point { level: level(&map), us: sum / f64::from(times) });
        }
    }
    Ok(all.into_iter().map(|searched| searched.1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::SEED;

    #[test]
    fn quick_searches_are_of_all_levels() {
        let mut say = |_: f64, _: &str| {};
        let mut run = Run::new(Depth::Quick, SEED, false, &mut say);
        let all = search(&mut run, "vmmr-random", &[1, 64]).unwrap();
        for searched in &all {
            let levels: Vec<f64> = searched.points.iter().map(|point| point.level).collect();
            assert!((38..=40).contains(&levels.len()), "{}", levels.len());
            assert!(levels.windows(2).all(|pair| pair[0] > pair[1]));
            // One within a point of each level that the figures name.
            for near in [10.0, 40.0, 50.0, 95.0] {
                assert!(levels.iter().any(|level| (level - near).abs() < 1.0), "{near}");
            }
            assert!(searched.least > 0.0 && searched.least <= searched.most);
            assert_eq!(searched.mean(200.0..300.0), 0.0);
        }
        // A search for one page is short from anywhere; one for 64 goes to the end.
        assert!(all[0].most < 100.0 && all[1].most > 1000.0, "{} {}", all[0].most, all[1].most);
    }
}
