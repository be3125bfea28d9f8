//! `Publisher`: a program's side that writes samples.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    address::{Side, Topic},
    door,
    host::PublisherHost,
    kind::Kind,
    loan::{Loan, Loans},
    members::{Members, Published},
    payload::Payload,
    rounds::Rounds,
    stamp::{self, Stamp},
};
use crate::{Access, Arena, ArenaStats, Builder, Endpoint, Error, Result, random};

/// Publishes samples of a topic.
///
/// It can be used from several threads; samples are numbered in the order in which
/// [`Publisher::publish`] is called. Dropping it waits for no subscriber: those that were given
/// samples keep them.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-publisher-{}", std::process::id());
/// let publisher = Publisher::<u64>::builder().history(1).open(topic)?;
/// publisher.send(&17)?;
/// let late = Subscriber::<u64>::builder().history(1).open(topic)?;
/// assert_eq!(late.recv()?.read()?, 17);
/// # Ok(())
/// # }
/// ```
pub struct Publisher<T: Payload + ?Sized> {
    endpoint: Endpoint,
    host: Arc<PublisherHost>,
    arena: Arena,
    loans: Loans,
    id: u128,
    rounds: Option<Rounds>,
    of: PhantomData<fn(&T)>,
}

/// The settings of a publisher.
///
/// ```
/// use std::time::Duration;
/// use pinfold::topic::Publisher;
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-publisher-builder-{}", std::process::id());
/// let publisher = Publisher::<[u8]>::builder()
///     .schema("camera-2")
///     .in_flight(4)
///     .patience(Duration::from_millis(50))
///     .open(topic)?;
/// assert_eq!(publisher.subscribers(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PublisherBuilder<T: Payload + ?Sized> {
    access: Access,
    schema: String,
    history: usize,
    loans: usize,
    in_flight: u32,
    slice_max: usize,
    subscribers_max: usize,
    patience: Duration,
    of: PhantomData<fn(&T)>,
}

impl<T: Payload + ?Sized> PublisherBuilder<T> {
    /// The users that subscribers may belong to. Default: the same user. Subscribers of others name
    /// the topic `USER/NAME`, by this user, and look for new publishers once a second.
    pub fn access(mut self, access: Access) -> PublisherBuilder<T> {
        self.access = access;
        self
    }

    /// A name for what samples mean, such as a type's name and version, at most 64 bytes: both
    /// sides must give the same. Default: none. Size and alignment, and whether samples are slices,
    /// are compared in any case.
    pub fn schema(mut self, name: &str) -> PublisherBuilder<T> {
        name.clone_into(&mut self.schema);
        self
    }

    /// How many of the last samples to keep for subscribers that join later. Default: 0.
    pub fn history(mut self, samples: usize) -> PublisherBuilder<T> {
        self.history = samples;
        self
    }

    /// The most samples that are lent to this program and not published. Default: 4.
    pub fn loans(mut self, most: usize) -> PublisherBuilder<T> {
        self.loans = most;
        self
    }

    /// The most samples that a subscriber has, looked at or waiting to be; the newest after them
    /// waits here, where a newer one takes its place, or for a subscriber that wants
    /// [every sample](super::SubscriberBuilder::every_sample) the publisher waits. At least 1.
    /// Default: 2, one to look at and one to take next.
    pub fn in_flight(mut self, samples: u32) -> PublisherBuilder<T> {
        self.in_flight = samples.max(1);
        self
    }

    /// The longest slice that [`PublisherBuilder::in_flight`] counts as one sample, bytes: longer
    /// ones count as several for subscribers that want every sample. Default: 16 MiB. Of no account
    /// for types of one size.
    pub fn slice_max(mut self, bytes: usize) -> PublisherBuilder<T> {
        self.slice_max = bytes;
        self
    }

    /// The most subscribers. Default: 128, which is also the most.
    pub fn subscribers_max(mut self, most: usize) -> PublisherBuilder<T> {
        self.subscribers_max = most;
        self
    }

    /// The longest that a subscriber which wants every sample may hold up this publisher, for each
    /// sample; then it is let go. Default: one second.
    pub fn patience(mut self, patience: Duration) -> PublisherBuilder<T> {
        self.patience = patience;
        self
    }

    /// Opens the topic; waits until the subscribers that are there have joined, at most two
    /// seconds: one that is stopped joins later.
    ///
    /// # Errors
    /// [`Error::OtherType`] if one of them takes samples to be of another type;
    /// [`Error::LimitReached`] if the topic has 128 publishers; [`Error::BadAddress`]; as
    /// [`Builder::build`](crate::Builder::build).
    pub fn open(self, topic: &str) -> Result<Publisher<T>> {
        let parsed = Topic::parse(topic)?;
        if parsed.is_others() {
            return Err(Error::BadAddress {
                address: topic.to_owned(),
                why: "publishers are of the topic's own user",
            });
        }
        let kind = Kind::of::<T>(&self.schema)?;
        let sample_bytes = match T::SHAPE.is_slice {
            true => self.slice_max,
            false => T::SHAPE.bytes as usize,
        };
        let cost = sample_bytes.saturating_add(stamp::room(T::SHAPE)).saturating_add(1 << 10);
        let bytes_max = cost.saturating_mul(self.in_flight as usize);
        let set =
            |builder: Builder| builder.frames_in_flight(self.in_flight).given_bytes_max(bytes_max);
        let members = Members::new(self.subscribers_max, self.patience, self.history);
        let host = Arc::new(PublisherHost::new(kind, members));
        let (endpoint, place) = door::open(&parsed, Side::Publishers, &self.access, &host, set)?;
        let id = u128::from_le_bytes(random::bytes("the name of a publisher")?);
        let (arena, loans) = (Arena::new()?, Loans::new(self.loans));
        let called = host.call(&endpoint, &parsed, place)?;
        if let Some(refused) = called.refused {
            return Err(refused.error(topic, host.kind()));
        }
        let mut publisher =
            Publisher { endpoint, host, arena, loans, id, rounds: None, of: PhantomData };
        if called.is_to_repeat {
            let (endpoint, host) = (publisher.endpoint.clone(), Arc::clone(&publisher.host));
            let round = move || Ok(host.call(&endpoint, &parsed, place)?.is_to_repeat);
            publisher.rounds = Some(Rounds::begin(round)?);
        }
        Ok(publisher)
    }
}

impl<T: Payload + ?Sized> Publisher<T> {
    /// A publisher with the settings that [`PublisherBuilder`] begins with.
    ///
    /// # Errors
    /// As [`PublisherBuilder::open`].
    pub fn open(topic: &str) -> Result<Publisher<T>> {
        Publisher::builder().open(topic)
    }

    /// Settings for a publisher.
    pub fn builder() -> PublisherBuilder<T> {
        PublisherBuilder {
            access: Access::default(),
            schema: String::new(),
            history: 0,
            loans: 4,
            in_flight: 2,
            slice_max: 16 << 20,
            subscribers_max: super::address::PLACES as usize,
            patience: Duration::from_secs(1),
            of: PhantomData,
        }
    }

    /// Gives a sample to all subscribers. It does not wait, unless one of them wants every sample
    /// and has as many as it may have.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`]. A subscriber that is gone is none.
    #[inline]
    pub fn publish(&self, sample: Loan<T>) -> Result<Published> {
        self.host.with_members(&self.endpoint, |members| {
            let number = members.number();
            let sample = sample.stamped(Stamp::new(self.id, number));
            members.publish(&self.endpoint, number, sample)
        })?
    }

    /// Publishes a copy of `value`.
    ///
    /// # Errors
    /// As [`Publisher::loan`] and [`Publisher::publish`].
    pub fn send(&self, value: &T) -> Result<Published> {
        let mut sample = self.loans.lend::<T>(&self.arena, size_of_val(value))?;
        sample.as_mut_bytes().copy_from_slice(value.as_bytes());
        self.publish(sample)
    }

    /// The memory of its samples, in use or kept for others.
    pub fn memory(&self) -> ArenaStats {
        self.arena.stats()
    }

    /// The number of subscribers that have joined and are there; none in a child made by `fork(2)`.
    pub fn subscribers(&self) -> usize {
        let count = |members: &mut Members| members.count(&self.endpoint);
        self.host.with_members(&self.endpoint, count).unwrap_or(0)
    }
}

impl<T: Payload> Publisher<T> {
    /// Memory for a sample.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if the program has [all that it may have](PublisherBuilder::loans);
    /// as [`Arena::alloc`].
    #[inline]
    pub fn loan(&self) -> Result<Loan<T>> {
        self.loans.lend(&self.arena, size_of::<T>())
    }
}

impl<E> Publisher<[E]>
where
    [E]: Payload,
{
    /// Memory for a sample of `len` elements.
    ///
    /// # Errors
    /// As [`Publisher::loan`], and [`Error::LimitReached`] if they are longer than memory can be.
    pub fn loan_slice(&self, len: usize) -> Result<Loan<[E]>> {
        self.loans.lend(&self.arena, len.saturating_mul(size_of::<E>()))
    }
}

impl<T: Payload + ?Sized> Drop for Publisher<T> {
    fn drop(&mut self) {
        // A round under way ends, too.
        self.endpoint.close();
        if let Some(rounds) = self.rounds.take() {
            rounds.end(&self.endpoint);
        }
    }
}

impl<T: Payload + ?Sized> fmt::Debug for Publisher<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("loans", &self.loans).finish_non_exhaustive()
    }
}
