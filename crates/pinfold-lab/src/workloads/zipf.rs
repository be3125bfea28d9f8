//! Buffers by Zipf's law: a few are used most of the time.

use crate::random::Random;

/// The exponent: the buffer of rank `n` is used in proportion to `n` to the power of minus this.
pub const EXPONENT: f64 = 0.9;

/// Numbers of buffers by Zipf's law, the popular ones anywhere among them.
#[derive(Clone, Debug)]
pub struct Zipf {
    /// By rank, the weights up to and with it.
    sums: Vec<f64>,
    /// The buffer of each rank.
    names: Vec<u64>,
}

impl Zipf {
    /// The law for buffers `0..buffers`, which are not none. 16 bytes a buffer.
    pub fn new(random: &mut Random, buffers: u64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=buffers)
            .map(|rank| {
                sum += (rank as f64).powf(-EXPONENT);
                sum
            })
            .collect();
        let mut names: Vec<u64> = (0..buffers).collect();
        random.shuffle(&mut names);
        Zipf { sums, names }
    }

    /// A buffer.
    pub fn pick(&self, random: &mut Random) -> u64 {
        let at = random.part() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= at);
        self.names.get(rank).or(self.names.last()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_ranks_are_used_as_the_law_says() {
        let mut random = Random::new(1, 0);
        let law = Zipf::new(&mut random, 64);
        let mut counts = [0u32; 64];
        for _ in 0..64_000 {
            counts[law.pick(&mut random) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count > 0));
        let of = |rank: usize| f64::from(counts[law.names[rank] as usize]);
        let ratio = of(0) / of(1);
        assert!((ratio / 2f64.powf(EXPONENT) - 1.0).abs() < 0.1, "{ratio}");
    }
}
