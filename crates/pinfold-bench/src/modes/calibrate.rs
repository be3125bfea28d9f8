//! The cost of each mode, measured by a few messages of each before anything else.

use pinfold::route::{CostCurve, SendCost, SendMode, SendModes, SendPicker, SentFrom, SourceCost};
use pinfold_sys::shuffle::Shuffle;

use super::{
    bench::{Bench, median},
    cell::{Cell, Contestant},
};
use crate::fail::Result;

/// Bytes of messages whose costs are known; costs between them are interpolated on a line.
const SIZES: [usize; 15] = [
    128, 2048, 4096, 6144, 8192, 12_288, 16_384, 20_480, 24_576, 28_672, 32_768, 36_864, 40_960,
    49_152, 65_000,
];
/// The message that is also sent in pieces.
const CUT: usize = 2048;
const TURNS: usize = 41;

/// About a second.
///
/// # Errors
/// As [`Bench::turn`].
pub(super) fn calibrate(bench: &mut Bench, sources: &[SentFrom]) -> Result<SendModes> {
    let mut cells: Vec<Cell> = Vec::new();
    for &from in sources {
        cells.extend(SIZES.map(|bytes| Cell { bytes, pieces: 1, from }));
        cells.extend([2, 8].map(|pieces| Cell { bytes: CUT, pieces, from }));
    }
    // By cell, by mode.
    let mut taken = vec![vec![Vec::new(); SendMode::ALL.len()]; cells.len()];
    let mut none = SendPicker::default();
    let (mut rng, mut order) = (Shuffle::new(), [0, 1, 2, 3, 4]);
    for _ in 0..TURNS {
        for (cell, taken) in cells.iter().zip(&mut taken) {
            rng.shuffle(&mut order);
            for at in order {
                let mode = SendMode::ALL[at];
                if bench.lacks(mode, cell.pieces).is_none()
                    && let Ok(turn) = bench.turn(cell, Contestant::Mode(mode), &mut none)?
                {
                    taken[at].push(turn.cpu_ns);
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
        let source = |from| {
            let cut = |pieces| {
                let wanted =
                    |cell: &Cell| (cell.bytes, cell.pieces, cell.from) == (CUT, pieces, from);
                cost(&wanted).first().map(|cost| cost.1)
            };
            let whole = cost(&|cell| cell.pieces == 1 && cell.from == from);
            let [one, two, eight] = [1, 2, 8].map(cut);
            // A message that cannot be sent in pieces is too dear to be chosen.
            let several_ns = one.zip(two).map_or(1e9, |(one, two)| two - one);
            let piece_ns = two.zip(eight).map_or(0.0, |(two, eight)| (eight - two) / 6.0);
            SourceCost { curve: CostCurve::through(whole), several_ns, piece_ns }
        };
        let (cache, memory) = (source(SentFrom::Cache), source(SentFrom::Memory));
        if bench.lacks(mode, 1).is_none() {
            modes.learn(mode, SendCost { cache, memory });
        }
    }
    Ok(modes)
}
