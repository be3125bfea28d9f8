//! Calling everybody at the places of one side.

use std::time::{Duration, Instant};

use super::address::{PLACES, Side, Topic};
use crate::{Endpoint, Error, PeerId, Result};

/// A process that is stopped keeps its place and does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time until those are called again that did not answer.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// The outcome of calling a side.
#[derive(Default)]
pub(super) struct Called {
    /// Those that answered, and their places.
    pub peers: Vec<(u32, PeerId)>,
    /// True if somebody is there who did not answer.
    pub is_to_repeat: bool,
    /// The first refusal.
    pub refused: Option<Error>,
}

/// Calls those places of a side that are `wanted`, all at the same time.
///
/// # Errors
/// [`Error::Closed`], [`Error::Forked`]; [`Error::BadAddress`] if there is no such user.
pub(super) fn call_all(
    endpoint: &Endpoint,
    topic: &Topic,
    side: Side,
    wanted: impl Fn(u32) -> bool,
) -> Result<Called> {
    let end = Instant::now() + PATIENCE;
    let calls: Vec<_> = (0..PLACES)
        .filter(|&place| wanted(place))
        .map(|place| (place, endpoint.connect_request(&topic.place(side, place))))
        .collect();
    let mut called = Called::default();
    for (place, mut call) in calls {
        match call.wait_timeout(end.saturating_duration_since(Instant::now())) {
            Some(Ok(peer)) => called.peers.push((place, peer)),
            Some(Err(Error::NameGone { .. })) => {}
            Some(Err(error @ (Error::Closed | Error::Forked | Error::BadAddress { .. }))) => {
                return Err(error);
            }
            Some(Err(error @ (Error::NotAllowed { .. } | Error::VersionMismatch { .. }))) => {
                called.refused.get_or_insert(error);
            }
            Some(Err(error)) => {
                tracing::debug!(%error, place, "calling the other side of a topic");
                called.is_to_repeat = true;
            }
            None => called.is_to_repeat = true,
        }
    }
    Ok(called)
}
