//! `Accounts`: the memory given to each peer and not back yet. It bounds the bytes, and holds
//! messages of which only the newest counts. A policy; no I/O.
//!
//! Of the messages with one tag of which the newest counts (*frames*), at most `frames_max` are
//! out; the next one waits here, where a newer one takes its place. A frame that is out is never
//! taken back.
//!
//! Accounting: `out` of an account is the sum of [`cost`] over all messages that were charged and
//! have not ended; `frames` has no entry without one that is out or waits, and `queue` the tags of
//! those that wait, each once.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::{PeerId, endpoint::DonatedBuf};

/// Cost of a given message beside its bytes: its bookkeeping.
const MESSAGE_COST: u64 = 1 << 10;

/// Cost of a given message of `len` bytes; never 0.
#[inline(always)]
pub(crate) fn cost(len: u64) -> u64 {
    len.saturating_add(MESSAGE_COST)
}

/// Frames of one tag.
struct Frames<T> {
    out: u32,
    waiting: Option<T>,
}

/// The account of one peer.
struct Account<T> {
    generation: u32,
    out: u64,
    frames: FxHashMap<u64, Frames<T>>,
    queue: VecDeque<u64>,
}

impl<T> Account<T> {
    fn of(generation: u32) -> Account<T> {
        Account { generation, out: 0, frames: FxHashMap::default(), queue: VecDeque::new() }
    }
}

/// Outcome of offering a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Offer<T> {
    /// The frame goes, and counts as being out.
    Goes(T),
    /// The frame waits, in place of an older one if there was one.
    Waits(Option<T>),
}

/// The accounts of all peers.
pub(crate) struct Accounts<T = DonatedBuf> {
    /// Indexed by the peers' indices.
    accounts: Vec<Account<T>>,
    bytes_max: u64,
    frames_max: u32,
}

impl<T> Default for Accounts<T> {
    fn default() -> Accounts<T> {
        Accounts::new(u64::MAX, 1)
    }
}

impl<T> Accounts<T> {
    /// Allows at most `bytes_max` bytes to a peer, but one message in any case, and `frames_max`
    /// frames of a tag.
    pub(crate) fn new(bytes_max: u64, frames_max: u32) -> Accounts<T> {
        Accounts { accounts: Vec::new(), bytes_max, frames_max }
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    #[inline]
    fn get(&self, peer: PeerId) -> Option<&Account<T>> {
        let account = self.accounts.get(peer.index() as usize)?;
        (account.generation == peer.generation()).then_some(account)
    }

    #[inline]
    fn get_mut(&mut self, peer: PeerId) -> &mut Account<T> {
        let index = peer.index() as usize;
        if self.accounts.len() <= index {
            self.accounts.resize_with(index + 1, || Account::of(peer.generation()));
        }
        let account = &mut self.accounts[index];
        if account.generation != peer.generation() {
            *account = Account::of(peer.generation());
        }
        account
    }

    /// Cost of everything that is out to a peer.
    #[inline]
    pub(crate) fn out(&self, peer: PeerId) -> u64 {
        self.get(peer).map_or(0, |account| account.out)
    }

    /// Returns whether a message of this cost may be given to a peer now.
    #[inline]
    pub(crate) fn admits(&self, peer: PeerId, cost: u64) -> bool {
        let out = self.out(peer);
        out == 0 || out.saturating_add(cost) <= self.bytes_max
    }

    /// Charges a message that is given.
    #[inline]
    pub(crate) fn charge(&mut self, peer: PeerId, cost: u64) {
        self.get_mut(peer).out += cost;
    }

    /// Ends the charge of a message that is back; `frame` is its tag if it was a frame.
    #[inline]
    pub(crate) fn end(&mut self, peer: PeerId, cost: u64, frame: Option<u64>) {
        if self.get(peer).is_none() {
            return;
        }
        let account = self.get_mut(peer);
        account.out = account.out.saturating_sub(cost);
        if let Some(tag) = frame {
            Accounts::end_frame(account, tag);
        }
    }

    #[cold]
    fn end_frame(account: &mut Account<T>, tag: u64) {
        let Some(frames) = account.frames.get_mut(&tag) else { return };
        frames.out = frames.out.saturating_sub(1);
        if frames.out == 0 && frames.waiting.is_none() {
            account.frames.remove(&tag);
        }
    }

    /// Offers a frame for a peer; `may_go` says that nothing else stands in its way.
    pub(crate) fn offer(
        &mut self,
        peer: PeerId,
        tag: u64,
        frame: T,
        cost: u64,
        may_go: bool,
    ) -> Offer<T> {
        let (admits, frames_max) = (self.admits(peer, cost), self.frames_max);
        let account = self.get_mut(peer);
        let frames = account.frames.entry(tag).or_insert_with(|| Frames { out: 0, waiting: None });
        if may_go && admits && frames.waiting.is_none() && frames.out < frames_max {
            frames.out += 1;
            return Offer::Goes(frame);
        }
        let replaced = frames.waiting.replace(frame);
        if replaced.is_none() {
            account.queue.push_back(tag);
        }
        Offer::Waits(replaced)
    }

    /// Returns whether frames wait for a peer.
    #[inline]
    pub(crate) fn has_waiting(&self, peer: PeerId) -> bool {
        self.get(peer).is_some_and(|account| !account.queue.is_empty())
    }

    /// The frames that wait for a peer.
    pub(crate) fn waiting(&self, peer: PeerId) -> impl Iterator<Item = &T> {
        let account = self.get(peer);
        account.into_iter().flat_map(|account| {
            account.queue.iter().filter_map(|tag| account.frames.get(tag)?.waiting.as_ref())
        })
    }

    /// The frame that has waited longest of those that may go now, or of all if `at_once`; it
    /// counts as being out.
    pub(crate) fn next(
        &mut self,
        peer: PeerId,
        cost: impl Fn(&T) -> u64,
        at_once: bool,
    ) -> Option<(u64, T)> {
        let account = self.get(peer)?;
        let goes = |tag: &u64| {
            let frames = account.frames.get(tag)?;
            let cost = cost(frames.waiting.as_ref()?);
            Some(at_once || frames.out < self.frames_max && self.admits(peer, cost))
        };
        let place = account.queue.iter().position(|tag| goes(tag) == Some(true))?;
        let account = self.get_mut(peer);
        let tag = account.queue.remove(place)?;
        let frames = account.frames.get_mut(&tag)?;
        frames.out += 1;
        Some((tag, frames.waiting.take()?))
    }

    /// Closes the account of a peer that is gone. Returns how many frames waited for it.
    pub(crate) fn close(&mut self, peer: PeerId) -> u64 {
        let Some(account) = self.get(peer) else { return 0 };
        let waiting = account.queue.len() as u64;
        *self.get_mut(peer) = Account::of(peer.generation());
        waiting
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: PeerId = PeerId::new(3, 7);
    const NEXT: PeerId = PeerId::new(3, 8);

    #[test]
    fn one_is_admitted_in_any_case() {
        let mut accounts = Accounts::<u8>::new(100, 2);
        assert!(accounts.admits(PEER, 1000));
        accounts.charge(PEER, 1000);
        assert!(!accounts.admits(PEER, 1) && accounts.admits(NEXT, 1));
        accounts.end(PEER, 1000, None);
        accounts.charge(PEER, 60);
        assert!(accounts.admits(PEER, 40) && !accounts.admits(PEER, 41));
        // A later peer with the same index has an account of its own.
        accounts.charge(NEXT, 1);
        assert_eq!((accounts.out(PEER), accounts.out(NEXT)), (0, 1));
        accounts.end(PEER, 60, None);
        assert_eq!(accounts.out(NEXT), 1);
    }

    #[test]
    fn the_newest_frame_waits() {
        let mut accounts = Accounts::new(1000, 2);
        for frame in 0..2 {
            assert_eq!(accounts.offer(PEER, 5, frame, 10, true), Offer::Goes(frame));
            accounts.charge(PEER, 10);
        }
        assert_eq!(accounts.offer(PEER, 5, 2, 10, true), Offer::Waits(None));
        assert_eq!(accounts.offer(PEER, 5, 3, 10, true), Offer::Waits(Some(2)));
        // Another tag has frames of its own.
        assert_eq!(accounts.offer(PEER, 6, 9, 10, false), Offer::Waits(None));
        assert_eq!(accounts.next(PEER, |_| 10, false), Some((6, 9)));
        assert_eq!(accounts.next(PEER, |_| 10, false), None);
        accounts.end(PEER, 10, Some(5));
        // The frame that waits goes first.
        assert_eq!(accounts.offer(PEER, 5, 4, 10, true), Offer::Waits(Some(3)));
        assert!(accounts.has_waiting(PEER));
        assert_eq!(accounts.next(PEER, |_| 991, false), None, "it is too much");
        assert_eq!(accounts.next(PEER, |_| 10, false), Some((5, 4)));
        assert!(!accounts.has_waiting(PEER));
        assert_eq!(accounts.offer(PEER, 5, 5, 10, true), Offer::Waits(None));
        assert_eq!(accounts.next(PEER, |_| 10, true), Some((5, 5)));
        assert_eq!(accounts.close(PEER), 0);
        assert_eq!(accounts.out(PEER), 0);
    }

    proptest! {
        /// In any sequence of steps, bounds hold, only replaced frames are lost, the last one goes,
        /// and nothing is kept in the end.
        #[test]
        fn frames_come_in_order_and_the_last_one_comes(
            steps in proptest::collection::vec((0..3u64, 1..40u64, any::<bool>()), 1..200),
        ) {
            let mut accounts = Accounts::new(100, 2);
            let mut out: Vec<(u64, u64, u64)> = Vec::new();
            let (mut went, mut replaced) = (vec![Vec::new(); 3], 0);
            let mut offered = vec![None; 3];
            for (number, (tag, cost, back)) in (0..).zip(steps.iter().copied()) {
                let mut go = |accounts: &mut Accounts<(u64, u64)>, tag: u64, frame: (u64, u64)| {
                    accounts.charge(PEER, frame.1);
                    out.push((tag, frame.0, frame.1));
                    went[tag as usize].push(frame.0);
                };
                offered[tag as usize] = Some(number);
                match accounts.offer(PEER, tag, (number, cost), cost, true) {
                    Offer::Goes(frame) => go(&mut accounts, tag, frame),
                    Offer::Waits(old) => replaced += u64::from(old.is_some()),
                }
                while let Some((tag, frame)) = accounts.next(PEER, |frame| frame.1, false) {
                    go(&mut accounts, tag, frame);
                }
                prop_assert!(accounts.out(PEER) <= 100);
                for tag in 0..3 {
                    prop_assert!(out.iter().filter(|(other, ..)| *other == tag).count() <= 2);
                }
                if back && !out.is_empty() {
                    let (tag, _, cost) = out.remove(number as usize % out.len());
                    accounts.end(PEER, cost, Some(tag));
                }
            }
            loop {
                while let Some((tag, frame)) = accounts.next(PEER, |frame| frame.1, false) {
                    accounts.charge(PEER, frame.1);
                    out.push((tag, frame.0, frame.1));
                    went[tag as usize].push(frame.0);
                }
                let Some((tag, _, cost)) = out.pop() else { break };
                accounts.end(PEER, cost, Some(tag));
            }
            for (went, offered) in went.iter().zip(&offered) {
                prop_assert!(went.is_sorted());
                prop_assert_eq!(went.last(), offered.as_ref());
            }
            let all: usize = went.iter().map(Vec::len).sum();
            prop_assert_eq!(all as u64 + replaced, steps.len() as u64);
            prop_assert_eq!(accounts.out(PEER), 0);
            prop_assert!(accounts.get(PEER).is_none_or(|account| account.frames.is_empty()));
        }
    }
}
