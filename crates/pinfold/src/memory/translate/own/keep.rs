//! The steps that pin an area for longer than a transfer, in their order.
//!
//! 1. The stamp up to which events are applied.
//! 2. Watch. Changes of the area from here on are told.
//! 3. Is some of it in quarantine? Discards told before the stamp are over, unless it is. It has to
//!    be asked *before* it is pinned: a discard may come, and its quarantine end, right after.
//! 4. Which pages are there? Some changes are not told, so each transfer looks whether these are
//!    there still; the pages it compares with have to be those that are pinned.
//! 5. Pin.
//! 6. Is it memory that changes by calls on these addresses alone?
//! 7. Has no change happened since the stamp, told or under way? Otherwise the pinned memory may be
//!    old, or be new memory that was mapped there since 2 and is not watched; or a discard was told
//!    that is not in quarantine yet.
//! 8. Are the same pages still there, and was none put into this process's memory since 4? If
//!    others were there at 5 and these have come back, that took two faults, one each time. A fault
//!    is counted after the page is there, and before its thread goes on: so two threads at once
//!    would have to be in between. A process that shares this one's memory and is none of its
//!    threads is not counted: it would have to give two pages back and take them again in the other
//!    order, within the time of a pin.
//!
//! No I/O: the steps themselves are a trait's.

use super::standing::Why;
use crate::memory::translate::pincache::{Area, Refused};

/// The operations that the steps are made of.
pub(super) trait Steps {
    /// The stamp up to which events were applied.
    type Stamp: Copy;
    /// A pin.
    type Pinned;

    /// The latest stamp.
    fn stamp(&self) -> Self::Stamp;
    /// From now on all changes of the area are told.
    fn watch(&mut self, area: Area) -> Result<(), Why>;
    /// Ends the watch, as far as no other kept area has the memory.
    fn unwatch(&mut self, area: Area);
    /// Returns whether some of the area is in quarantine.
    fn may_be_discarded(&self, area: Area) -> bool;
    /// Notes which pages are there.
    fn look(&mut self, area: Area) -> Result<(), Why>;
    /// Pins.
    fn pin(&mut self, area: Area) -> Result<Self::Pinned, Refused>;
    /// Unpins.
    fn unpin(&mut self, pinned: Self::Pinned);
    /// Returns whether the area is private memory of no file.
    fn is_private(&self, area: Area) -> bool;
    /// Returns whether nothing has happened to watched memory since, told or not.
    fn holds(&self, stamp: Self::Stamp) -> Result<bool, Why>;
    /// Returns whether the pages that were noted have been there all the while.
    fn stayed(&self, area: Area) -> bool;
}

/// Pins an area so that each later change of it will be told; or leaves all as it was, and says
/// with [`Refused::NotKept`] why it cannot be kept.
pub(super) fn keep<S: Steps>(steps: &mut S, area: Area) -> Result<S::Pinned, Refused> {
    let not_kept = |why: Why| Refused::NotKept(why.number());
    let stamp = steps.stamp();
    steps.watch(area).map_err(not_kept)?;
    let done = pin_between(steps, area, stamp, not_kept);
    if done.is_err() {
        steps.unwatch(area);
    }
    done
}

fn pin_between<S: Steps>(
    steps: &mut S,
    area: Area,
    stamp: S::Stamp,
    not_kept: impl Fn(Why) -> Refused,
) -> Result<S::Pinned, Refused> {
    if steps.may_be_discarded(area) {
        return Err(not_kept(Why::Discarding));
    }
    steps.look(area).map_err(&not_kept)?;
    let pinned = steps.pin(area)?;
    let why = if !steps.is_private(area) {
        Some(Why::Kind)
    } else {
        match steps.holds(stamp) {
            Ok(true) if steps.stayed(area) => None,
            Ok(true) => Some(Why::Restless),
            Ok(false) => Some(Why::Restless),
            Err(why) => Some(why),
        }
    };
    match why {
        None => Ok(pinned),
        Some(why) => {
            steps.unpin(pinned);
            Err(not_kept(why))
        }
    }
}
