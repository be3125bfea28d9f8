//! The steps by which an area comes to be pinned for longer than a transfer, in their order.
//!
//! 1. The stamp up to which events are applied.
//! 2. Watch. What happens to the area from here on is told.
//! 3. Is some of it in quarantine? Discards told before the stamp are over, unless it is. It has to be
//!    asked *before* it is pinned: a discard may come, and its quarantine end, right after.
//! 4. Pin.
//! 5. Is it memory that changes by calls on these addresses alone?
//! 6. Has nothing happened since the stamp, told or under way? Else what was pinned may be old, or be
//!    new memory that was mapped there since 2 and is not watched; or a discard was told that is
//!    not in quarantine yet.
//!
//! No I/O: the steps themselves are a trait's.

use super::standing::Why;
use crate::translate::pincache::{Area, Refused};

/// What the steps are made of.
pub(super) trait Steps {
    /// Up to where events were applied.
    type Stamp: Copy;
    /// A pin.
    type Pinned;

    /// The latest stamp.
    fn stamp(&self) -> Self::Stamp;
    /// From now on all that happens to the area is told.
    fn watch(&mut self, area: Area) -> Result<(), Why>;
    /// Ends that, as far as no other area that is kept has the memory.
    fn unwatch(&mut self, area: Area);
    /// Whether some of the area is in quarantine.
    fn may_be_discarded(&self, area: Area) -> bool;
    /// Pins.
    fn pin(&mut self, area: Area) -> Result<Self::Pinned, Refused>;
    /// Unpins.
    fn unpin(&mut self, pinned: Self::Pinned);
    /// Whether the area is private memory of no file.
    fn is_private(&self, area: Area) -> bool;
    /// Whether nothing has happened to watched memory since, told or not.
    fn holds(&self, stamp: Self::Stamp) -> Result<bool, Why>;
}

/// Pins an area so that each later change of it will be told; or leaves all as it was, and says with
/// [`Refused::NotKept`] why it cannot be kept.
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
    let pinned = steps.pin(area)?;
    let why = if !steps.is_private(area) {
        Some(Why::Kind)
    } else {
        match steps.holds(stamp) {
            Ok(true) => None,
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
