//! How long messages take: measured by the machinery of `pinfold perf`, between two children.

use std::time::Duration;

use super::super::child::{self, Denial, Tried};
use super::connect::ConnectTrial;
use crate::perf::brief::{self, Brief};

/// How long the measurement takes.
const TIME: Duration = Duration::from_millis(2700);
/// Messages that are measured, bytes.
pub(crate) const SIZES: [usize; 5] = [8, 1 << 10, 4 << 10, 64 << 10, 1 << 20];
/// What a machine may take that is very busy, or stops its processes now and then.
const PATIENCE: Duration = Duration::from_secs(90);

/// Measures.
pub(crate) fn measure(meeting: &ConnectTrial) -> Tried<Brief> {
    let place = meeting.elsewhere();
    let (here, there) = brief::ends().map_err(Denial::Untried)?;
    let mut here = Some(here);
    let second = child::start("", || {
        // Its copy; or it would not notice the end of the other process.
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
    // It ends with the first; what it has to say, that one has said.
    drop(second);
    found
}
