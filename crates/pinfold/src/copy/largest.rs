//! The algorithm that made the largest of several copies.

use super::Algorithm;

/// The algorithm of the largest copy, by powers of two; of copies of one size, of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Largest {
    id: u8,
    /// The binary logarithm of its bytes.
    log: u8,
}

impl Largest {
    /// The value for no copy, or for short ones, which are the C library's.
    pub(crate) const NONE: Largest = Largest { id: Algorithm::LIBC.id(), log: 0 };

    /// The value for one copy, of at least a byte.
    #[inline]
    pub(crate) const fn of(algorithm: Algorithm, bytes: usize) -> Largest {
        Largest { id: algorithm.id(), log: (bytes | 1).ilog2() as u8 }
    }

    /// The larger of this and a later one.
    #[inline]
    pub(crate) const fn and(self, later: Largest) -> Largest {
        if later.log > self.log { later } else { self }
    }

    /// The algorithm that made it.
    pub(crate) const fn algorithm(self) -> Algorithm {
        match Algorithm::from_id(self.id) {
            Some(algorithm) => algorithm,
            None => Algorithm::LIBC,
        }
    }

    pub(super) const fn to_word(self) -> u16 {
        u16::from_le_bytes([self.id, self.log])
    }

    pub(super) const fn from_word(word: u16) -> Largest {
        let [id, log] = word.to_le_bytes();
        Largest { id, log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_largest_counts() {
        let mut all = Algorithm::all().skip(1);
        let (a, b) = (all.next().unwrap(), all.next().unwrap());
        let copies = [(a, 2048), (b, 4096), (a, 5000), (a, 100)];
        let largest = copies.into_iter().fold(Largest::NONE, |sum, (algorithm, bytes)| {
            let one = Largest::of(algorithm, bytes);
            assert_eq!((Largest::from_word(one.to_word()), one.algorithm()), (one, algorithm));
            sum.and(one)
        });
        assert_eq!(largest, Largest::of(b, 4096));
        assert_eq!(Largest::NONE.algorithm(), Algorithm::LIBC);
        assert_eq!(Largest::NONE.to_word(), 0);
        assert_eq!(Largest { id: u8::MAX, log: 0 }.algorithm(), Algorithm::LIBC);
    }
}
