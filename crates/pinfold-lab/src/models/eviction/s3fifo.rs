//! S3-FIFO (Yang and others, *FIFO Queues are All You Need for Cache Eviction*, SOSP 2023): a small
//! queue for new areas, a main one for those that were used again, and the addresses of areas that
//! left the small one lately.

use std::collections::{HashMap, VecDeque};

use super::Policy;

/// Uses are counted up to this.
const USES_MAX: u8 = 3;

/// The policy of a cache of so many areas.
#[derive(Debug)]
pub struct S3Fifo {
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    uses: HashMap<u64, u8>,
    /// Ghosts in their order, each with its number; those that came back are in it, too.
    ghosts: VecDeque<(u64, u64)>,
    /// The number of each ghost.
    is_ghost: HashMap<u64, u64>,
    next: u64,
    /// A tenth of the areas, one at least.
    small_max: usize,
    /// As many ghosts as the main queue may have areas.
    ghosts_max: usize,
}

impl S3Fifo {
    /// The policy of a cache of so many areas.
    pub fn new(areas: usize) -> S3Fifo {
        let small_max = (areas / 10).max(1);
        S3Fifo {
            small: VecDeque::new(),
            main: VecDeque::new(),
            uses: HashMap::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashMap::new(),
            next: 0,
            small_max,
            ghosts_max: areas.saturating_sub(small_max).max(1),
        }
    }

    /// Takes an area from the small queue, or moves all that were used to the main one.
    fn take_small(&mut self) -> Option<u64> {
        while let Some(address) = self.small.pop_front() {
            if self.uses.get(&address).copied().unwrap_or(0) > 1 {
                self.uses.insert(address, 0);
                self.main.push_back(address);
                continue;
            }
            self.uses.remove(&address);
            self.remember(address);
            return Some(address);
        }
        None
    }

    /// Keeps the address of an area that goes, and forgets the oldest of too many.
    fn remember(&mut self, address: u64) {
        if !self.is_ghost.contains_key(&address) {
            self.is_ghost.insert(address, self.next);
            self.ghosts.push_back((address, self.next));
            self.next += 1;
        }
        while self.is_ghost.len() > self.ghosts_max
            && let Some((oldest, number)) = self.ghosts.pop_front()
        {
            if self.is_ghost.get(&oldest) == Some(&number) {
                self.is_ghost.remove(&oldest);
            }
        }
        if self.ghosts.len() > 2 * self.ghosts_max + 64 {
            let known = &self.is_ghost;
            self.ghosts.retain(|(address, number)| known.get(address) == Some(number));
        }
    }

    /// Takes an area from the main queue; each use has it go round once more.
    fn take_main(&mut self) -> Option<u64> {
        while let Some(address) = self.main.pop_front() {
            match self.uses.get_mut(&address) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.main.push_back(address);
                }
                _ => {
                    self.uses.remove(&address);
                    return Some(address);
                }
            }
        }
        None
    }
}

impl Policy for S3Fifo {
    fn hit(&mut self, address: u64) {
        let uses = self.uses.entry(address).or_insert(0);
        *uses = (*uses + 1).min(USES_MAX);
    }

    fn insert(&mut self, address: u64) {
        self.uses.insert(address, 0);
        if self.is_ghost.remove(&address).is_some() {
            self.main.push_back(address);
        } else {
            self.small.push_back(address);
        }
    }

    fn victim(&mut self) -> Option<u64> {
        if self.small.len() >= self.small_max {
            self.take_small().or_else(|| self.take_main())
        } else {
            self.take_main().or_else(|| self.take_small())
        }
    }
}
