//! SIEVE (Zhang and others, *SIEVE is Simpler than LRU*, NSDI 2024): a hand goes from the oldest
//! area to the newest and takes the first that was not used since it came by; what it passes stays
//! where it is.

use std::collections::HashSet;

use super::Policy;

/// The policy.
#[derive(Debug, Default)]
pub struct Sieve {
    /// Areas, the oldest first.
    order: Vec<u64>,
    used: HashSet<u64>,
    hand: usize,
}

impl Policy for Sieve {
    fn hit(&mut self, address: u64) {
        self.used.insert(address);
    }

    fn insert(&mut self, address: u64) {
        self.order.push(address);
    }

    fn victim(&mut self) -> Option<u64> {
        // Once round at most, every area has been passed and is used no more.
        loop {
            if self.hand >= self.order.len() {
                self.hand = 0;
            }
            let address = *self.order.get(self.hand)?;
            if self.used.remove(&address) {
                self.hand += 1;
            } else {
                // The hand is now at the next newer one.
                self.order.remove(self.hand);
                return Some(address);
            }
        }
    }
}
