//! The costs of messages. Figures that other programs had a part in are withheld.

use std::collections::BTreeMap;

use super::super::report::{Cost, Costs};
use pinfold_bench::{
    brief::{Brief, BriefRow, Route, What},
    busy,
    class::Class,
};

/// One line for each size and path, of the class that it was measured in most.
pub(super) fn all(brief: &Brief) -> Costs {
    let withheld = busy::conditions(&brief.conditions, Some(brief.hop_ns));
    let usual = usual(&brief.rows);
    let mut cells: BTreeMap<(usize, Route), Cost> = BTreeMap::new();
    for ((size, route, what), (row, rounds)) in usual {
        let cell = cells.entry((size, route)).or_insert_with(|| Cost {
            size,
            path: route.name(),
            latency_ns: None,
            bandwidth_mb_s: None,
            withheld: withheld.clone(),
            class: row.class.name(),
            taken: None,
        });
        let figure = match (what, &withheld) {
            (_, Some(_)) => None,
            _ => match busy::rounds(&row.rounds, rounds) {
                None => Some(row.median),
                Some(why) => {
                    let said = cell.withheld.take().map_or(String::new(), |said| said + "; ");
                    cell.withheld = Some(format!("{said}{}: {why}", what.name()));
                    None
                }
            },
        };
        match what {
            What::Latency => {
                cell.latency_ns = figure;
                cell.class = row.class.name();
                cell.taken.clone_from(&row.taken);
            }
            _ => cell.bandwidth_mb_s = figure,
        }
    }
    let known = withheld.is_none();
    Costs {
        class: known.then(|| Class::of(brief.hop_ns, brief.hop_ns).name()),
        hop_ns: known.then(|| (brief.hop_ns * 10.0).round() / 10.0),
        withheld,
        cores: brief.cores,
        rows: cells.into_values().collect(),
        notes: brief.notes.clone(),
    }
}

/// For each figure, the row of the class with the most samples, and the rounds of all classes.
fn usual(rows: &[BriefRow]) -> BTreeMap<(usize, Route, What), (&BriefRow, usize)> {
    let mut usual: BTreeMap<_, (&BriefRow, usize)> = BTreeMap::new();
    for row in rows {
        let (most, rounds) = usual.entry((row.size, row.route, row.what)).or_insert((row, 0));
        *rounds += row.rounds.len();
        if row.samples >= most.samples {
            *most = row;
        }
    }
    usual
}
