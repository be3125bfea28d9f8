//! Random numbers from a seed, the same on every machine and in every version: SplitMix64 (Steele,
//! Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, 2014).

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

impl Random {
    /// The numbers of a seed; each `stream` has others.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(STEP));
        Random(random.word())
    }

    /// Any 64-bit number.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `end`, which is not 0. The bias is below `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(end)) >> 64) as u64
    }

    /// A number from 0 up to, but not including, 1.
    pub fn part(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts a slice into a random order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The reference implementation's first numbers for the seed 1234567.
        let mut random = Random(1_234_567);
        assert_eq!(random.word(), 6_457_827_717_110_365_317);
        assert_eq!(random.word(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_are_within_bounds_and_streams_differ() {
        let (mut one, mut two) = (Random::new(1, 0), Random::new(1, 1));
        let mut seen = [0; 7];
        for _ in 0..7000 {
            seen[one.below(7) as usize] += 1;
            assert!((0.0..1.0).contains(&one.part()));
        }
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
        assert_ne!(Random::new(1, 0).word(), two.word());
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut all: Vec<u32> = (0..100).collect();
        Random::new(5, 0).shuffle(&mut all);
        assert_ne!(all, (0..100).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
