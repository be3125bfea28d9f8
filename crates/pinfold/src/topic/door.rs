//! The door of a publisher or a subscriber: an endpoint that listens at the first free place. Its
//! own thread answers those who come, by a handler of active messages, so that the program need
//! not call for others to join.

use std::{sync::Arc, time::Duration};

use super::{
    address::{PLACES, Side, Topic},
    control::Control,
};
use crate::{Access, Active, Builder, Endpoint, Error, Progress, Result};

/// The handler of [`Control`]s.
pub(super) const CONTROL: u32 = 1;
/// The tag of samples.
pub(super) const SAMPLE: u64 = 1;

/// A side, as those see it who come to its door.
pub(super) trait Host: Send + Sync + 'static {
    /// Answers a message, or has another thread do it. `false`: it is none for this side.
    fn hear(&self, active: &Active<'_>, control: Control) -> bool;
}

/// An endpoint at the first place of a side that is free, and its place.
///
/// # Errors
/// [`Error::LimitReached`] if none is, and as [`Builder::build`].
pub(super) fn open(
    topic: &Topic,
    side: Side,
    access: &Access,
    host: &Arc<impl Host>,
    set: impl Fn(Builder) -> Builder,
) -> Result<(Endpoint, u32)> {
    for place in 0..PLACES {
        let host = Arc::clone(host);
        let builder = Endpoint::builder()
            .listen(&topic.own_place(side, place))
            .access(access.clone())
            .label(topic.label())
            .progress(Progress::Dedicated)
            .handle(CONTROL, move |active| hear(&*host, &active));
        match set(builder).build() {
            Ok(endpoint) => return Ok((endpoint, place)),
            Err(Error::NameInUse { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::LimitReached {
        what: match side {
            Side::Publishers => "the number of a topic's publishers",
            Side::Subscribers => "the number of a topic's subscribers",
        },
        limit: PLACES.into(),
        remedy: "use several topics",
    })
}

fn hear(host: &impl Host, active: &Active<'_>) {
    let (endpoint, peer) = (active.endpoint(), active.peer());
    // Nobody waits for connections.
    while endpoint.accept_timeout(Duration::ZERO).is_ok() {}
    let control = Control::decode(active.payload());
    if !control.is_some_and(|control| host.hear(active, control)) {
        tracing::warn!(?peer, "no message of a topic, or of another edition");
        endpoint.disconnect(peer);
    }
}
