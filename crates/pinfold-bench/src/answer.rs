//! The second process: follows orders until there are no more.

use super::{
    bench,
    fail::{Fail, Result},
    load::Meter,
    pair::{Order, Pair},
    stage::Stage,
    subject::Bench,
    terms::Id,
    watchdog,
};

/// Serves the first process to the end.
///
/// # Errors
/// The error that made it give up; the first process has been told.
pub(crate) fn serve(pair: &mut Pair, stage: &mut Stage) -> Result<()> {
    let done = obey(pair, stage);
    if let Err(why) = &done {
        pair.give_up(why);
    }
    done
}

fn obey(pair: &mut Pair, stage: &mut Stage) -> Result<()> {
    let mut subjects: Vec<(Id, Box<dyn Bench>)> = Vec::new();
    loop {
        match pair.next_order()? {
            Order::SetUp(made) => {
                if let Ok(bench) = pair.set_up_here(|pair| bench::set_up(made, pair))? {
                    subjects.push((made.0, bench));
                }
            }
            Order::Run(spec) => {
                let Some((id, bench)) = subjects.get_mut(spec.subject) else {
                    return Err(Fail::Protocol(format!("subject {}", spec.subject)));
                };
                stage.label = id.to_string().into();
                let busy = watchdog::busy(&format!("{} of {id}", spec.what.name()));
                let _unbound = spec.setting.is_unbound().then(|| pair.unbind());
                let meter = Meter::start();
                let outcome = bench.run(stage, &spec)?;
                drop(busy);
                pair.done(outcome.cpu_ns, meter.read())?;
            }
            Order::Quit => return Ok(()),
        }
    }
}
