//! The door of a publisher or a subscriber: the place at which it listens, and the thread that
//! hears of the other side.

use std::{
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use pinfold_sys::threads::Kind as ThreadKind;

use super::{
    address::{PLACES, Side, Topic},
    control::Control,
    kind::Refused,
};
use crate::{Access, Builder, Endpoint, Error, PeerId, Result};

/// The tag of [`Control`]s.
pub(super) const CONTROL: u64 = 1;
/// The tag of samples.
pub(super) const SAMPLE: u64 = 2;

/// The time that others are given to answer when this side opens.
const OPENING: Duration = Duration::from_secs(2);
/// The longest that the other side may leave a [`Control`] untaken.
const CONTROL_PATIENCE: Duration = Duration::from_millis(200);
/// The pause after an error that does not end the endpoint.
const AFTER_ERROR: Duration = Duration::from_millis(10);

const THREAD: ThreadKind = ThreadKind::new("pinfold-topic", 256 << 10);

/// What a side does at its door.
pub(super) trait Host: Send + 'static {
    fn hear(&mut self, endpoint: &Endpoint, peer: PeerId, control: Control);

    /// How long to wait for the next message until [`Host::look_round`]; `None`: for ever.
    fn patience(&self) -> Option<Duration>;

    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    fn look_round(&mut self, endpoint: &Endpoint) -> Result<()>;
}

/// The endpoint that listens, and its thread.
pub(super) struct Door {
    endpoint: Endpoint,
    thread: Option<JoinHandle<()>>,
}

/// An endpoint at the first place of a side that is free, and its place.
///
/// # Errors
/// [`Error::LimitReached`] if none is, and as [`Builder::build`].
pub(super) fn listen(
    topic: &Topic,
    side: Side,
    access: &Access,
    set: impl Fn(Builder) -> Builder,
) -> Result<(Endpoint, u32)> {
    for place in 0..PLACES {
        let builder = set(Endpoint::builder().access(access.clone()));
        match builder.listen(&topic.own_place(side, place)).build() {
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

/// The label of a topic's endpoints: the beginning of its name.
pub(super) fn label(topic: &str) -> &str {
    topic.get(..topic.len().min(32)).unwrap_or_default()
}

impl Door {
    /// Has a thread hear of the other side.
    ///
    /// # Errors
    /// [`Error::Os`] at a limit on threads.
    pub(super) fn open(endpoint: Endpoint, host: impl Host) -> Result<Door> {
        let heard = endpoint.clone();
        let thread = THREAD
            .start(move || attend(&heard, host))
            .map_err(|error| Error::os("clone", "the thread of a topic", error))?;
        Ok(Door { endpoint, thread: Some(thread) })
    }

    #[inline]
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.endpoint.close();
        // In a child made by `fork(2)` the thread is not there.
        if let Some(thread) = self.thread.take().filter(|_| !self.endpoint.shared().is_forked()) {
            let _ = thread.join();
        }
    }
}

fn attend(endpoint: &Endpoint, mut host: impl Host) {
    let mut looks_at = host.patience().map(|patience| Instant::now() + patience);
    loop {
        let received = match looks_at {
            None => endpoint.recv(.., CONTROL),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                endpoint.recv_timeout(.., CONTROL, left)
            }
        };
        match received {
            Ok(message) => {
                // Whoever connects is heard when it says why; nobody waits for the connection.
                while endpoint.accept_timeout(Duration::ZERO).is_ok() {}
                let peer = message.peer();
                match Control::decode(&message) {
                    Some(control) => host.hear(endpoint, peer, control),
                    None => {
                        tracing::warn!(?peer, "no message of a topic, or of another edition");
                        endpoint.disconnect(peer);
                    }
                }
            }
            Err(Error::Closed | Error::Forked) => return,
            Err(Error::Timeout(_)) => {
                if host.look_round(endpoint).is_err() {
                    return;
                }
                looks_at = None;
            }
            Err(error) => {
                tracing::warn!(%error, "a topic hears of no others for now");
                std::thread::sleep(AFTER_ERROR);
            }
        }
        if looks_at.is_none() {
            looks_at = host.patience().map(|patience| Instant::now() + patience);
        }
    }
}

/// Sends a message to the other side, which must not hold this one up.
///
/// # Errors
/// As [`Endpoint::send_timeout`].
pub(super) fn say(endpoint: &Endpoint, peer: PeerId, control: &Control) -> Result<()> {
    endpoint.send_timeout(peer, CONTROL, &control.encode(), CONTROL_PATIENCE).map(|_| ())
}

/// The answers that an opening side waits for.
#[derive(Default)]
pub(super) struct Awaited {
    state: Mutex<AwaitedState>,
    changed: Condvar,
}

#[derive(Default)]
struct AwaitedState {
    peers: Vec<PeerId>,
    refused: Option<Refused>,
}

impl Awaited {
    /// An answer of this peer's is to be waited for.
    pub(super) fn expect(&self, peer: PeerId) {
        self.state.lock().peers.push(peer);
    }

    /// A peer has answered.
    pub(super) fn came(&self, peer: PeerId, refused: Option<Refused>) {
        let mut state = self.state.lock();
        state.peers.retain(|awaited| *awaited != peer);
        if state.refused.is_none() {
            state.refused = refused;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until all have answered, for a while: one that is stopped does not.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) fn wait(&self) -> std::result::Result<(), Refused> {
        let end = Instant::now() + OPENING;
        let mut state = self.state.lock();
        while !state.peers.is_empty() && state.refused.is_none() {
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.peers.clear();
        state.refused.take().map_or(Ok(()), Err)
    }
}
