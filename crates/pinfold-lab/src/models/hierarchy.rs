//! Two levels of cache: the places of lines, and the moves that an access takes. No time.

use std::collections::HashSet;

use super::cache::Cache;

/// Bytes of a line, of all processors here.
pub const LINE: u64 = 64;

/// The lines that the two levels share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None: a line is in one level, and one that leaves the first goes to the second. Stores stay
    /// in the first.
    Exclusive,
    /// All: the first has copies, and each store goes to the second, which sees loads, too.
    WriteThrough,
}

/// The place where a line was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The first level.
    First,
    /// The second level.
    Second,
    /// In memory alone.
    Memory,
}

/// The moves that an access took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moves {
    /// The place where the line was.
    pub from: Place,
    /// Lines that went between the levels.
    pub between: u32,
    /// The line that memory has to take.
    pub written_back: Option<u64>,
}

/// Both levels.
#[derive(Clone, Debug)]
pub struct Hierarchy {
    first: Cache,
    second: Cache,
    sharing: Sharing,
    /// Lines of the first level that do not go to the second when they leave.
    passing: HashSet<u64>,
}

impl Hierarchy {
    /// Empty ones, each of so many bytes and ways.
    pub fn new(first: (usize, usize), second: (usize, usize), sharing: Sharing) -> Hierarchy {
        let cache = |(bytes, ways)| Cache::new(bytes, ways, LINE as usize);
        let (first, second) = (cache(first), cache(second));
        Hierarchy { first, second, sharing, passing: HashSet::new() }
    }

    /// The place of a line, and true if memory has an older version.
    pub fn find(&self, address: u64) -> (Place, bool) {
        match (self.first.holds(address), self.second.holds(address)) {
            (Some(first), second) => (Place::First, first || second == Some(true)),
            (None, Some(dirty)) => (Place::Second, dirty),
            (None, None) => (Place::Memory, false),
        }
    }

    /// Reads or writes a line.
    pub fn access(&mut self, address: u64, writes: bool) -> Moves {
        match self.sharing {
            Sharing::Exclusive => self.access_exclusive(address, writes),
            Sharing::WriteThrough => self.access_through(address, writes),
        }
    }

    /// Reads a line that is to leave again without going to the second level, unless it is from
    /// there: a prefetch with a hint.
    pub fn read_passing(&mut self, address: u64) -> Moves {
        let moves = self.access(address, false);
        if moves.from == Place::Memory && self.sharing == Sharing::Exclusive {
            self.passing.insert(address / LINE);
        }
        moves
    }

    /// Brings a line that is in memory into the second level. Returns the line that memory has to
    /// take.
    pub fn bring_second(&mut self, address: u64) -> Option<u64> {
        self.fill_second(address, false)
    }

    /// Drops a line from both levels. Returns whether memory has an older version, if it was there.
    pub fn drop_line(&mut self, address: u64) -> Option<bool> {
        self.passing.remove(&(address / LINE));
        let (first, second) = (self.first.drop_line(address), self.second.drop_line(address));
        first.or(second).map(|_| first == Some(true) || second == Some(true))
    }

    /// Moves a line from the first level to the second.
    pub fn demote(&mut self, address: u64) {
        if let Some(dirty) = self.first.drop_line(address)
            && self.sharing == Sharing::Exclusive
        {
            self.passing.remove(&(address / LINE));
            self.fill_second(address, dirty);
        }
    }

    fn access_exclusive(&mut self, address: u64, writes: bool) -> Moves {
        if self.first.touch(address, writes) {
            return Moves { from: Place::First, between: 0, written_back: None };
        }
        let (from, dirty) = match self.second.drop_line(address) {
            Some(dirty) => (Place::Second, dirty),
            None => (Place::Memory, false),
        };
        let mut between = u32::from(from == Place::Second);
        let mut written_back = None;
        if let Some(gone) = self.first.fill(address, dirty || writes) {
            let passes = self.passing.remove(&(gone.address / LINE));
            if gone.dirty || !passes {
                between += 1;
                written_back = self.fill_second(gone.address, gone.dirty);
            }
        }
        Moves { from, between, written_back }
    }

    fn access_through(&mut self, address: u64, writes: bool) -> Moves {
        let is_first = self.first.touch(address, false);
        let is_second = self.second.touch(address, writes);
        let from = match (is_first, is_second) {
            (true, _) => Place::First,
            (false, true) => Place::Second,
            (false, false) => Place::Memory,
        };
        let written_back = if is_second { None } else { self.fill_second(address, writes) };
        if !is_first && !writes {
            // The line that goes is a copy.
            let _ = self.first.fill(address, false);
        }
        let between = u32::from(writes || from != Place::First);
        Moves { from, between, written_back }
    }

    fn fill_second(&mut self, address: u64, dirty: bool) -> Option<u64> {
        let gone = self.second.fill(address, dirty)?;
        if self.sharing == Sharing::WriteThrough {
            self.first.drop_line(gone.address);
        }
        gone.dirty.then_some(gone.address)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two lines in the first level, four in the second, one set each.
    fn small(sharing: Sharing) -> Hierarchy {
        Hierarchy::new((128, 2), (256, 4), sharing)
    }

    fn moves(from: Place, between: u32, written_back: Option<u64>) -> Moves {
        Moves { from, between, written_back }
    }

    #[test]
    fn a_line_is_in_one_level_of_an_exclusive_pair() {
        let mut both = small(Sharing::Exclusive);
        assert_eq!(both.access(0, true), moves(Place::Memory, 0, None));
        assert_eq!(both.access(64, false), moves(Place::Memory, 0, None));
        assert_eq!(both.access(128, false), moves(Place::Memory, 1, None), "0 goes on");
        assert_eq!(both.find(0), (Place::Second, true));
        assert_eq!(both.access(0, false), moves(Place::Second, 2, None), "64 goes for it");
        assert_eq!(both.find(0), (Place::First, true));
        assert_eq!(both.drop_line(0), Some(true));
        assert_eq!(both.drop_line(0), None);
        both.demote(128);
        assert_eq!(both.find(128), (Place::Second, false));
    }

    #[test]
    fn dirty_lines_leave_to_memory_and_passing_ones_nowhere() {
        let mut both = small(Sharing::Exclusive);
        for line in 0..6 {
            assert_eq!(both.access(line * 64, true).written_back, None);
        }
        assert_eq!(both.access(6 * 64, false), moves(Place::Memory, 1, Some(0)));
        assert_eq!(both.read_passing(7 * 64), moves(Place::Memory, 1, Some(64)));
        both.access(8 * 64, false);
        assert_eq!(both.access(9 * 64, false), moves(Place::Memory, 0, None), "7 is dropped");
        assert_eq!(both.find(7 * 64), (Place::Memory, false));
    }

    #[test]
    fn stores_go_through_to_the_second_level() {
        let mut both = small(Sharing::WriteThrough);
        assert_eq!(both.access(0, false), moves(Place::Memory, 1, None));
        assert_eq!(both.access(0, false), moves(Place::First, 0, None));
        assert_eq!(both.access(0, true), moves(Place::First, 1, None));
        assert_eq!(both.access(64, true), moves(Place::Memory, 1, None));
        assert_eq!(both.find(0), (Place::First, true));
        assert_eq!(both.find(64), (Place::Second, true), "a store brings nothing to the first");
        for line in 2..4 {
            assert_eq!(both.access(line * 64, false).written_back, None);
        }
        assert_eq!(both.access(256, false), moves(Place::Memory, 1, Some(0)));
        assert_eq!(both.find(0), (Place::Memory, false));
    }

    proptest! {
        /// Against lists of lines in the order of their use.
        #[test]
        fn an_exclusive_pair_is_as_two_lists(
            accesses in prop::collection::vec((0u64..12, any::<bool>()), 1..200),
        ) {
            let mut both = small(Sharing::Exclusive);
            // Line and dirty, the oldest first.
            let mut first: Vec<(u64, bool)> = Vec::new();
            let mut second: Vec<(u64, bool)> = Vec::new();
            for (line, writes) in accesses {
                let take = |list: &mut Vec<(u64, bool)>| {
                    list.iter().position(|it| it.0 == line).map(|at| list.remove(at).1)
                };
                let (from, dirty) = match (take(&mut first), take(&mut second)) {
                    (Some(dirty), _) => (Place::First, dirty),
                    (None, Some(dirty)) => (Place::Second, dirty),
                    (None, None) => (Place::Memory, false),
                };
                first.push((line, dirty || writes));
                let mut back = None;
                if first.len() > 2 {
                    second.push(first.remove(0));
                    if second.len() > 4 {
                        back = Some(second.remove(0)).filter(|it| it.1).map(|it| it.0 * 64);
                    }
                }
                let found = both.access(line * 64, writes);
                prop_assert_eq!((found.from, found.written_back), (from, back));
            }
        }

        /// The second level is as if it were there alone, and a line of the first is in it.
        #[test]
        fn the_first_has_copies_alone_if_stores_go_through(
            accesses in prop::collection::vec((0u64..12, any::<bool>()), 1..200),
        ) {
            let mut both = small(Sharing::WriteThrough);
            let mut second: Vec<(u64, bool)> = Vec::new();
            for (line, writes) in accesses {
                let at = second.iter().position(|it| it.0 == line);
                let dirty = at.map(|at| second.remove(at).1);
                second.push((line, dirty == Some(true) || writes));
                let gone = (second.len() > 4).then(|| second.remove(0));
                let back = gone.filter(|it| it.1).map(|it| it.0 * 64);
                let found = both.access(line * 64, writes);
                prop_assert_eq!(found.from == Place::Memory, dirty.is_none());
                prop_assert_eq!(found.written_back, back);
                for line in 0..12 {
                    let known = second.iter().find(|it| it.0 == line);
                    let is_first = both.first.holds(line * 64).is_some();
                    prop_assert!(!is_first || known.is_some());
                    let (place, dirty) = both.find(line * 64);
                    prop_assert_eq!(place == Place::Memory, known.is_none());
                    prop_assert_eq!(dirty, known.is_some_and(|it| it.1));
                }
            }
        }
    }
}
