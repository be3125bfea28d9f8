//! A part of an operation's memory.

use pinfold_sys::process::Segment;
use smallvec::SmallVec;

use super::Scatter;

impl Scatter {
    /// Bytes `at..at + len`, as far as they are there.
    pub(crate) fn slice(&self, at: u64, len: u64) -> Scatter {
        let parts: SmallVec<[Segment; 1]> = self.parts_of(at, len).collect();
        let len = parts.iter().map(|part| part.len as u64).sum();
        Scatter { parts, len }
    }

    /// The memory from byte `at` on that is in one part. `None`: there is none.
    pub(crate) fn part_at(&self, at: u64) -> Option<Segment> {
        self.parts_of(at, u64::MAX).next()
    }

    /// The parts of the first `len` bytes.
    pub(crate) fn first(&self, len: u64) -> impl Iterator<Item = Segment> {
        self.parts_of(0, len)
    }
}
