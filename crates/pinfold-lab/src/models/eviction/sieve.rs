//! SIEVE (Zhang and others, *SIEVE is Simpler than LRU*, NSDI 2024): a hand goes from the oldest
//! area to the newest and takes the first that was not used since it came by; what it passes stays
//! where it is.

use std::collections::HashSet;

use super::Policy;

/// The policy.
#[derive(Debug, Default)]
pub struct Sieve {
    /// Areas, the oldest first, and the places of those that are gone.
    order: Vec<Option<u64>>,
    /// Areas in it.
    count: usize,
    used: HashSet<u64>,
    hand: usize,
}

impl Sieve {
    /// Takes empty places out, once most are: the order and the hand's place in it stay.
    fn close_gaps(&mut self) {
        if self.order.len() > 2 * self.count + 64 {
            self.hand = self.order[..self.hand].iter().flatten().count();
            self.order.retain(Option::is_some);
        }
    }
}

impl Policy for Sieve {
    fn hit(&mut self, address: u64) {
        self.used.insert(address);
    }

    fn insert(&mut self, address: u64) {
        self.order.push(Some(address));
        self.count += 1;
    }

    fn victim(&mut self) -> Option<u64> {
        // Once round at most, every area has been passed and is used no more.
        loop {
            if self.hand >= self.order.len() {
                self.hand = 0;
            }
            if self.count == 0 {
                return None;
            }
            let place = &mut self.order[self.hand];
            self.hand += 1;
            if place.is_some_and(|address| !self.used.remove(&address)) {
                // The hand is now at the next newer one.
                let gone = place.take();
                self.count -= 1;
                self.close_gaps();
                return gone;
            }
        }
    }
}
