//! The costs of messages: measured by the machinery of `pinfold perf`, between two children.

use std::time::Duration;

use super::super::child::{self, Denial, Tried};
use super::connect::ConnectTrial;
use pinfold_bench::brief::{self, Brief};

/// Time of the measurement.
const TIME: Duration = Duration::from_millis(2700);
/// Messages that are measured, bytes.
pub(crate) const SIZES: [usize; 5] = [8, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// Time allowed on a machine that is very busy, or stops its processes now and then.
const PATIENCE: Duration = Duration::from_secs(90);

/// Measures.
pub(crate) fn measure(meeting: &ConnectTrial) -> Tried<Brief> {
    let place = meeting.elsewhere();
    let (here, there) = brief::ends().map_err(Denial::Untried)?;
    let mut here = Some(here);
    let second = child::start("", || {
        // The copy of the other end is closed; else this process would not notice the other one's
        // death.
        drop(here.take());
        child::look_for_names_in(place);
        brief::second(there).map_err(Denial::Untried)
    })?;
    let first = child::start("", || {
        child::look_for_names_in(place);
        let here = here.take().ok_or_else(|| Denial::Untried("there is no socket".into()))?;
        brief::first(here, &SIZES, TIME).map_err(Denial::Untried)
    })?;
    drop(here);
    let found = first.finish(PATIENCE);
    // The second process ends with the first, which has reported for both.
    drop(second);
    found
}
