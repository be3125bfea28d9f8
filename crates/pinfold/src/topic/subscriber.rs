//! `Subscriber`: a program's side that reads samples.

use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::{
    address::{PLACES, Side, Topic},
    call::call_all,
    control::{Answer, Control, Join},
    door::{self, Host, SAMPLE},
    kind::{Kind, Refused},
    payload::Payload,
    rounds::Rounds,
    sample::Sample,
};
use crate::{Access, Active, Endpoint, Error, PeerId, Result, View, ViewRequest, random};

/// Gets the samples of a topic, of all its publishers; those of one come in order.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-subscriber-{}", std::process::id());
/// let subscriber = Subscriber::<u32>::open(topic)?;
/// assert!(subscriber.try_recv()?.is_none());
/// let publisher = Publisher::<u32>::open(topic)?;
/// publisher.send(&1)?;
/// assert_eq!(subscriber.recv()?.read()?, 1);
/// # Ok(())
/// # }
/// ```
///
/// Its descriptor ([`AsFd`]) becomes readable when there is a sample, after
/// [`Subscriber::arm`].
pub struct Subscriber<T: Payload + ?Sized> {
    endpoint: Endpoint,
    seen: Arc<Seen>,
    rounds: Option<Rounds>,
    of: PhantomData<fn() -> Box<T>>,
}

/// The settings of a subscriber.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-subscriber-builder-{}", std::process::id());
/// let subscriber = Subscriber::<u32>::builder().every_sample().history(8).open(topic)?;
/// let publisher = Publisher::<u32>::builder().in_flight(16).open(topic)?;
/// for number in 0..10 {
///     publisher.send(&number)?;
/// }
/// for number in 0..10 {
///     assert_eq!(subscriber.recv()?.read()?, number);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SubscriberBuilder<T: Payload + ?Sized> {
    access: Access,
    schema: String,
    history: u32,
    every: bool,
    of: PhantomData<fn() -> Box<T>>,
}

impl<T: Payload + ?Sized> SubscriberBuilder<T> {
    /// The users that publishers may belong to. Default: the same user.
    pub fn access(mut self, access: Access) -> SubscriberBuilder<T> {
        self.access = access;
        self
    }

    /// A name for what samples mean, see
    /// [`PublisherBuilder::schema`](super::PublisherBuilder::schema).
    pub fn schema(mut self, name: &str) -> SubscriberBuilder<T> {
        name.clone_into(&mut self.schema);
        self
    }

    /// How many samples to get of those that publishers
    /// [keep](super::PublisherBuilder::history), from before this one joined. Default: 0.
    pub fn history(mut self, samples: u32) -> SubscriberBuilder<T> {
        self.history = samples;
        self
    }

    /// Has publishers wait for this subscriber when it is slow, as long as they have
    /// [patience](super::PublisherBuilder::patience), so that it misses no sample. Without this it
    /// gets the newest.
    pub fn every_sample(mut self) -> SubscriberBuilder<T> {
        self.every = true;
        self
    }

    /// Opens the topic, `NAME`, or `USER/NAME` where its publishers are of another user; waits
    /// until it has joined the publishers that are there, at most two seconds: one that is stopped
    /// is joined later.
    ///
    /// # Errors
    /// [`Error::OtherType`] if one of them has samples of another type; [`Error::LimitReached`] if
    /// the topic, or one of them, has all subscribers that it may have; [`Error::NotAllowed`] if
    /// none is left that admits this user; [`Error::BadAddress`]; as
    /// [`Builder::build`](crate::Builder::build).
    pub fn open(self, topic: &str) -> Result<Subscriber<T>> {
        let parsed = Topic::parse(topic)?;
        let kind = Kind::of::<T>(&self.schema)?;
        let join = Join {
            subscriber: u128::from_le_bytes(random::bytes("the name of a subscriber")?),
            kind,
            history: self.history,
            every: self.every,
        };
        let publishers = Mutex::new([None; PLACES as usize]);
        let host = Arc::new(SubscriberHost { join, publishers });
        let (endpoint, _) =
            door::open(&parsed, Side::Subscribers, &self.access, &host, |builder| builder)?;
        let called = host.call(&endpoint, &parsed)?;
        if let Some(refused) = called.refused {
            return Err(refused.error(topic, &host.join.kind));
        }
        if let Some(error) = called.shut_out {
            return Err(error);
        }
        let mut subscriber =
            Subscriber { endpoint, seen: Arc::default(), rounds: None, of: PhantomData };
        // The publishers of another user cannot call this one.
        let is_others = parsed.is_others();
        if called.is_to_repeat || is_others {
            let endpoint = subscriber.endpoint.clone();
            let round = move || Ok(host.call(&endpoint, &parsed)?.is_to_repeat || is_others);
            subscriber.rounds = Some(Rounds::begin(round)?);
        }
        Ok(subscriber)
    }
}

/// A subscriber at its door.
struct SubscriberHost {
    join: Join,
    /// The publishers by their places.
    publishers: Mutex<[Option<PeerId>; PLACES as usize]>,
}

/// The outcome of calling all publishers.
struct CalledPublishers {
    refused: Option<Refused>,
    /// The reason why no publisher could be reached, if some are there.
    shut_out: Option<Error>,
    is_to_repeat: bool,
}

impl SubscriberHost {
    /// Calls all publishers that it has not joined, to join them.
    ///
    /// # Errors
    /// As [`call_all`].
    fn call(&self, endpoint: &Endpoint, topic: &Topic) -> Result<CalledPublishers> {
        let joined = *self.publishers.lock();
        let is_there = |peer: PeerId| endpoint.peer(peer).is_some();
        let is_new = |place: u32| !joined[place as usize].is_some_and(is_there);
        let join = Control::Join(self.join.clone());
        let called = call_all(endpoint, topic, Side::Publishers, is_new, &join)?;
        let nobody = called.answers.is_empty();
        let mut refused = None;
        for (place, peer, control) in called.answers {
            let answer = match control {
                Control::Answer { answer, kind } => match answer {
                    Answer::Joined => {
                        self.publishers.lock()[place as usize] = Some(peer);
                        continue;
                    }
                    Answer::JoinedBefore => None,
                    Answer::OtherType => Some(Refused::OtherType(kind)),
                    Answer::Full => Some(Refused::Full),
                },
                _ => None,
            };
            endpoint.disconnect(peer);
            if let Some(why) = answer {
                tracing::warn!(?why, place, "a publisher refuses this subscriber");
                refused.get_or_insert(why);
            }
        }
        let shut_out = called.refused.filter(|_| nobody);
        Ok(CalledPublishers { refused, shut_out, is_to_repeat: called.is_to_repeat })
    }
}

impl Host for SubscriberHost {
    fn hear(&self, active: &Active<'_>, control: Control) -> bool {
        let Control::Here { place, .. } = control else { return false };
        let (endpoint, peer) = (active.endpoint(), active.peer());
        if let Some(publisher) = self.publishers.lock().get_mut(place as usize)
            && !publisher.is_some_and(|peer| endpoint.peer(peer).is_some())
        {
            *publisher = Some(peer);
        }
        if let Err(error) = active.reply(&Control::Join(self.join.clone()).encode()) {
            tracing::debug!(%error, "an answer to a publisher");
        }
        true
    }
}

/// The last sample of each publisher.
#[derive(Default)]
struct Seen {
    last: Mutex<Vec<(u128, u64)>>,
}

impl Seen {
    /// Takes note of a sample. Returns how many were missed before it.
    #[inline]
    fn note(&self, publisher: u128, number: u64) -> u64 {
        let mut last = self.last.lock();
        match last.iter_mut().find(|(id, _)| *id == publisher) {
            Some((_, before)) => {
                let missed = number.saturating_sub(*before).saturating_sub(1);
                *before = number;
                missed
            }
            None => {
                // A place may have had many publishers.
                if last.len() == 2 * PLACES as usize {
                    last.remove(0);
                }
                last.push((publisher, number));
                0
            }
        }
    }
}

/// The sample in a view. `None`, with the peer let go, if it is none.
#[inline]
fn sample_of<'a, T: Payload + ?Sized>(
    endpoint: &Endpoint,
    seen: &Seen,
    view: View<'a>,
) -> Option<Sample<'a, T>> {
    match Sample::new(view) {
        Ok(sample) => {
            let missed = seen.note(sample.publisher(), sample.number());
            Some(sample.after(missed))
        }
        Err(view) => {
            tracing::warn!(peer = ?view.peer(), len = view.len(), "no sample of the type");
            endpoint.disconnect(view.peer());
            None
        }
    }
}

impl<T: Payload + ?Sized> Subscriber<T> {
    /// A subscriber with the settings that [`SubscriberBuilder`] begins with.
    ///
    /// # Errors
    /// As [`SubscriberBuilder::open`].
    pub fn open(topic: &str) -> Result<Subscriber<T>> {
        Subscriber::builder().open(topic)
    }

    /// Settings for a subscriber.
    pub fn builder() -> SubscriberBuilder<T> {
        SubscriberBuilder {
            access: Access::default(),
            schema: String::new(),
            history: 0,
            every: false,
            of: PhantomData,
        }
    }

    /// Waits for a sample.
    ///
    /// # Errors
    /// As [`Endpoint::recv`].
    #[inline]
    pub fn recv(&self) -> Result<Sample<'_, T>> {
        let endpoint = &self.endpoint;
        loop {
            let view = endpoint.recv_view(.., SAMPLE)?;
            if let Some(sample) = sample_of(endpoint, &self.seen, view) {
                return Ok(sample);
            }
        }
    }

    /// Waits for a sample, at most `patience`.
    ///
    /// # Errors
    /// [`Error::Timeout`], and as [`Endpoint::recv`].
    pub fn recv_timeout(&self, patience: Duration) -> Result<Sample<'_, T>> {
        let endpoint = &self.endpoint;
        let begun = Instant::now();
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let view =
                endpoint.recv_view_timeout(.., SAMPLE, left).map_err(|error| match error {
                    Error::Timeout(_) => Error::Timeout(patience),
                    error => error,
                })?;
            if let Some(sample) = sample_of(endpoint, &self.seen, view) {
                return Ok(sample);
            }
        }
    }

    /// A sample, if there is one.
    ///
    /// # Errors
    /// As [`Endpoint::recv`].
    pub fn try_recv(&self) -> Result<Option<Sample<'_, T>>> {
        match self.recv_timeout(Duration::ZERO) {
            Ok(sample) => Ok(Some(sample)),
            Err(Error::Timeout(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A future of the next sample. Never waits.
    pub fn recv_request(&self) -> SampleRequest<T> {
        let endpoint = self.endpoint.clone();
        let view = endpoint.recv_view_request(.., SAMPLE);
        SampleRequest { endpoint, seen: Arc::clone(&self.seen), view, of: PhantomData }
    }

    /// Prepares for waiting on the descriptor, as [`Endpoint::arm`]: `false` if there may be a
    /// sample already.
    ///
    /// # Errors
    /// As [`Endpoint::arm`].
    pub fn arm(&self) -> Result<bool> {
        self.endpoint.arm()
    }

    /// The number of publishers that are there.
    pub fn publishers(&self) -> usize {
        self.endpoint.peers().len()
    }
}

impl<T: Payload + ?Sized> AsFd for Subscriber<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.endpoint.as_fd()
    }
}

impl<T: Payload + ?Sized> Drop for Subscriber<T> {
    fn drop(&mut self) {
        // A round under way ends, too.
        self.endpoint.close();
        if let Some(rounds) = self.rounds.take() {
            rounds.end(&self.endpoint);
        }
    }
}

impl<T: Payload + ?Sized> fmt::Debug for Subscriber<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

/// The next sample, as a future ([`Subscriber::recv_request`]). If it is dropped before, the sample
/// goes to the next receive.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-sample-request-{}", std::process::id());
/// let publisher = Publisher::<u32>::open(topic)?;
/// let subscriber = Subscriber::<u32>::open(topic)?;
/// let next = subscriber.recv_request();
/// publisher.send(&1)?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async move {
/// assert_eq!(next.await?.read()?, 1);
/// # Ok(())
/// # })
/// # }
/// ```
pub struct SampleRequest<T: Payload + ?Sized> {
    endpoint: Endpoint,
    seen: Arc<Seen>,
    view: ViewRequest,
    of: PhantomData<fn() -> Box<T>>,
}

impl<T: Payload + ?Sized> Future for SampleRequest<T> {
    type Output = Result<Sample<'static, T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let view = ready!(Pin::new(&mut self.view).poll(context))?;
            if let Some(sample) = sample_of(&self.endpoint, &self.seen, view) {
                return Poll::Ready(Ok(sample));
            }
            self.view = self.endpoint.recv_view_request(.., SAMPLE);
        }
    }
}

impl<T: Payload + ?Sized> fmt::Debug for SampleRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SampleRequest").finish_non_exhaustive()
    }
}
