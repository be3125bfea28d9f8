#![allow(unsafe_code)]
//! Cache lines that are flushed, warmed and timed.
// Invariant: every load is of a byte that is borrowed.

use std::{hint::black_box, ops::Range};

use pinfold_sys::cpu::{
    block::{flush, read_line_ticks},
    clock,
};

/// Bytes of a line.
const LINE: usize = 64;

/// The blocks of the ground truth are pages.
const ALIGN: usize = 4096;

/// Some cache lines, of this machine or made up by a test.
pub(super) trait Lines {
    /// The number of lines: a power of two.
    fn count(&self) -> usize;

    /// Has them leave all caches.
    fn flush(&mut self, lines: Range<usize>);

    /// Brings them into the cache.
    fn warm(&mut self, lines: Range<usize>);

    /// Loads one, and returns how many ticks that took.
    fn ticks(&mut self, line: usize) -> u64;

    /// Does the same, and returns how many ticks all of that took.
    fn cost_ticks(&mut self, line: usize) -> u64;
}

/// The lines of a piece of memory.
pub(super) struct RealLines {
    memory: Vec<u8>,
    /// The offset of the first whole page.
    start: usize,
    count: usize,
}

impl RealLines {
    /// `None` where lines cannot be flushed or timed.
    pub(super) fn new(count: usize) -> Option<RealLines> {
        // Written, so that the pages are there.
        let memory = vec![1; count * LINE + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        let lines = RealLines { memory, start, count };
        (flush(lines.bytes(0..1)) && ticks(&lines.memory[0]).is_some()).then_some(lines)
    }

    fn bytes(&self, lines: Range<usize>) -> &[u8] {
        &self.memory[self.start + lines.start * LINE..self.start + lines.end * LINE]
    }
}

impl Lines for RealLines {
    fn count(&self) -> usize {
        self.count
    }

    fn flush(&mut self, lines: Range<usize>) {
        flush(self.bytes(lines));
    }

    fn warm(&mut self, lines: Range<usize>) {
        black_box(self.bytes(lines).iter().fold(0u8, |sum, byte| sum ^ byte));
    }

    fn ticks(&mut self, line: usize) -> u64 {
        // `new` has seen that there is a clock.
        ticks(&self.bytes(line..line + 1)[0]).unwrap_or(0)
    }

    fn cost_ticks(&mut self, line: usize) -> u64 {
        let start = clock::ticks();
        black_box(self.ticks(line));
        clock::ticks().wrapping_sub(start)
    }
}

/// Loads a byte, and returns how many ticks of the processor's clock that took.
#[inline]
fn ticks(byte: &u8) -> Option<u64> {
    // SAFETY: it is borrowed.
    unsafe { read_line_ticks(byte) }
}
