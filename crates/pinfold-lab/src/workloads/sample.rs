//! Sample sort: splitters from a sample, each key to the rank that sorts its range, by small
//! messages or grouped and put at once.

use super::{Node, Program, bytes_of, keys_of};
use crate::random::Random;

/// Keys of each rank's sample.
const SAMPLE: usize = 64;
/// Room for keys that come in, of the keys of a rank.
const ROOM: usize = 2;

/// A rank's part of the sort.
#[derive(Clone, Debug)]
pub struct Sample {
    keys: usize,
    ranks: usize,
    large: bool,
    sorts: bool,
    before: Vec<u32>,
    now: Vec<u32>,
    /// The sample that the first rank collects, then the splitters.
    splitters: Vec<u32>,
    /// Words that came in this phase.
    words: Vec<(usize, u64)>,
}

impl Sample {
    /// All ranks' parts, so many random keys each. `large`: grouped keys are put at once. `sorts`:
    /// each rank sorts what it has in the end, which no other sees.
    pub fn all(ranks: usize, keys: usize, large: bool, sorts: bool, seed: u64) -> Vec<Sample> {
        let part = |rank| {
            let mut random = Random::new(seed, rank as u64);
            let before: Vec<u32> = (0..keys).map(|_| random.word() as u32).collect();
            let (now, splitters, words) = Default::default();
            Sample { keys, ranks, large, sorts, before, now, splitters, words }
        };
        (0..ranks).map(part).collect()
    }

    /// The keys before and after, of all ranks.
    ///
    /// # Errors
    /// They are not sorted, or others; in words.
    pub fn check(all: &[Sample]) -> Result<(), String> {
        let of = |keys: fn(&Sample) -> &Vec<u32>| {
            all.iter().map(|it| keys(it).clone()).collect::<Vec<_>>()
        };
        super::check_sorted(&of(|it| &it.before), &of(|it| &it.now))
    }

    fn owner(&self, key: u32) -> usize {
        self.splitters.partition_point(|splitter| *splitter <= key)
    }

    /// The offset of keys that come in; those that go out are before them.
    fn inside(&self) -> usize {
        self.keys * 4
    }

    /// Each rank sends its sample to the first.
    fn send_sample(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        for at in 0..SAMPLE {
            let key = self.before[at * self.keys / SAMPLE];
            if node.rank() == 0 {
                self.splitters.push(key);
            } else {
                node.store(0, u64::from(key))?;
            }
        }
        Ok(())
    }

    /// The first rank sends the splitters to the others.
    fn send_splitters(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        if node.rank() > 0 {
            return Ok(());
        }
        self.splitters.extend(self.words.drain(..).map(|word| word.1 as u32));
        self.splitters.sort_unstable();
        let every = self.splitters.len() / self.ranks;
        let splitters = (1..self.ranks).map(|at| self.splitters[at * every]).collect::<Vec<_>>();
        for other in 1..self.ranks {
            for splitter in &splitters {
                node.store(other, u64::from(*splitter))?;
            }
        }
        self.splitters = splitters;
        Ok(())
    }

    /// Sends each key by itself.
    fn send_keys(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        for at in 0..self.keys {
            let key = self.before[at];
            match self.owner(key) {
                own if own == node.rank() => self.now.push(key),
                other => node.store(other, u64::from(key))?,
            }
        }
        Ok(())
    }

    /// Groups the keys by rank. Returns the first of each group, and the end.
    fn group(&self) -> (Vec<u32>, Vec<usize>) {
        let mut starts = vec![0; self.ranks + 1];
        self.before.iter().for_each(|key| starts[self.owner(*key) + 1] += 1);
        for rank in 0..self.ranks {
            starts[rank + 1] += starts[rank];
        }
        let (mut out, mut next) = (vec![0; self.keys], starts.clone());
        for key in &self.before {
            let at = &mut next[self.owner(*key)];
            out[*at] = *key;
            *at += 1;
        }
        (out, starts)
    }

    /// Tells each rank how many keys it gets from here.
    fn send_counts(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        let (out, starts) = self.group();
        node.write(0, &bytes_of(&out))?;
        for other in 0..self.ranks {
            let count = (starts[other + 1] - starts[other]) as u64;
            if other == node.rank() {
                self.words.push((other, count));
            } else {
                node.store(other, count)?;
            }
        }
        Ok(())
    }

    /// Tells each rank where its keys go.
    fn send_places(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        let mut counts = vec![0; self.ranks];
        self.words.drain(..).for_each(|(from, count)| counts[from] = count);
        let mut place = 0;
        for (other, count) in counts.into_iter().enumerate() {
            if other == node.rank() {
                self.words.push((other, place));
            } else {
                node.store(other, place)?;
            }
            place += count;
        }
        if place > (self.keys * ROOM) as u64 {
            return Err(format!("{place} keys are more than there is room for"));
        }
        self.now = vec![0; place as usize];
        Ok(())
    }

    fn put_keys(&mut self, node: &mut Node<'_>) -> Result<(), String> {
        let (out, starts) = self.group();
        for (other, place) in std::mem::take(&mut self.words) {
            let (from, to) = (starts[other], starts[other + 1]);
            let theirs = self.inside() + place as usize * 4;
            if other == node.rank() {
                node.write(theirs, &bytes_of(&out[from..to]))?;
            } else {
                node.put(other, from * 4, theirs, (to - from) * 4)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        if self.sorts {
            self.now.sort_unstable();
        }
    }
}

impl Program for Sample {
    fn memory_bytes(&self) -> usize {
        if self.large { self.inside() + self.keys * ROOM * 4 } else { 0 }
    }

    fn phase(&mut self, phase: usize, node: &mut Node<'_>) -> Result<bool, String> {
        if phase == 2 && node.rank() > 0 {
            self.splitters = self.words.drain(..).map(|word| word.1 as u32).collect();
        }
        match (phase, self.large) {
            (0, _) => self.send_sample(node)?,
            (1, _) => self.send_splitters(node)?,
            (2, false) => self.send_keys(node)?,
            (2, true) => self.send_counts(node)?,
            (3, false) => {
                self.now.extend(self.words.drain(..).map(|word| word.1 as u32));
                self.end();
                return Ok(false);
            }
            (3, true) => self.send_places(node)?,
            (4, _) => self.put_keys(node)?,
            _ => {
                self.now = keys_of(&node.read(self.inside(), self.now.len() * 4)?);
                self.end();
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, from: usize, word: u64) {
        self.words.push((from, word));
    }

    fn result(&self) -> Vec<u8> {
        bytes_of(&self.now)
    }
}
