//! Tag matching: which posted receive takes an arriving message, and which stored message a
//! new receive takes.
//!
//! The order is MPI's. Of the posted receives that match a message the earliest posted takes
//! it, exact or wildcard; of the stored messages that match a receive the earliest arrived is
//! taken. Messages of one peer that match the same receive are therefore never overtaken.
//!
//! Both sides work alike. Entries lie in an [`arena`] in order of arrival, and short queues are
//! scanned. When a scan goes too far the entries are indexed by *class*: the fields that a receive
//! compares, that is, its source if it names one, and the bits of the tag that it does not ignore.
//! Within a class a hash finds the earliest match, so that the cost does not depend on how many
//! entries wait. Programs use a handful of classes; receives beyond [`CLASSES_MAX`] are scanned in
//! order, slowly but correctly.
//!
//! There is no I/O here and nothing blocks. Memory follows the number of entries, not the number
//! of tags ever seen, and a queue that was long is given back when it empties.

mod arena;
mod index;
mod pattern;
mod posted;
mod unexpected;

#[cfg(test)]
mod tests;

pub use pattern::{Source, TagMatch};

use crate::PeerId;
use arena::Ticket;
use index::Seeds;
use posted::Posted;
use unexpected::Unexpected;

/// Classes that are indexed at a time, on either side.
const CLASSES_MAX: usize = 8;

/// Entries a scan looks at before the queue is indexed.
const SCAN_MAX: usize = 8;

/// An indexed queue goes back to scanning when no more entries than this are left.
const SCAN_AGAIN: usize = SCAN_MAX / 2;

/// A queue that empties keeps the storage of this many entries for the next ones.
const KEPT_MAX: usize = 4096;

/// Names a posted receive until it is matched or cancelled; never matches a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PostedKey(Ticket);

/// Names a stored message until it is taken or removed; never matches a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnexpectedKey(Ticket);

/// Posted receives, each with a `P`, and messages that came before their receive, each with
/// a `U`.
///
/// The caller keeps the two sides apart: it posts a receive only after [`take`](Self::take) found
/// no message for it, and stores a message only after [`arrive`](Self::arrive) found no receive.
///
/// A receive that [stands](Self::post_standing) takes every message that matches it, until it is
/// withdrawn: it keeps its place, so that no receive posted later overtakes it.
///
/// Messages are numbered as they come. If the receive of a message was given up, the message is
/// stored again under its number, before all that came later ([`keep_again`](Self::keep_again)).
pub(crate) struct Matcher<P, U> {
    posted: Posted<P>,
    unexpected: Unexpected<U>,
    /// Messages that have come.
    arrivals: u64,
    /// The number of the message that was matched last.
    matched: u64,
}

impl<P: Copy, U> Matcher<P, U> {
    /// An empty matcher. `seed` should be a random number that peers do not know: it keeps them
    /// from choosing tags that collide.
    pub(crate) fn new(seed: u64) -> Matcher<P, U> {
        let seeds = Seeds::new(seed);
        Matcher {
            posted: Posted::new(seeds),
            unexpected: Unexpected::new(seeds),
            arrivals: 0,
            matched: 0,
        }
    }

    /// Returns whether no message is stored. A load.
    #[inline]
    pub(crate) fn stores_none(&self) -> bool {
        self.unexpected.len() == 0
    }

    /// Returns whether a posted receive would take this message. A load where none is posted.
    #[inline]
    pub(crate) fn would_take(&mut self, peer: PeerId, tag: u64) -> bool {
        self.posted.len() > 0 && self.posted.find(peer, tag).is_some()
    }

    /// Posted receives.
    pub(crate) fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Stored messages.
    pub(crate) fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Posts a receive, after [`take`](Self::take) found nothing for it.
    #[inline]
    pub(crate) fn post(&mut self, from: Source, tag: TagMatch, value: P) -> PostedKey {
        PostedKey(self.posted.push(from, tag, value, false))
    }

    /// Posts a receive of many messages, after [`take`](Self::take) found none for it any more. It
    /// stays until it is [withdrawn](Self::cancel).
    pub(crate) fn post_standing(&mut self, from: Source, tag: TagMatch, value: P) -> PostedKey {
        PostedKey(self.posted.push(from, tag, value, true))
    }

    /// Withdraws a receive; `None` if it was matched or cancelled before.
    pub(crate) fn cancel(&mut self, key: PostedKey) -> Option<P> {
        self.posted.remove(key.0)
    }

    /// A message has come: returns the earliest posted receive that matches it, removed unless it
    /// stands.
    #[inline]
    pub(crate) fn arrive(&mut self, peer: PeerId, tag: u64) -> Option<P> {
        self.arrivals += 1;
        if self.posted.len() == 0 {
            return None;
        }
        self.matched = self.arrivals;
        self.posted.arrive(peer, tag)
    }

    /// A message has come that was matched otherwise: returns its number.
    pub(crate) fn pass(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// The number, never 0, of the message that [`arrive`](Self::arrive) or [`take`](Self::take)
    /// has matched last.
    #[inline]
    pub(crate) fn matched(&self) -> u64 {
        self.matched
    }

    /// A message has lost its receive: returns the earliest other one that matches it, removed
    /// unless it stands.
    pub(crate) fn arrive_again(&mut self, peer: PeerId, tag: u64) -> Option<P> {
        self.posted.arrive(peer, tag)
    }

    /// Stores message number `arrival` again, after [`arrive_again`](Self::arrive_again) found no
    /// receive for it.
    pub(crate) fn keep_again(
        &mut self,
        (peer, tag): (PeerId, u64),
        arrival: u64,
        value: U,
    ) -> UnexpectedKey {
        UnexpectedKey(self.unexpected.insert(peer, tag, arrival, value))
    }

    /// Stores a message, after [`arrive`](Self::arrive) found no receive for it.
    #[inline]
    pub(crate) fn keep(&mut self, peer: PeerId, tag: u64, value: U) -> UnexpectedKey {
        UnexpectedKey(self.unexpected.push(peer, tag, self.arrivals, value))
    }

    /// The earliest arrived message that matches, removed.
    #[inline]
    pub(crate) fn take(&mut self, from: Source, tag: TagMatch) -> Option<(PeerId, u64, U)> {
        if self.unexpected.len() == 0 {
            return None;
        }
        let (peer, tag, arrival, value) = self.unexpected.take(from, tag)?;
        self.matched = arrival;
        Some((peer, tag, value))
    }

    /// The earliest arrived message that matches, left where it is.
    #[inline]
    pub(crate) fn find(&mut self, from: Source, tag: TagMatch) -> Option<(PeerId, u64, &U)> {
        if self.unexpected.len() == 0 {
            return None;
        }
        self.unexpected.find(from, tag)
    }

    /// Has the earliest arrived message that matches found by no other receive. It keeps its place
    /// until it is [taken](Self::take_claimed), [put back](Self::unclaim) or removed.
    pub(crate) fn claim(&mut self, from: Source, tag: TagMatch) -> Option<UnexpectedKey> {
        self.unexpected.claim(from, tag).map(UnexpectedKey)
    }

    /// Has a message that was claimed found again.
    pub(crate) fn unclaim(&mut self, key: UnexpectedKey) {
        self.unexpected.unclaim(key.0);
    }

    /// A message that was claimed, with its sender, tag and number; `None` if it was removed.
    pub(crate) fn claimed(&self, key: UnexpectedKey) -> Option<(PeerId, u64, u64, &U)> {
        self.unexpected.claimed(key.0)
    }

    /// The same, removed: it is the message that was [matched](Self::matched) last.
    pub(crate) fn take_claimed(&mut self, key: UnexpectedKey) -> Option<(PeerId, u64, U)> {
        let (peer, tag, arrival, value) = self.unexpected.take_claimed(key.0)?;
        self.matched = arrival;
        Some((peer, tag, value))
    }

    /// A stored message, if it is still stored: its bytes may still be coming in.
    #[inline]
    pub(crate) fn unexpected_mut(&mut self, key: UnexpectedKey) -> Option<&mut U> {
        self.unexpected.get_mut(key.0)
    }

    /// Removes a stored message; `None` if it was taken or removed before.
    pub(crate) fn remove_unexpected(&mut self, key: UnexpectedKey) -> Option<U> {
        self.unexpected.remove(key.0)
    }

    /// Changes every stored message of a peer where it stands. Looks at every entry.
    pub(crate) fn each_unexpected_of(&mut self, peer: PeerId, change: impl FnMut(&mut U)) {
        self.unexpected.each_of(peer, change);
    }

    /// Removes the receives for whose source `goes` is true, in order. Looks at every receive.
    pub(crate) fn drop_posted(&mut self, goes: impl FnMut(Source) -> bool) -> Vec<P> {
        self.posted.drop_where(goes)
    }
}
