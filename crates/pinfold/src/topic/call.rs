//! Calling everybody at the places of one side.

use std::time::{Duration, Instant};

use super::{
    address::{PLACES, Side, Topic},
    control::Control,
    door::CONTROL,
};
use crate::{Endpoint, Error, PeerId, Result};

/// A process that is stopped keeps its place and does not answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The outcome of calling a side.
#[derive(Default)]
pub(super) struct Called {
    /// Those that answered, their places and their answers.
    pub answers: Vec<(u32, PeerId, Control)>,
    /// True if somebody is there who did not answer.
    pub is_to_repeat: bool,
    /// The first refusal.
    pub refused: Option<Error>,
}

/// Calls those places of a side that are `wanted`, and says `what` to whoever is there; all at the
/// same time.
///
/// # Errors
/// [`Error::Closed`], [`Error::Forked`]; [`Error::BadAddress`] if there is no such user.
pub(super) fn call_all(
    endpoint: &Endpoint,
    topic: &Topic,
    side: Side,
    wanted: impl Fn(u32) -> bool,
    what: &Control,
) -> Result<Called> {
    let end = Instant::now() + PATIENCE;
    let left = || end.saturating_duration_since(Instant::now());
    let calls: Vec<_> = (0..PLACES)
        .filter(|&place| wanted(place))
        .map(|place| (place, endpoint.connect_request(&topic.place(side, place))))
        .collect();
    let (mut called, mut asked) = (Called::default(), Vec::new());
    for (place, mut call) in calls {
        match call.wait_timeout(left()) {
            Some(Ok(peer)) => {
                asked.push((place, peer, endpoint.request(peer, CONTROL, &what.encode())));
            }
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
    for (place, peer, mut reply) in asked {
        match reply.wait_timeout(left()) {
            Some(Ok(answer)) => match Control::decode(&answer) {
                Some(answer) => called.answers.push((place, peer, answer)),
                None => endpoint.disconnect(peer),
            },
            Some(Err(error @ (Error::Closed | Error::Forked))) => return Err(error),
            // It is gone, or is no side of a topic.
            Some(Err(error)) => {
                tracing::debug!(%error, place, "asking the other side of a topic");
                endpoint.disconnect(peer);
            }
            None => {
                endpoint.disconnect(peer);
                called.is_to_repeat = true;
            }
        }
    }
    Ok(called)
}
