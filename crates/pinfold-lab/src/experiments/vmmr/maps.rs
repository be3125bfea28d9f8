//! `vmmr-maps`: the page pools of the random test (Figure 6).

use pinfold::reassembly::window::PAPER_PAGES;

use super::failed;
use crate::{
    LabError,
    experiment::Run,
    models::ppc601::pool_maps::{FREES, MAPS, Maps, level, with_run},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const ID: &str = "vmmr-maps";
const NOT_HERE: &str = "the maps are numbers, and the same on every machine";
/// The size of message that Figure 6 is of, pages.
const PAGES: u32 = 16;
/// Maps of the table.
const SHOWN: [u32; 11] = [1, 91, 250, 500, 1000, 1001, 1500, 2000, 2001, 2500, 3000];

/// A map of the figure.
struct One {
    at: u32,
    level: f64,
    transitions: u32,
}

/// Runs the experiment. Not shorter in quick runs.
///
/// # Errors
/// The library's bitmap refused a page.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let mut maps = Maps::new().map_err(failed(ID))?;
    let mut all = Vec::new();
    while maps.advance().map_err(failed(ID))? {
        let (at, transitions) = (maps.made(), maps.transitions());
        if at % 250 == 0 {
            run.progress(f64::from(at) / f64::from(MAPS * 3), "maps");
        }
        let level = level(&with_run(maps.map(), PAGES).map_err(failed(ID))?);
        all.push(One { at, level, transitions });
    }
    let mut outcome = Outcome::new();
    for one in all.iter().filter(|one| SHOWN.contains(&one.at)) {
        let value = Value::new("allocated", "16 pages", format!("map {}", one.at), "%");
        outcome.values.push(value.model(one.level));
    }
    let nearest = |level: f64| {
        all.iter()
            .min_by(|a, b| (a.level - level).abs().total_cmp(&(b.level - level).abs()))
            .map_or(0.0, |one| f64::from(one.transitions))
    };
    for at in [10.0, 25.0, 50.0, 75.0, 90.0] {
        let value = Value::new("transitions", "16 pages", format!("{at:.0} %"), "");
        let value = value.model(nearest(at));
        let stated = at == 50.0;
        outcome.values.push(if stated { value.paper(32_768.0, "section 4.2") } else { value });
    }
    judge(&mut outcome, &all);
    let mut plot = Plot::new("Figure 6: page pools", Axis::linear("map"), Axis::linear("pages"));
    let taken = |one: &One| (f64::from(one.at), one.level / 100.0 * f64::from(PAPER_PAGES));
    let some: Vec<&One> = all.iter().filter(|one| one.at % 25 == 1 || one.at % MAPS == 0).collect();
    plot.add("allocated", Column::Model, some.iter().copied().map(taken).collect());
    let changes = |one: &&One| (f64::from(one.at), f64::from(one.transitions));
    plot.add("transitions", Column::Model, some.iter().map(changes).collect());
    outcome.plots.push(plot);
    outcome.note(
        "Everything follows from section 2.5 but one choice: a number of the generator says the \
         page by its low 16 bits. The paper does not say which it takes. The generator goes on \
         from one series of a thousand maps to the next. A page that is free already is freed in \
         vain, so that the maps are denser the more of it is free. The maps are the library's own \
         page-pool bitmaps.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, all: &[One]) {
    let level = |at: u32| all.get(at as usize - 1).map_or(0.0, |one| one.level);
    let series = |at: usize| &all[at * MAPS as usize..(at + 1) * MAPS as usize];
    let low = |all: &[One]| all.iter().filter(|one| one.level < 50.0).count();
    let high = |all: &[One]| all.iter().filter(|one| one.level >= 85.0).count();
    outcome.claims.push(Claim::modelled(
        "the first thousand maps cover all levels, most of them below 50 %",
        Finding::of(
            level(1) > 99.0 && level(MAPS) < 1.0 && low(series(0)) > MAPS as usize / 2,
            format!("{:.1} to {:.2} %, {} maps below 50 %", level(1), level(MAPS), low(series(0))),
        ),
        NOT_HERE,
    ));
    let dense = [0, 1, 2].map(|at| high(series(at)));
    outcome.claims.push(Claim::modelled(
        "the other two thousand cover high levels more densely, the last the most",
        Finding::of(
            dense[0] < dense[1] && dense[1] < dense[2],
            format!(
                "{dense:?} maps from 85 % on; they end at {:.1} and {:.1} %",
                level(2 * MAPS),
                level(3 * MAPS)
            ),
        ),
        NOT_HERE,
    ));
    // An even generator leaves a page taken with this probability.
    let even = |frees: u32| (-f64::from(frees * MAPS) / f64::from(PAPER_PAGES)).exp() * 100.0;
    let ends = [1, 2, 3].map(|thousand| level(thousand * MAPS));
    let off = FREES.iter().zip(ends).map(|(&frees, end)| (even(frees) - end).abs());
    let off = off.fold(0.0, f64::max);
    outcome.claims.push(Claim::modelled(
        "the generator's numbers are even enough",
        Finding::of(
            off < 1.0,
            format!("an even one's series would end within {off:.2} points of these"),
        ),
        NOT_HERE,
    ));
    let most = all.iter().max_by_key(|one| one.transitions);
    let (most, at) = most.map_or((0, 0.0), |one| (one.transitions, one.level));
    outcome.claims.push(Claim::modelled(
        "there are most transitions near 50 %, about half of those that there could be",
        Finding::of(
            (45.0..55.0).contains(&at) && (31_000..=34_500).contains(&most),
            format!("{most}, at {at:.1} %"),
        ),
        NOT_HERE,
    ));
}
