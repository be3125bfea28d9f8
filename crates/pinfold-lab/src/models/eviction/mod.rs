//! Policies of eviction that the library does not have, for its own pin-down cache: they see the
//! addresses of transfers, and Belady's the future.
//!
//! The library tells a policy which slots it may take, not which addresses they have, nor of uses;
//! a policy there has to cost nothing at a hit. Here a [`Driver`] tells the [`Told`] policy before
//! each transfer.

mod belady;
mod fifo;
mod s3fifo;
mod sieve;

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use pinfold::translate::pincache::{Candidates, Evict};

pub use self::{belady::Belady, fifo::Fifo, s3fifo::S3Fifo, sieve::Sieve};

/// A policy that is told of every transfer. It knows areas by their addresses.
pub trait Policy {
    /// The next transfer is of this address; `next` is the position of the one after it, or
    /// `u64::MAX` if there is none.
    fn upcoming(&mut self, address: u64, next: u64) {
        let _ = (address, next);
    }

    /// A transfer of an area that is pinned.
    fn hit(&mut self, address: u64);

    /// An area was pinned.
    fn insert(&mut self, address: u64);

    /// The area that is to go, of those that are pinned; it is forgotten. None if there is none.
    fn victim(&mut self) -> Option<u64>;
}

/// The state that a policy and its driver share.
struct Shared<P> {
    policy: P,
    /// The address of the transfer that goes on.
    address: u64,
    /// The address that each slot was pinned for.
    slots: Vec<Option<u64>>,
    /// The slot of each such address.
    places: HashMap<u64, u32>,
}

/// A [`Policy`] as the library's cache takes it. For a cache of one account, one transfer at a time
/// and no invalidations.
pub struct Told<P>(Rc<RefCell<Shared<P>>>);

impl<P> Clone for Told<P> {
    /// The same policy: all clones share it.
    fn clone(&self) -> Self {
        Told(Rc::clone(&self.0))
    }
}

impl<P: Policy> Evict for Told<P> {
    fn insert(&mut self, slot: u32, _used: u64) {
        let mut shared = self.0.borrow_mut();
        let (at, address) = (slot as usize, shared.address);
        if shared.slots.len() <= at {
            shared.slots.resize(at + 1, None);
        }
        shared.slots[at] = Some(address);
        shared.places.insert(address, slot);
        shared.policy.insert(address);
    }

    fn forget(&mut self, slot: u32) {
        let mut shared = self.0.borrow_mut();
        let address = shared.slots.get_mut(slot as usize).and_then(Option::take);
        if let Some(address) = address.filter(|it| shared.places.get(it) == Some(&slot)) {
            shared.places.remove(&address);
        }
    }

    fn choose(&mut self, areas: &mut dyn Candidates) -> Option<u32> {
        let mut shared = self.0.borrow_mut();
        let address = shared.policy.victim()?;
        let slot = shared.places.remove(&address)?;
        shared.slots[slot as usize] = None;
        areas.claim(slot).then_some(slot)
    }
}

/// The driver's end of a policy.
pub struct Driver<P>(Rc<RefCell<Shared<P>>>);

impl<P: Policy> Driver<P> {
    /// A policy for a cache, and its driver.
    pub fn new(policy: P) -> (Driver<P>, Told<P>) {
        let shared = Shared { policy, address: 0, slots: Vec::new(), places: HashMap::new() };
        let shared = Rc::new(RefCell::new(shared));
        (Driver(Rc::clone(&shared)), Told(shared))
    }

    /// Tells of a transfer before the cache has it.
    pub fn upcoming(&self, address: u64, next: u64) {
        let mut shared = self.0.borrow_mut();
        shared.address = address;
        shared.policy.upcoming(address, next);
    }

    /// Tells that the transfer was a hit.
    pub fn hit(&self, address: u64) {
        self.0.borrow_mut().policy.hit(address);
    }
}

#[cfg(test)]
mod tests;
