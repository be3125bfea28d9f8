//! Sets of numbered things, in each of which the one that was used least recently gives way.

/// The sets, with a `T` for each number that is in one.
#[derive(Clone, Debug)]
pub struct Sets<T> {
    /// In each the newest is the last.
    sets: Vec<Vec<(u64, T)>>,
    ways: usize,
}

impl<T> Sets<T> {
    /// Empty ones of so many ways, at least one; their number has to be a power of two, as it is in
    /// hardware, else it is rounded up.
    pub fn new(sets: usize, ways: usize) -> Sets<T> {
        let ways = ways.max(1);
        let empty = || Vec::with_capacity(ways);
        Sets { sets: (0..sets.max(1).next_power_of_two()).map(|_| empty()).collect(), ways }
    }

    fn set(&mut self, number: u64) -> &mut Vec<(u64, T)> {
        let at = number as usize & (self.sets.len() - 1);
        &mut self.sets[at]
    }

    /// The value of a number, which becomes the newest of its set; none if it is not there.
    pub fn touch(&mut self, number: u64) -> Option<&mut T> {
        let set = self.set(number);
        let at = set.iter().rposition(|entry| entry.0 == number)?;
        let newest = set.len() - 1;
        set[at..].rotate_left(1);
        Some(&mut set[newest].1)
    }

    /// Puts in a number that is not there, as the newest of its set. Returns the one that gives way
    /// to it.
    pub fn fill(&mut self, number: u64, value: T) -> Option<(u64, T)> {
        let ways = self.ways;
        let set = self.set(number);
        let gone = (set.len() == ways).then(|| set.remove(0));
        set.push((number, value));
        gone
    }

    /// The value of a number, if it is there. Its age stays.
    pub fn get(&self, number: u64) -> Option<&T> {
        let set = &self.sets[number as usize & (self.sets.len() - 1)];
        set.iter().find(|entry| entry.0 == number).map(|entry| &entry.1)
    }

    /// Takes a number out.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let set = self.set(number);
        let at = set.iter().position(|entry| entry.0 == number)?;
        Some(set.remove(at).1)
    }

    /// Empties all.
    pub fn clear(&mut self) {
        self.sets.iter_mut().for_each(Vec::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_a_set_gives_way() {
        // Two sets of two ways: even and odd numbers.
        let mut sets = Sets::new(2, 2);
        assert_eq!(sets.fill(0, 'a'), None);
        assert_eq!(sets.fill(2, 'b'), None);
        assert_eq!(sets.fill(1, 'c'), None);
        assert_eq!(sets.touch(0), Some(&mut 'a'));
        assert_eq!(sets.fill(4, 'd'), Some((2, 'b')));
        assert_eq!(sets.get(0), Some(&'a'));
        assert_eq!(sets.fill(6, 'e'), Some((0, 'a')), "a look does not make it newer");
        assert_eq!((sets.take(4), sets.take(4)), (Some('d'), None));
        sets.clear();
        assert_eq!((sets.get(1).copied(), sets.touch(6).copied()), (None, None));
    }
}
