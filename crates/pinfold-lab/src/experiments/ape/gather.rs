//! `ape-gather`: elapsed time by pieces of a frame (Table 5.6).

use super::{
    NO_ADAPTER,
    tables::{GATHER, PIECES, SIZES},
};
use crate::{
    LabError,
    clock::Time,
    experiment::Run,
    models::{
        ape25::{Ape25, Frame},
        driver::{Costs, Driver},
    },
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

/// The cells of the table that the adapter's parameters are fitted to: bytes, pieces.
const FITTED: [(u64, u32); 3] = [(136, 1), (136, 8), (336, 1)];
/// Frames below this are those that suffer most.
const SHORT: u64 = 1024;

fn elapsed_s(bytes: u64, pieces: u32, count: usize) -> f64 {
    let host = Time::from_us(Costs::fitted().host_us(Driver::Scdc, bytes));
    Ape25::fitted().elapsed_s(bytes, count, |_| Frame { bytes, pieces, host })
}

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let count = run.pick(256, 4096);
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Figure 5.6: elapsed time for 50 MB",
        Axis::linear("frame, bytes"),
        Axis::linear("elapsed time, s"),
    );
    let mut model = Vec::new();
    for (at, pieces) in PIECES.into_iter().enumerate() {
        run.progress(at as f64 / 4.0, "pieces");
        let name = if pieces == 1 { "1 piece".into() } else { format!("{pieces} pieces") };
        let times = SIZES.map(|bytes| elapsed_s(bytes, pieces, count));
        let paper = |row: usize| GATHER[row][at];
        for (row, &bytes) in SIZES.iter().enumerate() {
            let value = Value::new("elapsed time", &name, format!("{bytes} B"), "s");
            let value = value.paper(paper(row), "Table 5.6").model(times[row]);
            outcome.values.push(value.fitted_if(FITTED.contains(&(bytes, pieces))));
        }
        let points = |own: &dyn Fn(usize) -> f64| {
            (0..SIZES.len()).map(|row| (SIZES[row] as f64, own(row))).collect::<Vec<_>>()
        };
        plot.add(&name, Column::Model, points(&|row| times[row]));
        plot.add(&name, Column::Paper, points(&paper));
        model.push(times);
    }
    outcome.plots.push(plot);
    judge(&mut outcome, &model);
    let Ape25 { frame_us, piece_us, buffers, .. } = Ape25::fitted();
    outcome.note(format!(
        "The model: the adapter's engine takes {frame_us:.1} µs for a frame's descriptor and \
         {piece_us:.2} µs for each of its pieces, then fetches the cells into {buffers} buffers. \
         While it reads a descriptor, the line empties these, and then stands still. The two times \
         are fitted to 136 bytes in 1 and in 8 pieces, the buffers to 336 bytes in 1 piece. The \
         other 77 values follow. That they do for 8 pieces at 336 and 536 bytes, where the line \
         alone would be a quarter too fast, speaks for an engine of this kind; the thesis itself \
         does not look into the adapter."
    ));
    outcome.note(
        "The paper's values are not monotone: 536 bytes take 20.10 s in one piece and 20.02 s in \
         two, 1,936 bytes 18.21 s in four and 18.17 s in eight. No model of an adapter gives that.",
    );
    Ok(outcome)
}

fn judge(outcome: &mut Outcome, model: &[[f64; 20]]) {
    let rows = 0..SIZES.len();
    let is_slower = |row: &usize| (1..PIECES.len()).all(|at| model[at][*row] > model[at - 1][*row]);
    let slower = rows.clone().filter(is_slower).count();
    let cost = |row: usize| model[PIECES.len() - 1][row] / model[0][row] - 1.0;
    let (short, long): (Vec<usize>, Vec<usize>) = rows.partition(|&row| SIZES[row] < SHORT);
    let least = short.into_iter().map(cost).fold(f64::MAX, f64::min);
    let most = long.into_iter().map(cost).fold(0.0, f64::max);
    outcome.claims = vec![
        Claim::modelled(
            "the more pieces, the more time",
            Finding::of(
                slower == SIZES.len(),
                format!("at {slower} of {} sizes in the model", SIZES.len()),
            ),
            NO_ADAPTER,
        ),
        Claim::modelled(
            "frames below 1 KB suffer most",
            Finding::of(
                least > most,
                format!(
                    "eight pieces cost {:.1} % or more below 1 KB, {:.1} % at most above",
                    least * 100.0,
                    most * 100.0
                ),
            ),
            NO_ADAPTER,
        ),
    ];
}
