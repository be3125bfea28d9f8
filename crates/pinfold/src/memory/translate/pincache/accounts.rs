//! The accounts of a pin-down cache: whose areas they are, and how much of them each may have. No
//! I/O.
//!
//! Accounting: an account's `now` is the sum over its slots that are not free, so the books' `now`
//! is the sum over all accounts. What is `claimed` is on its way out, and part of `now` until it is
//! unpinned.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::{Candidates, Evict, Pinned};
use crate::sync::{AtomicU64, Ordering};

/// The account that the areas of some spaces are charged to: a [`Pinner`](super::Pinner) says
/// which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u64);

/// An account as others see it, without a lock.
#[derive(Debug)]
pub struct AccountGauges {
    pinned_bytes: AtomicU64,
    evictions: AtomicU64,
}

impl AccountGauges {
    /// Bytes that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    /// Areas that had to give way to others.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }
}

/// One account.
struct Account<E> {
    bytes_max: u64,
    now: Pinned,
    claimed: Pinned,
    evict: E,
    gauges: Arc<AccountGauges>,
    is_closed: bool,
}

impl<E> Account<E> {
    fn left(&self) -> Pinned {
        self.now.without(self.claimed)
    }

    fn publish(&self) {
        self.gauges.pinned_bytes.store(self.now.bytes, Ordering::Relaxed);
    }
}

/// All accounts. One that was not opened has no limit of its own.
pub(super) struct Accounts<E> {
    policy: E,
    open: BTreeMap<AccountId, Account<E>>,
}

impl<E: Evict> Accounts<E> {
    pub(super) fn new(policy: E) -> Accounts<E> {
        Accounts { policy, open: BTreeMap::new() }
    }

    /// Gives an account a limit of its own.
    pub(super) fn open(&mut self, id: AccountId, bytes_max: u64) -> Arc<AccountGauges> {
        let account = self.of(id);
        (account.bytes_max, account.is_closed) = (bytes_max, false);
        Arc::clone(&account.gauges)
    }

    /// Forgets an account as soon as nothing is charged to it.
    pub(super) fn close(&mut self, id: AccountId) {
        self.of(id).is_closed = true;
        self.forget_if_over(id);
    }

    fn forget_if_over(&mut self, id: AccountId) {
        let is_over = |account: &Account<E>| account.is_closed && account.now == Pinned::default();
        if self.open.get(&id).is_some_and(is_over) {
            self.open.remove(&id);
        }
    }

    fn of(&mut self, id: AccountId) -> &mut Account<E> {
        let policy = &self.policy;
        self.open.entry(id).or_insert_with(|| Account {
            bytes_max: u64::MAX,
            now: Pinned::default(),
            claimed: Pinned::default(),
            evict: policy.clone(),
            gauges: Arc::new(AccountGauges {
                pinned_bytes: AtomicU64::new(0),
                evictions: AtomicU64::new(0),
            }),
            is_closed: false,
        })
    }

    /// The most bytes that an account may have pinned.
    pub(super) fn bytes_max(&self, id: AccountId) -> u64 {
        self.open.get(&id).map_or(u64::MAX, |account| account.bytes_max)
    }

    /// Returns whether an account may have so much more, once all that is claimed is unpinned.
    pub(super) fn has_room(&mut self, id: AccountId, needs: Pinned) -> bool {
        let account = self.of(id);
        account.left().and(needs).bytes <= account.bytes_max
    }

    pub(super) fn charge(&mut self, id: AccountId, needs: Pinned) {
        let account = self.of(id);
        account.now = account.now.and(needs);
        account.publish();
    }

    pub(super) fn discharge(&mut self, id: AccountId, needs: Pinned) {
        let account = self.of(id);
        account.now = account.now.without(needs);
        account.publish();
        self.forget_if_over(id);
    }

    /// An area of an account may be evicted from now on.
    pub(super) fn insert(&mut self, id: AccountId, area: u32, used: u64) {
        self.of(id).evict.insert(area, used);
    }

    /// An area of an account may not be evicted any more.
    pub(super) fn forget(&mut self, id: AccountId, area: u32) {
        self.of(id).evict.forget(area);
    }

    /// An area is on its way out.
    pub(super) fn claimed(&mut self, id: AccountId, area: Pinned) {
        let account = self.of(id);
        account.claimed = account.claimed.and(area);
    }

    /// An area is on its way out no more: it is evicted, or stays.
    pub(super) fn settled(&mut self, id: AccountId, area: Pinned, evicted: bool) {
        let account = self.of(id);
        account.claimed = account.claimed.without(area);
        if evicted {
            account.gauges.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims the area of an account that is to go next.
    pub(super) fn choose_of(
        &mut self,
        id: AccountId,
        areas: &mut dyn Candidates,
    ) -> Option<(AccountId, u32)> {
        self.of(id).evict.choose(areas).map(|area| (id, area))
    }

    /// Claims the area that is to go next of all: of the account that has the most and something
    /// idle, so that none which has less than `asks` gives way to it.
    pub(super) fn choose(
        &mut self,
        asks: AccountId,
        areas: &mut dyn Candidates,
    ) -> Option<(AccountId, u32)> {
        if self.open.len() <= 1 {
            return self.choose_of(asks, areas);
        }
        let mut ids: Vec<_> = self.open.keys().copied().collect();
        ids.sort_by_key(|id| Reverse((self.open[id].left().bytes, *id == asks)));
        ids.into_iter().find_map(|id| self.choose_of(id, areas))
    }
}
