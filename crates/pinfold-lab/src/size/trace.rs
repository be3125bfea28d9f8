//! The trace: the buffers that the messages of a program use, one message after the other.
//!
//! A program has a buffer for each peer and length, as long as that. A message that uses a buffer
//! again uses one of these, by Zipf's law; any other has a buffer that is never used again: the
//! trace "Zipf and scan" of `pm-policy`. Buffers begin with a page, and a page lies between two.

use super::inputs::Inputs;
use crate::{models::pm::PAGE_BYTES, random::Random, workloads::zipf::Zipf};

/// Messages for each buffer, and in all at least. The number is the lab's own, as are the next two.
const USES: u64 = 8;
const MESSAGES_MIN: u64 = 4000;
/// References to pages at most, where that leaves [`MESSAGES_FEW`] messages.
const REFERENCES_MAX: u64 = 100_000;
const MESSAGES_FEW: u64 = 32;

/// A message's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    /// The part of the mix.
    pub part: usize,
    /// The address of its first byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Used {
    /// The addresses of its pages.
    pub fn pages(self) -> impl Iterator<Item = u64> {
        (self.address..self.address + self.bytes).step_by(PAGE_BYTES as usize)
    }
}

/// The messages of a program. The first half of them fills caches, and does not count.
#[derive(Clone, Debug)]
pub struct Trace {
    /// All messages.
    pub all: Vec<Used>,
    /// Buffers that are used again.
    pub buffers: u64,
}

/// Bytes of address space that a buffer takes.
fn stride(bytes: u64) -> u64 {
    (bytes.div_ceil(PAGE_BYTES) + 1) * PAGE_BYTES
}

impl Trace {
    /// The trace of a program, always the same for the same inputs.
    pub fn of(inputs: &Inputs) -> Trace {
        let mut random = Random::new(inputs.seed, 7);
        let peers = u64::from(inputs.peers);
        let law = Zipf::new(&mut random, peers);
        let shares: u64 = inputs.mix.iter().map(|part| u64::from(part.share)).sum();
        let mut free = 0;
        let firsts: Vec<u64> = inputs
            .mix
            .iter()
            .map(|part| {
                let first = free;
                free += peers * stride(part.bytes);
                first
            })
            .collect();
        let buffers = peers * inputs.mix.len() as u64;
        let weighed = |part: &super::Part| part.bytes.div_ceil(PAGE_BYTES) * u64::from(part.share);
        let pages: u64 = inputs.mix.iter().map(weighed).sum();
        let most = (REFERENCES_MAX * shares / pages.max(1)).max(MESSAGES_FEW);
        let count = (USES * buffers).max(MESSAGES_MIN).min(most);
        let mut one = |_| {
            // Three numbers for each message, whatever it is: inputs that differ in one have
            // traces that differ in no more.
            let (mut share, again) = (random.below(shares), random.below(100));
            let peer = law.pick(&mut random);
            let is_in = |part: &super::Part| {
                let is_in = share < u64::from(part.share);
                share = share.saturating_sub(u64::from(part.share));
                is_in
            };
            let part = inputs.mix.iter().position(is_in).unwrap_or(0);
            let bytes = inputs.mix[part].bytes;
            let address = if again < u64::from(inputs.reuse_percent) {
                firsts[part] + peer * stride(bytes)
            } else {
                free += stride(bytes);
                free - stride(bytes)
            };
            Used { part, address, bytes }
        };
        Trace { all: (0..count).map(&mut one).collect(), buffers }
    }

    /// The messages that count follow so many.
    pub fn filling(&self) -> usize {
        self.all.len() / 2
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::size::testing::inputs;

    #[test]
    fn shares_and_reuse_are_as_asked_for() {
        let mut inputs = inputs("4K:3,64K:1");
        for reuse in [0, 25, 100] {
            inputs.reuse_percent = reuse;
            let trace = Trace::of(&inputs);
            let count = trace.all.len() as f64;
            let long = trace.all.iter().filter(|used| used.part == 1).count() as f64 / count;
            assert!((long - 0.25).abs() < 0.03, "{long}");
            let standing = 8 * (stride(4096) + stride(65_536));
            let again = trace.all.iter().filter(|used| used.address < standing).count() as f64;
            assert!((again / count * 100.0 - f64::from(reuse)).abs() < 3.0, "{again}");
            let places: HashSet<u64> = trace.all.iter().map(|used| used.address).collect();
            let once = trace.all.len() - again as usize;
            assert!(places.len() <= once + 16 && places.len() >= once, "{}", places.len());
        }
    }

    #[test]
    fn buffers_do_not_touch() {
        let trace = Trace::of(&inputs("1:1,4097:1,8192:1"));
        let mut places: Vec<(u64, u64)> =
            trace.all.iter().map(|used| (used.address, used.bytes)).collect();
        places.sort_unstable();
        places.dedup();
        for two in places.windows(2) {
            assert!(two[0].0 + two[0].1 + PAGE_BYTES <= two[1].0, "{two:?}");
        }
    }

    #[test]
    fn long_messages_are_fewer() {
        let trace = Trace::of(&inputs("1M:1"));
        assert_eq!(trace.all.len() as u64, REFERENCES_MAX / 256);
        assert_eq!(Trace::of(&inputs("64M:1")).all.len() as u64, MESSAGES_FEW);
    }
}
