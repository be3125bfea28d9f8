//! Two threads: bytes streamed before a flag is raised are there for a thread that sees the flag.

use std::{
    sync::atomic::{AtomicU64, Ordering::*},
    thread,
};

use super::*;
use crate::cpu::clock;

/// Bytes copied in a round: few, so that the flag comes close behind the last of them.
const LEN: usize = 1024;

/// A line of the memory that is copied to.
#[derive(Default)]
#[repr(align(64))]
struct Words([AtomicU64; 8]);

/// A word with a line, and the one that is fetched along with it, to itself.
#[derive(Default)]
#[repr(align(128))]
struct Alone(AtomicU64);

/// One thread copies, another looks whether it sees the flag before the bytes.
#[derive(Default)]
struct Litmus {
    memory: [Words; LEN / 64],
    /// The round whose bytes are there, says the writer.
    flag: Alone,
    /// The round that the reader has looked at.
    seen: Alone,
}

impl Litmus {
    /// Returns the number of rounds in which the reader saw a word of an earlier one.
    fn run(algorithm: Algorithm, fenced: bool, rounds: u64) -> u64 {
        let litmus = Litmus::default();
        thread::scope(|scope| {
            scope.spawn(|| litmus.write(algorithm, fenced, rounds));
            (1..=rounds).filter(|&round| litmus.is_stale(round)).count() as u64
        })
    }

    fn write(&self, algorithm: Algorithm, fenced: bool, rounds: u64) {
        LEAVE_OUT.set(!fenced);
        let to = self.memory.as_ptr().cast::<u8>().cast_mut();
        for round in 1..=rounds {
            let source = [round; LEN / 8];
            until(|| self.seen.0.load(Acquire) == round - 1);
            // Has the flag's line ready in this core's cache, so that raising it takes no time.
            self.flag.0.store(round - 1, Relaxed);
            // SAFETY: both have that many bytes; atomics may be written while others look at them.
            unsafe { copy(algorithm, source.as_ptr().cast(), to, LEN) };
            // Release orders ordinary stores, but no streaming ones.
            self.flag.0.store(round, Release);
        }
    }

    fn is_stale(&self, round: u64) -> bool {
        until(|| self.flag.0.load(Acquire) == round);
        // The last ones had the least time to arrive.
        let words = self.memory.iter().flat_map(|line| &line.0).rev();
        let old = words.filter(|word| word.load(Relaxed) != round).count();
        self.seen.0.store(round, Release);
        old > 0
    }
}

/// Spins, and lets the other thread run where they have to share a core.
fn until(done: impl Fn() -> bool) {
    for spins in 0u64.. {
        if done() {
            return;
        }
        if spins % 256 < 255 {
            clock::relax();
        } else {
            thread::yield_now();
        }
    }
}

fn streaming() -> impl Iterator<Item = Algorithm> {
    supported().filter(|algorithm| algorithm.stores() == Stores::Streaming)
}

#[test]
fn a_flag_comes_after_what_was_streamed() {
    for algorithm in streaming() {
        assert_eq!(Litmus::run(algorithm, true, 1_000), 0, "{algorithm}");
    }
    if thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        crate::skip::skip("one core sees its own stores in their order, fenced or not");
        return;
    }
    // If the flag came after the bytes without the fence, too, all this would prove nothing.
    for algorithm in streaming() {
        if (0..200).all(|_| Litmus::run(algorithm, false, 100) == 0) {
            eprintln!(
                "SKIPPED: {algorithm} needs no fence on this processor, as far as one can see"
            );
        }
    }
}
