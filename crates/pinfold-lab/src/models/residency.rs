//! Blocks that a kernel copies, made up from counts by size, and the part of each that is cached.
//! An answer is judged by the library's own rule ([`Probe::is_right`]).

use pinfold::copy::{CacheState, Probe};

use super::hierarchy::{Hierarchy, LINE, Place};
use crate::random::Random;

/// Bytes of the memory that blocks lie in.
const MEMORY: u64 = 1 << 30;
/// Buffers of a size that are used again, the last ones.
const LATE: usize = 8;

/// How often the first line has told the state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Blocks.
    pub blocks: u64,
    /// Those it was right about.
    pub right: u64,
    /// Those of which more than 60 % was cached.
    pub cached: u64,
}

/// The blocks of a program.
#[derive(Clone, Debug)]
pub struct Traffic {
    /// Sizes, multiples of a line, and how many blocks are of each.
    pub sizes: Vec<(u64, u64)>,
    /// The share of blocks that lie where one of the last few of their size did: sources and
    /// destinations.
    pub again: [f64; 2],
}

impl Traffic {
    /// Copies `count` blocks through the caches, and looks at the first line of each block before:
    /// for each size, sources and destinations.
    pub fn told(&self, caches: &mut Hierarchy, count: u64, random: &mut Random) -> Vec<[Told; 2]> {
        let all: u64 = self.sizes.iter().map(|size| size.1).sum();
        let mut found = vec![[Told::default(); 2]; self.sizes.len()];
        let mut late: Vec<[Vec<u64>; 2]> = vec![Default::default(); self.sizes.len()];
        for _ in 0..count {
            let mut at = random.below(all.max(1));
            let row = self.sizes.iter().position(|size| {
                let is_here = at < size.1;
                at = at.saturating_sub(size.1);
                is_here
            });
            let Some(row) = row else { continue };
            let bytes = self.sizes[row].0;
            let blocks = [0, 1].map(|side| {
                let late = &mut late[row][side];
                let is_again = random.part() < self.again[side] && !late.is_empty();
                if is_again {
                    return late[random.below(late.len() as u64) as usize];
                }
                let place = random.below(MEMORY / bytes) * bytes + side as u64 * MEMORY;
                if late.len() == LATE {
                    late.remove(0);
                }
                late.push(place);
                place
            });
            copy(caches, blocks, bytes, &mut found[row]);
        }
        found
    }
}

/// Copies a block through the caches, and looks at the first line of source and destination before.
/// Both begin with a line.
pub fn copy(caches: &mut Hierarchy, blocks: [u64; 2], bytes: u64, found: &mut [Told; 2]) {
    let lines = bytes.div_ceil(LINE);
    let is_cached = |caches: &Hierarchy, line| caches.find(line).0 != Place::Memory;
    for (side, block) in blocks.into_iter().enumerate() {
        let each = (0..lines).map(|line| block + line * LINE);
        let cached = each.filter(|&line| is_cached(caches, line)).count();
        let said = match is_cached(caches, block) {
            true => CacheState::Cached,
            false => CacheState::Uncached,
        };
        let told = &mut found[side];
        told.blocks += 1;
        told.right += u64::from(Probe::is_right(said, cached, lines as usize));
        told.cached += u64::from(cached * 10 > lines as usize * 6);
    }
    for line in 0..lines {
        caches.access(blocks[0] + line * LINE, false);
        caches.access(blocks[1] + line * LINE, true);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::models::hierarchy::Sharing;

    fn caches() -> Hierarchy {
        Hierarchy::new((4 << 10, 2), (64 << 10, 16), Sharing::Exclusive)
    }

    #[test]
    fn blocks_that_come_again_at_once_are_cached() {
        let traffic = Traffic { sizes: vec![(1024, 1)], again: [1.0, 1.0] };
        let told = traffic.told(&mut caches(), 100, &mut Random::new(1, 0));
        // The first of each is from memory, and all others are that one.
        assert_eq!(told, [[Told { blocks: 100, right: 100, cached: 99 }; 2]]);
        let traffic = Traffic { again: [0.0, 0.0], ..traffic };
        let told = traffic.told(&mut caches(), 100, &mut Random::new(1, 0));
        assert!(told[0].iter().all(|it| it.cached <= 1 && it.right >= 99), "{told:?}");
    }

    proptest! {
        #[test]
        fn every_block_is_counted_once(
            weights in prop::collection::vec(0u64..5, 3), again in 0.0..1.0f64, seed: u64,
        ) {
            let sizes = vec![(64, weights[0]), (128, weights[1]), (2048, weights[2])];
            let is_empty = weights.iter().sum::<u64>() == 0;
            let traffic = Traffic { sizes, again: [again, 0.5] };
            let told = traffic.told(&mut caches(), 50, &mut Random::new(seed, 0));
            for side in [0, 1] {
                let blocks: u64 = told.iter().map(|it| it[side].blocks).sum();
                prop_assert_eq!(blocks, if is_empty { 0 } else { 50 });
                // A block of a line is its first line.
                prop_assert_eq!(told[0][side].right, told[0][side].blocks);
                for (row, weight) in told.iter().zip(&weights) {
                    prop_assert!(*weight > 0 || row[side].blocks == 0);
                    prop_assert!(row[side].right.max(row[side].cached) <= row[side].blocks);
                }
            }
        }
    }
}
