//! Radix sort, least significant digit first: keys are grouped by digit, and each rank puts its
//! groups where they belong, or sends each key with its place in a small message.

use super::{Node, Program, bytes_of, keys_of};
use crate::random::Random;

/// Bits of a digit.
const BITS: u32 = 8;
const DIGITS: usize = 1 << BITS;
/// Digits of a key.
const PASSES: usize = 32 / BITS as usize;
/// Bytes of a rank's counts.
const COUNTS: usize = DIGITS * 4;

/// A rank's part of the sort.
#[derive(Clone, Debug)]
pub struct Radix {
    keys: usize,
    ranks: usize,
    /// Each key goes in a message of its own.
    small: bool,
    /// The keys as they were.
    before: Vec<u32>,
    now: Vec<u32>,
}

impl Radix {
    /// All ranks' parts, so many random keys each.
    pub fn all(ranks: usize, keys: usize, seed: u64) -> Vec<Radix> {
        let part = |rank| {
            let mut random = Random::new(seed, rank as u64);
            let before: Vec<u32> = (0..keys).map(|_| random.word() as u32).collect();
            Radix { keys, ranks, small: false, now: before.clone(), before }
        };
        (0..ranks).map(part).collect()
    }

    /// The same by small messages, one for each key that goes to another rank.
    pub fn small(ranks: usize, keys: usize, seed: u64) -> Vec<Radix> {
        let small = |part| Radix { small: true, ..part };
        Radix::all(ranks, keys, seed).into_iter().map(small).collect()
    }

    /// The keys before and after, of all ranks.
    ///
    /// # Errors
    /// They are not sorted, or others; in words.
    pub fn check(all: &[Radix]) -> Result<(), String> {
        let of = |keys: fn(&Radix) -> &Vec<u32>| {
            all.iter().map(|it| keys(it).clone()).collect::<Vec<_>>()
        };
        super::check_sorted(&of(|it| &it.before), &of(|it| &it.now))
    }

    /// Offsets: the keys that come in, those that go out, and all ranks' counts.
    fn out(&self) -> usize {
        self.keys * 4
    }

    fn counts(&self, rank: usize) -> usize {
        self.keys * 8 + rank * COUNTS
    }

    /// Sends each key with its place, digit by digit; `from` are the groups' beginnings in `out`,
    /// and `to` their places among all ranks' keys.
    fn send_keys(
        &mut self,
        node: &mut Node<'_>,
        out: &[u32],
        from: &[usize],
        to: &[usize],
    ) -> Result<(), String> {
        let mut now = vec![0; self.keys];
        for digit in 0..DIGITS {
            for (at, key) in out[from[digit]..from[digit + 1]].iter().enumerate() {
                let (rank, at) = ((to[digit] + at) / self.keys, (to[digit] + at) % self.keys);
                if rank == node.rank() {
                    now[at] = *key;
                } else {
                    node.store(rank, (at as u64) << 32 | u64::from(*key))?;
                }
            }
        }
        // The others' keys come when the phase has ended.
        self.now = now;
        Ok(())
    }
}

fn digit(key: u32, pass: usize) -> usize {
    (key >> (pass as u32 * BITS)) as usize % DIGITS
}

impl Program for Radix {
    fn memory_bytes(&self) -> usize {
        self.counts(self.ranks)
    }

    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        let (pass, me) = (phase / 2, node.rank());
        if phase.is_multiple_of(2) {
            if pass > 0 && !self.small {
                self.now = keys_of(&node.read(0, self.keys * 4)?);
            }
            if pass == PASSES {
                return Ok(false);
            }
            let mut counts = vec![0; DIGITS];
            self.now.iter().for_each(|key| counts[digit(*key, pass)] += 1);
            let own = self.counts(me);
            node.write(own, &bytes_of(&counts))?;
            for other in (1..self.ranks).map(|step| (me + step) % self.ranks) {
                node.put(other, own, own, COUNTS)?;
            }
            return Ok(true);
        }
        let counts = keys_of(&node.read(self.counts(0), COUNTS * self.ranks)?);
        let of = |rank: usize, digit: usize| counts[rank * DIGITS + digit] as usize;
        // The places of this rank's first key of each digit: in its own groups, and of all.
        let (mut local, mut place) = (vec![0; DIGITS + 1], vec![0; DIGITS]);
        let mut sum = 0;
        for digit in 0..DIGITS {
            local[digit + 1] = local[digit] + of(me, digit);
            place[digit] = sum + (0..me).map(|rank| of(rank, digit)).sum::<usize>();
            sum += (0..self.ranks).map(|rank| of(rank, digit)).sum::<usize>();
        }
        let (mut out, mut next) = (vec![0; self.keys], local.clone());
        for key in &self.now {
            let at = &mut next[digit(*key, pass)];
            out[*at] = *key;
            *at += 1;
        }
        if self.small {
            return self.send_keys(node, &out, &local, &place).map(|()| true);
        }
        node.write(self.out(), &bytes_of(&out))?;
        for digit in 0..DIGITS {
            let (mut from, mut to) = (local[digit], place[digit]);
            while from < local[digit + 1] {
                let (rank, at) = (to / self.keys, to % self.keys);
                let count = (local[digit + 1] - from).min(self.keys - at);
                if rank == me {
                    node.write(at * 4, &bytes_of(&out[from..from + count]))?;
                } else {
                    node.put(rank, self.out() + from * 4, at * 4, count * 4)?;
                }
                (from, to) = (from + count, to + count);
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, _from: usize, word: u64) {
        if let Some(key) = self.now.get_mut((word >> 32) as usize) {
            *key = word as u32;
        }
    }

    fn result(&self) -> Vec<u8> {
        bytes_of(&self.now)
    }
}
