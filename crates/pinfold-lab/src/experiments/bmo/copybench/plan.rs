//! The library's own choice of stores, judged by the models.

use pinfold::copy::{Block, CacheState, Maker, Origin, Plan, Reader, Stores, table::Table};

use super::{FOUR, SHOWN};
use crate::{
    models::copying::{
        Before, Way, per_byte,
        processor::{OPTERON_250, PENTIUM_4, Processor},
    },
    outcome::{Claim, Finding, Outcome, Value},
};

const NOT_HERE: &str = "the plan of this machine is measured by `pinfold tune`";

/// The stores that the library's rules for this maker choose, whatever this machine's processor is.
fn chosen(with: &Processor, maker: Maker, reader: Reader, before: (Before, Before)) -> Stores {
    let table = Table::defaults(maker, with.second.0, |_| true);
    let plan = Plan::new(table, Origin::Defaults, |_| true);
    let state = |before| match before {
        Before::Uncached => CacheState::Uncached,
        Before::SecondDirty => CacheState::Dirty,
        Before::Cached | Before::Second => CacheState::Clean,
    };
    let (source, destination) = (state(before.0), state(before.1));
    let block = Block { len: SHOWN as usize, source, destination, reader, ..Block::default() };
    plan.pick(&block).stores()
}

/// Adds values and claims: the time of the chosen stores against that of the best.
pub(super) fn add(seed: u64, outcome: &mut Outcome) {
    for (with, maker, words) in [
        (&OPTERON_250, Maker::Other, "for other processors than Intel's"),
        (&PENTIUM_4, Maker::Intel, "for Intel's processors"),
    ] {
        let mut worst: f64 = 0.0;
        for part in FOUR {
            for reader in [Reader::Nobody, Reader::Me] {
                let is_read = reader == Reader::Me;
                let time = |way: &Way| {
                    per_byte(with, *way, part.before, SHOWN, seed)[usize::from(is_read)]
                };
                let best = |stores: Option<Stores>| {
                    let ways = Way::LINES.iter();
                    let ways = ways.filter(|way| stores.is_none_or(|it| it == way.stores));
                    ways.map(time).fold(f64::INFINITY, f64::min)
                };
                let stores = chosen(with, maker, reader, part.before);
                let lost = 100.0 * (best(Some(stores)) / best(None) - 1.0);
                worst = worst.max(lost);
                let read = if is_read { "read afterwards" } else { "not read" };
                let series = format!("{}, {}", with.name, part.words);
                let value = Value::new("lost by the library's choice", &series, read, "%");
                outcome.values.push(value.model(lost));
            }
        }
        outcome.claims.push(Claim::modelled(
            format!(
                "beyond the paper: on the {} the library's rules {words} choose the better stores, \
                 or lose less than 15 %",
                with.name
            ),
            Finding::of(worst < 15.0, format!("at most {worst:.1} % are lost at 64 KB")),
            NOT_HERE,
        ));
    }
    outcome.note(
        "The library's rules for processors that were not measured are judged by the same models. \
         Those for other processors than Intel's were found on a Zen 5, which copies a cached \
         source into its caches faster than past them up to 1 MB; on an Opteron, whose second \
         level is slow and whose memory is near, they lose a third to a half where nobody reads \
         the destination. A program on such a machine has to be tuned (`pinfold tune`).",
    );
}
