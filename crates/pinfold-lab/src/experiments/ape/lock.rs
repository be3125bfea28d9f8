//! `ape-lock`: locking, copying and unlocking a frame (Table 5.4).

use super::tables::{LOCK, LOCK_SIZES};
use crate::{
    LabError,
    experiment::Run,
    here::pinning::{self, LockCost},
    models::driver::{CLOCK_MHZ, Costs},
    outcome::{Axis, Claim, Column, Finding, Outcome, Plot, Value},
};

const CONTRADICTED: &str = "by Table 5.1 a whole frame of 520 bytes takes some 4,110 cycles, so \
                            a copy within it cannot take 12,122";

/// Runs the experiment.
///
/// # Errors
/// None.
pub(super) fn run(run: &mut Run<'_>) -> Result<Outcome, LabError> {
    let costs = Costs::fitted();
    let copy = |bytes: u64| costs.copy_us(bytes) * CLOCK_MHZ;
    let both = |bytes: u64| costs.lock_and_unlock_us(bytes) * CLOCK_MHZ;
    // The table's first copy, less what a copy costs by Table 5.1.
    let constant = LOCK[0][1] - copy(LOCK_SIZES[0]);
    let turns = run.pick(9, 49);
    let here: Result<Vec<LockCost>, String> = match run.here() {
        true => LOCK_SIZES.iter().map(|&bytes| pinning::lock_cost(bytes as usize, turns)).collect(),
        false => Err("it was not asked for".into()),
    };
    let of_here = |at: usize, of: fn(&LockCost) -> f64| here.as_ref().ok().map(|all| of(&all[at]));
    let mut outcome = Outcome::new();
    let mut plot = Plot::new(
        "Figure 5.4: cycles of locking and copying",
        Axis::linear("frame, bytes"),
        Axis::linear("cycles"),
    );
    for (column, name) in ["lock_user()", "memcpy_fromfs()", "unlock_user()"].iter().enumerate() {
        let model = |bytes: u64| match column {
            1 => constant + copy(bytes),
            _ => constant + both(bytes) / 2.0,
        };
        for (&bytes, &row) in LOCK_SIZES.iter().zip(&LOCK) {
            let value = Value::new("as measured", name, format!("{bytes} B"), "cycles");
            let value = value.paper(row[column], "Table 5.4").model(model(bytes));
            outcome.values.push(value.contradicted(CONTRADICTED));
        }
        let points = |of: &dyn Fn(usize) -> f64| {
            (0..LOCK.len()).map(|at| (LOCK_SIZES[at] as f64, of(at))).collect::<Vec<_>>()
        };
        plot.add(name, Column::Model, points(&|at| model(LOCK_SIZES[at])));
        plot.add(name, Column::Paper, points(&|at| LOCK[at][column]));
    }
    for (at, &bytes) in LOCK_SIZES.iter().enumerate() {
        for (name, cycles, here) in [
            ("copy", copy(bytes), of_here(at, |cost| cost.copy)),
            ("lock and unlock", both(bytes), of_here(at, |cost| cost.lock + cost.unlock)),
        ] {
            let value = Value::new("by Table 5.1", name, format!("{bytes} B"), "cycles");
            outcome.values.push(value.model(cycles).here(here));
        }
    }
    for (name, of) in [
        ("copy, here", (|cost: &LockCost| cost.copy) as fn(&LockCost) -> f64),
        ("lock and unlock, here", |cost| cost.lock + cost.unlock),
    ] {
        let all = LOCK_SIZES.iter().enumerate();
        let point = |(at, &bytes): (usize, &u64)| Some((bytes as f64, of_here(at, of)?));
        plot.add(name, Column::Here, all.filter_map(point).collect());
    }
    outcome.plots.push(plot);
    let dearer = LOCK_SIZES.iter().filter(|&&bytes| both(bytes) > copy(bytes)).count();
    let claim = Claim::modelled(
        "locking and unlocking together cost more than copying at every size measured",
        Finding::of(
            dearer == LOCK_SIZES.len(),
            format!(
                "at {dearer} of {} sizes in the model, by costs that Table 5.1 gives",
                LOCK_SIZES.len()
            ),
        ),
        "",
    );
    outcome.claims = vec![claim.and_here(judge_here(&here))];
    outcome.note(format!(
        "The model's costs are those of ape-system. Against them the table has {constant:.0} \
         cycles too many in each of its three columns, whatever the size: {:.0} µs, more than \
         twice what the two-copy driver takes for a whole frame. With that constant, which is \
         fitted to the copy of 520 bytes, the columns rise as the costs of Table 5.1 have it.",
        constant / CLOCK_MHZ
    ));
    Ok(outcome)
}

/// Judges the claim on this machine.
fn judge_here(here: &Result<Vec<LockCost>, String>) -> Finding {
    let all = match here {
        Ok(all) => all,
        Err(why) => return Finding::not_measured(why.clone()),
    };
    let ratio = |cost: &LockCost| (cost.lock + cost.unlock) / cost.copy;
    let least = all.iter().map(ratio).fold(f64::MAX, f64::min);
    let most = all.iter().map(ratio).fold(0.0, f64::max);
    Finding::of(
        least > 1.0,
        format!("mlock and munlock take {least:.0} to {most:.0} times as long as the copy"),
    )
}
