//! Integer sort in the manner of NAS IS (NPB 2.3): bucket counts of all ranks are added up, buckets
//! are given to ranks so that each has about as many keys, and every rank sends every other its
//! keys of that one's buckets.

use super::{Node, Program, bytes_of, keys_of};
use crate::random::Random;

/// Buckets (NPB 2.3: 2^10).
pub const BUCKETS: usize = 1 << 10;
/// Room for keys that come in, in quarters of a rank's keys.
const ROOM_QUARTERS: usize = 8;

/// A rank's part.
#[derive(Clone, Debug)]
pub struct IntegerSort {
    ranks: usize,
    keys: usize,
    /// Keys that one bucket spans.
    span: u32,
    turns: usize,
    before: Vec<u32>,
    now: Vec<u32>,
    /// The keys grouped by bucket, and each bucket's first: they do not change between turns.
    grouped: Vec<u32>,
    starts: Vec<usize>,
    /// For each rank its first bucket, and the end.
    first: Vec<usize>,
    came: usize,
}

impl IntegerSort {
    /// All ranks' parts of `keys` keys in all, below `limit`, sorted `turns` times. Each key is the
    /// mean of four random numbers, as NAS has it. `limit` has to be a power of two from 1,024 on.
    pub fn all(ranks: usize, keys: usize, limit: u32, turns: usize, seed: u64) -> Vec<IntegerSort> {
        let part = |rank| {
            let mut random = Random::new(seed, rank as u64);
            let quarter = u64::from(limit / 4);
            // Four numbers of 16 bits out of one word.
            let key = |word: u64| {
                let sum = (0..4).map(|at| word >> (16 * at) & 0xFFFF).sum::<u64>();
                ((sum * quarter) >> 16) as u32
            };
            let before: Vec<u32> = (0..keys / ranks).map(|_| key(random.word())).collect();
            let (now, grouped, starts, first) = Default::default();
            let span = limit / BUCKETS as u32;
            let keys = keys / ranks;
            IntegerSort { ranks, keys, span, turns, before, now, grouped, starts, first, came: 0 }
        };
        (0..ranks).map(part).collect()
    }

    /// The keys before and after, of all ranks.
    ///
    /// # Errors
    /// They are not sorted, or others; in words.
    pub fn check(all: &[IntegerSort]) -> Result<(), String> {
        let sorted = |part: &IntegerSort| {
            let mut keys = part.now.clone();
            keys.sort_unstable();
            keys
        };
        let before: Vec<Vec<u32>> = all.iter().map(|part| part.before.clone()).collect();
        let after: Vec<Vec<u32>> = all.iter().map(sorted).collect();
        super::check_sorted(&before, &after)
    }

    fn inside(&self) -> usize {
        self.keys * 4
    }

    fn counts(&self, rank: usize) -> usize {
        self.inside() + self.keys * ROOM_QUARTERS + rank * BUCKETS * 4
    }

    fn bucket(&self, key: u32) -> usize {
        (key / self.span) as usize % BUCKETS
    }

    /// Groups the keys, once: between turns NAS changes two keys, and this none.
    fn group(&mut self) {
        if !self.grouped.is_empty() {
            return;
        }
        let mut starts = vec![0; BUCKETS + 1];
        self.before.iter().for_each(|key| starts[self.bucket(*key) + 1] += 1);
        for bucket in 0..BUCKETS {
            starts[bucket + 1] += starts[bucket];
        }
        let (mut grouped, mut next) = (vec![0; self.before.len()], starts.clone());
        for key in &self.before {
            let at = &mut next[self.bucket(*key)];
            grouped[*at] = *key;
            *at += 1;
        }
        (self.grouped, self.starts) = (grouped, starts);
    }

    /// Gives buckets to ranks, one after the other, until a rank has its part of the keys.
    fn share(&mut self, counts: &[u32]) {
        let (mut first, mut sum) = (vec![0], 0);
        let all: usize = self.keys * self.ranks;
        for bucket in 0..BUCKETS {
            sum +=
                (0..self.ranks).map(|rank| counts[rank * BUCKETS + bucket] as usize).sum::<usize>();
            if sum >= all * first.len() / self.ranks && first.len() < self.ranks {
                first.push(bucket + 1);
            }
        }
        first.resize(self.ranks, BUCKETS);
        first.push(BUCKETS);
        self.first = first;
    }

    fn send(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        let counts = keys_of(&node.read(self.counts(0), BUCKETS * 4 * self.ranks)?);
        self.share(&counts);
        let me = node.rank();
        let within = |rank: usize, to: usize| -> usize {
            let buckets = self.first[to]..self.first[to + 1];
            buckets.map(|bucket| counts[rank * BUCKETS + bucket] as usize).sum()
        };
        self.came = (0..self.ranks).map(|rank| within(rank, me)).sum();
        if self.came * 4 > self.keys * ROOM_QUARTERS {
            return Err(format!("{} keys are more than there is room for", self.came));
        }
        for step in 0..self.ranks {
            let to = (me + step) % self.ranks;
            let (from, end) = (self.starts[self.first[to]], self.starts[self.first[to + 1]]);
            let place = (0..me).map(|rank| within(rank, to)).sum::<usize>();
            let theirs = self.inside() + place * 4;
            if to == me {
                node.write(theirs, &bytes_of(&self.grouped[from..end]))?;
            } else {
                node.put(to, from * 4, theirs, (end - from) * 4)?;
            }
        }
        Ok(())
    }
}

impl Program for IntegerSort {
    fn memory_bytes(&self) -> usize {
        self.counts(self.ranks)
    }

    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        if phase == self.turns * 2 {
            self.now = keys_of(&node.read(self.inside(), self.came * 4)?);
            return Ok(false);
        }
        if phase % 2 == 1 {
            self.send(node)?;
            return Ok(true);
        }
        self.group();
        let (own, me) = (self.counts(node.rank()), node.rank());
        if phase == 0 {
            node.write(0, &bytes_of(&self.grouped))?;
        }
        let counts: Vec<u32> =
            self.starts.windows(2).map(|pair| (pair[1] - pair[0]) as u32).collect();
        node.write(own, &bytes_of(&counts))?;
        for other in (1..self.ranks).map(|step| (me + step) % self.ranks) {
            node.put(other, own, own, BUCKETS * 4)?;
        }
        Ok(true)
    }

    fn deliver(&mut self, _from: usize, _word: u64) {}

    fn result(&self) -> Vec<u8> {
        bytes_of(&self.now)
    }
}
