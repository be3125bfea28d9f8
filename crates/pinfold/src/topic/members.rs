//! The subscribers of a publisher, and the samples that it keeps for later ones.
//!
//! Both are under one lock: a subscriber that joins is given what is kept, and every sample after
//! that.

use std::{collections::VecDeque, time::Duration};

use super::{
    control::{Answer, Join},
    door::SAMPLE,
};
use crate::{DonatedBuf, Endpoint, Error, PeerId, Result};

/// The outcome of publishing a sample.
///
/// ```
/// use pinfold::topic::{Publisher, Subscriber};
///
/// # fn main() -> pinfold::Result<()> {
/// # let topic = &format!("doc-published-{}", std::process::id());
/// let publisher = Publisher::<u64>::open(topic)?;
/// assert_eq!(publisher.send(&1)?.subscribers, 0); // Nobody is there.
/// let subscriber = Subscriber::<u64>::open(topic)?;
/// let published = publisher.send(&2)?;
/// assert_eq!((published.number, published.subscribers, published.let_go), (1, 1, 0));
/// assert_eq!(subscriber.recv()?.read()?, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The number of samples that the publisher published before.
    pub number: u64,
    /// Subscribers that get it: it is on its way, or the next to go.
    pub subscribers: usize,
    /// Subscribers that will not get the sample before, which waited for them until now.
    pub replaced: usize,
    /// Subscribers that were let go: they had asked for every sample, and took none for as long as
    /// the publisher has [patience](super::PublisherBuilder::patience).
    pub let_go: usize,
}

/// A subscriber, as its publisher knows it.
struct Member {
    peer: PeerId,
    id: u128,
    every: bool,
}

pub(super) struct Members {
    members: Vec<Member>,
    members_max: usize,
    patience: Duration,
    /// The last samples, the oldest first.
    kept: VecDeque<DonatedBuf>,
    kept_max: usize,
    next: u64,
}

/// The outcome of offering a sample to a subscriber.
enum Offered {
    Given,
    /// In place of the one before.
    Replaced,
    /// It took none in time.
    Late,
    Gone,
}

impl Members {
    pub(super) fn new(members_max: usize, patience: Duration, kept_max: usize) -> Members {
        let (members, kept) = (Vec::new(), VecDeque::new());
        Members { members, members_max, patience, kept, kept_max, next: 0 }
    }

    /// Subscribers that are there.
    pub(super) fn count(&mut self, endpoint: &Endpoint) -> usize {
        self.members.retain(|member| endpoint.peer(member.peer).is_some());
        self.members.len()
    }

    /// A subscriber wants to join; it gets the last samples, as many as it wants.
    pub(super) fn join(&mut self, endpoint: &Endpoint, peer: PeerId, join: &Join) -> Answer {
        let Join { subscriber: id, history, every, .. } = *join;
        let count = self.count(endpoint);
        if self.members.iter().any(|member| member.id == id) {
            return Answer::JoinedBefore;
        }
        if count >= self.members_max {
            return Answer::Full;
        }
        let wanted = self.kept.len().min(history as usize);
        for sample in self.kept.range(self.kept.len() - wanted..) {
            // It is queued, and goes as the subscriber takes them.
            drop(endpoint.handoff(peer, SAMPLE, sample.clone()));
        }
        self.members.push(Member { peer, id, every });
        Answer::Joined
    }

    /// The number of the next sample.
    #[inline]
    pub(super) fn number(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    /// Gives a sample to all.
    ///
    /// # Errors
    /// [`Error::Closed`], [`Error::Forked`].
    #[inline]
    pub(super) fn publish(
        &mut self,
        endpoint: &Endpoint,
        number: u64,
        sample: DonatedBuf,
    ) -> Result<Published> {
        let mut published = Published { number, ..Published::default() };
        if self.kept_max > 0 {
            while self.kept.len() >= self.kept_max {
                self.kept.pop_front();
            }
            self.kept.push_back(sample.clone());
        }
        let patience = self.patience;
        let mut at = 0;
        while let Some(member) = self.members.get(at) {
            match offer(endpoint, member, &sample, patience)? {
                Offered::Given => published.subscribers += 1,
                Offered::Replaced => {
                    published.subscribers += 1;
                    published.replaced += 1;
                }
                Offered::Late => {
                    published.let_go += 1;
                    endpoint.disconnect(member.peer);
                    self.members.swap_remove(at);
                    continue;
                }
                Offered::Gone => {
                    self.members.swap_remove(at);
                    continue;
                }
            }
            at += 1;
        }
        Ok(published)
    }
}

#[inline]
fn offer(
    endpoint: &Endpoint,
    member: &Member,
    sample: &DonatedBuf,
    patience: Duration,
) -> Result<Offered> {
    let offered = if member.every {
        let given = endpoint.give_timeout(member.peer, SAMPLE, sample.clone(), patience);
        given.map(|()| Offered::Given).map_err(|not_given| not_given.error)
    } else {
        let replaced = endpoint.give_latest(member.peer, SAMPLE, sample.clone());
        replaced.map(|replaced| replaced.map_or(Offered::Given, |_| Offered::Replaced))
    };
    offered.or_else(|error| match error {
        Error::Closed | Error::Forked => Err(error),
        Error::PeerGone { .. } | Error::UnknownPeer { .. } => Ok(Offered::Gone),
        error => {
            tracing::warn!(%error, "a subscriber is let go");
            Ok(Offered::Late)
        }
    })
}
