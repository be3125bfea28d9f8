//! Belady's optimum (*A study of replacement algorithms for a virtual-storage computer*, 1966):
//! the area that is used again last goes.

use std::collections::{BTreeSet, HashMap};

use super::Policy;

/// The policy. With areas of one size no other misses less.
#[derive(Debug, Default)]
pub struct Belady {
    /// The next use of each pinned area.
    next: HashMap<u64, u64>,
    /// The same, in the order of their next uses.
    order: BTreeSet<(u64, u64)>,
    upcoming: u64,
}

impl Belady {
    fn keep(&mut self, address: u64) {
        if let Some(old) = self.next.insert(address, self.upcoming) {
            self.order.remove(&(old, address));
        }
        self.order.insert((self.upcoming, address));
    }
}

impl Policy for Belady {
    fn upcoming(&mut self, _address: u64, next: u64) {
        self.upcoming = next;
    }

    fn hit(&mut self, address: u64) {
        self.keep(address);
    }

    fn insert(&mut self, address: u64) {
        self.keep(address);
    }

    fn victim(&mut self) -> Option<u64> {
        let (_, address) = self.order.pop_last()?;
        self.next.remove(&address);
        Some(address)
    }
}
