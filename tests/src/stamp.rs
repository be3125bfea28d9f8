//! Contents by which a receiver can tell that it has exactly the bytes that were sent.

/// A well-mixed function of its argument (Steele, Lea, Flood, *SplitMix*, OOPSLA 2014).
pub const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A stream of numbers that is the same each time it begins with the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream that begins with `seed`.
    pub const fn new(seed: u64) -> Random {
        Random(mix(seed))
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }

    /// The next number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A random one of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

fn word(seed: u64, index: usize) -> [u8; 8] {
    mix(seed ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93)).to_le_bytes()
}

/// Fills `bytes` with the contents of `seed`.
pub fn fill(bytes: &mut [u8], seed: u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        chunk.copy_from_slice(&word(seed, i)[..chunk.len()]);
    }
}

/// The contents of `seed`, `len` bytes of them.
pub fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(&mut bytes, seed);
    bytes
}

/// The first byte that does not belong to `seed`.
pub fn wrong_at(bytes: &[u8], seed: u64) -> Option<usize> {
    let at = bytes
        .chunks(8)
        .enumerate()
        .position(|(i, chunk)| *chunk != word(seed, i)[..chunk.len()])?;
    let right = word(seed, at);
    bytes[8 * at..].iter().zip(right).position(|(byte, right)| *byte != right).map(|i| 8 * at + i)
}

/// # Panics
/// If `bytes` are not the contents of `seed`.
#[track_caller]
pub fn check(bytes: &[u8], seed: u64) {
    if let Some(at) = wrong_at(bytes, seed) {
        let there = &bytes[at..bytes.len().min(at + 16)];
        panic!("byte {at} of {} is not what was sent: {there:x?}", bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        for len in [0, 1, 7, 8, 9, 100] {
            let good = bytes(len, 5);
            assert_eq!(wrong_at(&good, 5), None);
            for at in 0..len {
                let mut bad = good.clone();
                bad[at] ^= 1;
                assert_eq!(wrong_at(&bad, 5), Some(at));
            }
        }
        assert_ne!(bytes(64, 1), bytes(64, 2));
    }
}
