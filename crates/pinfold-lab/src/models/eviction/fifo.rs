//! First in, first out: the area that has been pinned longest goes.

use std::collections::VecDeque;

use super::Policy;

/// The policy.
#[derive(Debug, Default)]
pub struct Fifo(VecDeque<u64>);

impl Policy for Fifo {
    fn hit(&mut self, _address: u64) {}

    fn insert(&mut self, address: u64) {
        self.0.push_back(address);
    }

    fn victim(&mut self) -> Option<u64> {
        self.0.pop_front()
    }
}
