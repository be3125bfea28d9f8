//! `vmmr-classes`: a map for each size of message (Figures 9 and 10).

use pinfold::reassembly::window::{Bitmap, Inner, PAPER_PAGES, Windows};

use super::{failed, total::at};
use crate::{
    LabError,
    experiment::Run,
    models::ppc601::{
        PAPER,
        machine::Machine,
        reassembly::{Search, copy, remap, remap_slots, worst},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const ID: &str = "vmmr-classes";
/// Pages that a bit stands for, in the five maps of the paper's conclusions.
const CLASSES: [u32; 5] = [1, 4, 16, 64, 256];
/// Parts of a map that are taken, percent.
const TAKEN: [u32; 6] = [0, 10, 40, 80, 95, 99];
const NOT_HERE: &str = "the library's size classes are measured by its own benchmark, `cargo bench \
                        -p pinfold --bench reassembly`";

/// Runs the experiment.
///
/// # Errors
/// The library's bitmap or the page table had no room.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let searches = run.pick(32, 3000);
    let mut outcome = Outcome::new();
    let mut plot_9 =
        Plot::new("Figure 9: a map for 16 pages", Axis::linear("% taken"), Axis::linear("µs"));
    let mut plot_10 = Plot::new("Figure 10: worst search", Axis::log("pages"), Axis::log("µs"));
    let (mut flattest, mut worst_all, mut copies) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine::new(PAPER, true);
    for (class, pages) in CLASSES.into_iter().enumerate() {
        run.progress(class as f64 / CLASSES.len() as f64, "classes");
        let mut points = Vec::new();
        for taken in TAKEN {
            let mut random = run.random(u64::from(pages) * 128 + u64::from(taken));
            let mut sum_us = 0.0;
            for _ in 0..searches {
                let map = random_map(PAPER_PAGES / pages, taken, &mut random)?;
                let one = remap_slots(&mut machine, pages, map).map_err(failed(ID))?;
                sum_us += one.us;
            }
            let us = sum_us / searches as f64;
            points.push((f64::from(taken), us));
            let value =
                Value::new("time", &format!("map for {}", at(pages)), format!("{taken} %"), "µs");
            outcome.values.push(value.model(us));
        }
        let up_to_95 = points.iter().filter(|point| point.0 <= 95.0).map(|point| point.1);
        let most = up_to_95.fold(0.0, f64::max);
        flattest.push((pages, most / points[0].1));
        if pages == 16 {
            plot_9.add("16 pages", Column::Model, points);
        }
        let full = full_map(PAPER_PAGES / pages)?;
        let us = remap_slots(&mut machine, pages, full).map_err(failed(ID))?.us;
        let copied = copy(u64::from(pages), true);
        for (series, us) in [("worst search", us), ("memcpy", copied)] {
            outcome.values.push(Value::new("Figure 10", series, at(pages), "µs").model(us));
        }
        worst_all.push((f64::from(pages), us));
        copies.push((f64::from(pages), copied));
    }
    let of_one = remap(1, Search::Worst, true).map_err(failed(ID))?.us;
    let flat = flattest.iter().map(|it| it.1).fold(0.0, f64::max);
    let factors: Vec<f64> =
        worst_all.iter().zip(&copies).map(|(worst, copy)| copy.1 / worst.1).collect();
    outcome.claims = vec![
        Claim::modelled(
            "the time of a search does not depend on what is taken: flat up to 95 %",
            Finding::of(flat < 1.15, format!("at most {flat:.3} times the time of an empty map")),
            NOT_HERE,
        ),
        Claim::modelled(
            "the worst search for one page loses to a copy",
            Finding::of(
                factors[0] < 1.0 && of_one > copies[0].1,
                format!("{:.0} against {:.0} µs", worst_all[0].1, copies[0].1),
            ),
            NOT_HERE,
        ),
        Claim::modelled(
            "for all other sizes even the worst search is ten to a hundred times as fast as a copy",
            Finding::of(
                factors[1..].iter().all(|factor| *factor >= 10.0),
                format!("{factors:.1?} times for {CLASSES:?} pages"),
            ),
            NOT_HERE,
        ),
    ];
    plot_10.add("worst search", Column::Model, worst_all);
    plot_10.add("memcpy", Column::Model, copies);
    outcome.plots = vec![plot_9, plot_10];
    outcome.note(
        "For 4 pages the worst search is faster than a copy, but not by an order of magnitude: the \
         search through 16,384 bits is more than half of its time. The paper's own times lead to \
         the same by the paper's own way: a search for one page takes some 260 of 289 µs, a \
         fourth of that is 65, and four copies of a page take 572. Only sizes from 16 pages on are \
         faster by one to two orders.",
    );
    outcome.note(
        "A map for messages of m pages has 65,536 / m bits, each for m pages, and is searched for \
         one bit by the library's own bitmap, from a random place as in the paper's random test. \
         The worst map has one free bit, at its end. The paper obtained Figure 10 by dividing the \
         time of a search by m, where the model searches the smaller map. It says one to two \
         orders of magnitude, and states no value.",
    );
    Ok(outcome)
}

/// A map of so many bits of which `taken` percent are taken, at random, searched from anywhere.
fn random_map(
    bits: u32,
    taken: u32,
    random: &mut crate::random::Random,
) -> Result<Bitmap, LabError> {
    let mut map = Bitmap::searching(bits, Inner::Forward);
    let mut all: Vec<u32> = (0..bits).collect();
    random.shuffle(&mut all);
    for &bit in &all[..(bits * taken / 100) as usize] {
        map.search_from(bit);
        map.alloc(1, 1).map_err(|why| failed(ID)(why.to_string()))?;
    }
    map.search_from(random.below(u64::from(bits.div_ceil(32))) as u32 * 32);
    Ok(map)
}

/// A map of so many bits whose last is free.
fn full_map(bits: u32) -> Result<Bitmap, LabError> {
    if bits == PAPER_PAGES {
        return worst(1).map_err(failed(ID));
    }
    let mut map = Bitmap::searching(bits, Inner::Forward);
    for _ in 1..bits {
        map.alloc(1, 1).map_err(|why| failed(ID)(why.to_string()))?;
    }
    map.search_from(0);
    Ok(map)
}
