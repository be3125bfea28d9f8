//! What each mode costs, by a few messages of each, before anything else is measured.

use pinfold::route::{CostCurve, SendCost, SendMode, SendModes, SentFrom};

use super::{
    bench::{Bench, median},
    cell::{Cell, Contestant},
};
use crate::perf::fail::Result;

/// Bytes of messages whose costs are known; what is between them is on a line.
const SIZES: [usize; 8] = [128, 2048, 6144, 12_288, 24_576, 36_864, 49_152, 65_000];
/// The message that is also sent in pieces.
const CUT: usize = 2048;
const TURNS: usize = 15;

/// Half a second.
///
/// # Errors
/// As [`Bench::turn`].
pub(super) fn calibrate(bench: &mut Bench, sources: &[SentFrom]) -> Result<SendModes> {
    let mut cells: Vec<Cell> = Vec::new();
    for &from in sources {
        cells.extend(SIZES.map(|bytes| Cell { bytes, pieces: 1, from }));
    }
    let first = sources.first().copied().unwrap_or(SentFrom::Cache);
    cells.extend([2, 8].map(|pieces| Cell { bytes: CUT, pieces, from: first }));
    // By cell, by mode.
    let mut taken = vec![vec![Vec::new(); SendMode::ALL.len()]; cells.len()];
    let none = SendModes::default();
    for _ in 0..TURNS {
        for (cell, taken) in cells.iter().zip(&mut taken) {
            for (mode, taken) in SendMode::ALL.into_iter().zip(taken) {
                if bench.lacks(mode, cell.pieces).is_none()
                    && let Ok(turn) = bench.turn(cell, Contestant::Mode(mode), &none)?
                {
                    taken.push(turn.cpu_ns);
                }
            }
        }
    }
    let mut modes = SendModes::default();
    for (at, mode) in SendMode::ALL.into_iter().enumerate() {
        let cost = |wanted: &dyn Fn(&Cell) -> bool| -> Vec<(usize, f64)> {
            let all = cells.iter().zip(&taken).filter(|(cell, _)| wanted(cell));
            all.filter(|(_, taken)| !taken[at].is_empty())
                .map(|(cell, taken)| (cell.bytes, median(taken[at].iter().copied())))
                .collect()
        };
        let curve = |from| CostCurve::through(cost(&|cell| cell.pieces == 1 && cell.from == from));
        let cut = |pieces| {
            let wanted = |cell: &Cell| (cell.bytes, cell.pieces, cell.from) == (CUT, pieces, first);
            cost(&wanted).first().map(|cost| cost.1)
        };
        let (cache, memory) = (curve(SentFrom::Cache), curve(SentFrom::Memory));
        let [one, two, eight] = [1, 2, 8].map(cut);
        if let Some(one) = one {
            // Without pieces that can be sent they are too dear to be chosen.
            let two = two.unwrap_or(1e9);
            let eight = eight.unwrap_or(two);
            modes.learn(
                mode,
                SendCost { cache, memory, several_ns: two - one, piece_ns: (eight - two) / 6.0 },
            );
        }
    }
    Ok(modes)
}
