//! A cache with sets, the least recently used line of which goes, and dirty lines.

use super::sets::Sets;

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The line is there.
    Hit,
    /// The line is fetched, into an empty place or that of a clean line.
    Miss,
    /// The line is fetched, and the line with this address is written back for it.
    WriteBack(u64),
}

/// A line that went for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Its address.
    pub address: u64,
    /// True if memory has an older version.
    pub dirty: bool,
}

/// A cache.
#[derive(Clone, Debug)]
pub struct Cache {
    /// For each line whether it is dirty.
    lines: Sets<bool>,
    line_shift: u32,
}

impl Cache {
    /// An empty one of so many bytes; lines and sets have to be powers of two, as they are in
    /// hardware, else both are rounded up.
    pub fn new(bytes: usize, ways: usize, line_bytes: usize) -> Cache {
        let (ways, line_bytes) = (ways.max(1), line_bytes.max(1).next_power_of_two());
        let lines = Sets::new(bytes / ways / line_bytes, ways);
        Cache { lines, line_shift: line_bytes.trailing_zeros() }
    }

    /// Reads or writes at an address.
    pub fn access(&mut self, address: u64, writes: bool) -> Access {
        if self.touch(address, writes) {
            return Access::Hit;
        }
        match self.fill(address, writes) {
            Some(gone) if gone.dirty => Access::WriteBack(gone.address),
            _ => Access::Miss,
        }
    }

    /// Reads or writes at an address if its line is there, and returns whether it is.
    pub fn touch(&mut self, address: u64, writes: bool) -> bool {
        let Some(dirty) = self.lines.touch(address >> self.line_shift) else { return false };
        *dirty |= writes;
        true
    }

    /// Puts a line in that is not there, and returns the line that goes for it.
    pub fn fill(&mut self, address: u64, dirty: bool) -> Option<Gone> {
        let gone = self.lines.fill(address >> self.line_shift, dirty);
        gone.map(|(line, dirty)| Gone { address: line << self.line_shift, dirty })
    }

    /// Returns whether the line of an address is dirty, if it is there. Its age stays.
    pub fn holds(&self, address: u64) -> Option<bool> {
        self.lines.get(address >> self.line_shift).copied()
    }

    /// Drops a line without writing it back. Returns whether it was dirty, if it was there.
    pub fn drop_line(&mut self, address: u64) -> Option<bool> {
        self.lines.take(address >> self.line_shift)
    }

    /// Empties it.
    pub fn flush(&mut self) {
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_line_of_a_set_goes_and_is_written_back_if_dirty() {
        // Two ways, two sets, lines of 64 bytes: addresses 0, 128, 256 are of one set.
        let mut cache = Cache::new(256, 2, 64);
        assert_eq!(cache.access(0, true), Access::Miss);
        assert_eq!(cache.access(128, false), Access::Miss);
        assert_eq!(cache.access(64, false), Access::Miss);
        assert_eq!(cache.access(63, false), Access::Hit);
        assert_eq!(cache.access(256, false), Access::Miss, "128 is older than 0, and clean");
        assert_eq!(cache.access(128, false), Access::WriteBack(0));
        assert_eq!(cache.holds(300), Some(false));
        assert_eq!(cache.drop_line(300), Some(false));
        assert_eq!(cache.holds(300), None);
        assert_eq!(cache.drop_line(0), None);
        cache.flush();
        assert_eq!(cache.access(128, false), Access::Miss);
    }

    proptest! {
        #[test]
        fn it_is_as_a_naive_one(
            accesses in prop::collection::vec((0u64..40, any::<bool>()), 1..200),
        ) {
            let mut cache = Cache::new(16 * 64, 4, 64);
            // Line, time of the last use, dirty.
            let mut naive: Vec<(u64, usize, bool)> = Vec::new();
            for (now, (line, writes)) in accesses.into_iter().enumerate() {
                let expected = match naive.iter_mut().find(|known| known.0 == line) {
                    Some(known) => {
                        *known = (line, now, known.2 || writes);
                        Access::Hit
                    }
                    None => {
                        let of_set = naive.iter().filter(|known| known.0 % 4 == line % 4);
                        let oldest = of_set.clone().min_by_key(|known| known.1).copied();
                        let gone = oldest.filter(|_| of_set.count() == 4);
                        naive.retain(|known| gone.is_none_or(|gone| gone.0 != known.0));
                        naive.push((line, now, writes));
                        match gone {
                            Some((line, _, true)) => Access::WriteBack(line * 64),
                            _ => Access::Miss,
                        }
                    }
                };
                prop_assert_eq!(cache.access(line * 64 + 5, writes), expected);
            }
        }
    }
}
