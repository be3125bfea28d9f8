//! The chunks of an extent that have memory behind them, and those to commit next.
//!
//! Plain state, no I/O. A chunk is [`CHUNK_BYTES`] long, a block [`BLOCK_BYTES`], the size of a
//! huge page. A bit that is set is a promise that using the chunk can fail no more.

use std::ops::Range;

/// Memory is committed and returned by so many bytes. Shorter pieces spend more time in system
/// calls than in clearing pages.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// The bytes of a huge page.
pub(crate) const BLOCK_BYTES: usize = 2 << 20;

/// Chunks to a block.
pub(crate) const BLOCK_CHUNKS: u32 = (BLOCK_BYTES / CHUNK_BYTES) as u32;

/// Chunks to be committed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The chunks.
    pub chunks: Range<u32>,
    /// True if they are whole blocks, for which huge pages are worth a try.
    pub huge: bool,
}

/// The chunks of one extent.
#[derive(Debug)]
pub(crate) struct Committed {
    chunks: u32,
    count: u32,
    bits: Box<[u64]>,
    /// A bit for each block that is one huge page: it comes and goes as a whole.
    huge: Box<[u64]>,
}

impl Committed {
    /// None of `chunks` chunks has memory.
    pub(crate) fn new(chunks: u32) -> Committed {
        let words = |bits: u32| vec![0; bits.div_ceil(64) as usize].into_boxed_slice();
        let blocks = chunks.div_ceil(BLOCK_CHUNKS);
        Committed { chunks, count: 0, bits: words(chunks), huge: words(blocks) }
    }

    /// Chunks with memory.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Blocks that are huge pages.
    pub(crate) fn huge_count(&self) -> u32 {
        self.huge.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether all of `range` has memory.
    #[inline]
    pub(crate) fn covers(&self, range: Range<u32>) -> bool {
        self.next(range.start, range.end, false) == range.end
    }

    /// The parts of `range` that have memory, or those that have none.
    pub(crate) fn runs(
        &self,
        range: Range<u32>,
        present: bool,
    ) -> impl Iterator<Item = Range<u32>> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let start = self.next(at, range.end, present);
            at = self.next(start, range.end, !present);
            (start < range.end).then_some(start..at)
        })
    }

    /// Notes that `range` has memory, as huge pages or not.
    pub(crate) fn set(&mut self, piece: &Piece) {
        for chunk in piece.chunks.clone() {
            let (word, bit) = (chunk as usize / 64, 1 << (chunk % 64));
            self.count += u32::from(self.bits[word] & bit == 0);
            self.bits[word] |= bit;
        }
        if piece.huge {
            for block in piece.chunks.start / BLOCK_CHUNKS..piece.chunks.end / BLOCK_CHUNKS {
                self.huge[block as usize / 64] |= 1 << (block % 64);
            }
        }
    }

    /// Notes that `range` has no memory any more.
    pub(crate) fn clear(&mut self, range: Range<u32>) {
        for chunk in range {
            let (word, bit) = (chunk as usize / 64, 1 << (chunk % 64));
            self.count -= u32::from(self.bits[word] & bit != 0);
            self.bits[word] &= !bit;
            let block = chunk / BLOCK_CHUNKS;
            self.huge[block as usize / 64] &= !(1 << (block % 64));
        }
    }

    /// The pieces to commit so that all of `range` has memory. A block of which nothing is there
    /// yet is committed whole if at least `whole_from` chunks of it are asked for.
    pub(crate) fn plan(&self, range: Range<u32>, whole_from: u32) -> Vec<Piece> {
        let mut plan: Vec<Piece> = Vec::new();
        let mut add = |chunks: Range<u32>, huge: bool| match plan.last_mut() {
            Some(last) if last.huge == huge && last.chunks.end == chunks.start => {
                last.chunks.end = chunks.end;
            }
            _ => plan.push(Piece { chunks, huge }),
        };
        let mut at = range.start;
        while at < range.end {
            let block = at / BLOCK_CHUNKS * BLOCK_CHUNKS..(at / BLOCK_CHUNKS + 1) * BLOCK_CHUNKS;
            let part = at..range.end.min(block.end);
            at = part.end;
            let whole = block.end <= self.chunks
                && part.end - part.start >= whole_from
                && self.next(block.start, block.end, true) == block.end;
            if whole {
                add(block, true);
            } else {
                self.runs(part, false).for_each(|run| add(run, false));
            }
        }
        plan
    }

    /// The chunks of `range`, which no buffer uses, that can be returned: those that have memory,
    /// and of huge pages only those that lie inside it whole.
    pub(crate) fn idle(&self, range: Range<u32>) -> Vec<Range<u32>> {
        let mut idle = Vec::new();
        for run in self.runs(range, true) {
            let mut run = run;
            if self.is_huge(run.start / BLOCK_CHUNKS) && !run.start.is_multiple_of(BLOCK_CHUNKS) {
                run.start = run.start.next_multiple_of(BLOCK_CHUNKS);
            }
            let last = run.end / BLOCK_CHUNKS;
            if !run.end.is_multiple_of(BLOCK_CHUNKS) && self.is_huge(last) {
                run.end = last * BLOCK_CHUNKS;
            }
            if run.start < run.end {
                idle.push(run);
            }
        }
        idle
    }

    fn is_huge(&self, block: u32) -> bool {
        self.huge[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// The first chunk of `from..end` that has memory, or has none; `end` if there is no such one.
    #[inline]
    fn next(&self, from: u32, end: u32, present: bool) -> u32 {
        let mut at = from;
        while at < end {
            let word = self.bits[at as usize / 64];
            let word = (if present { word } else { !word }) >> (at % 64);
            if word != 0 {
                return end.min(at + word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn piece(chunks: Range<u32>, huge: bool) -> Piece {
        Piece { chunks, huge }
    }

    #[test]
    fn chunks_come_and_go() {
        let mut all = Committed::new(200);
        assert!(!all.covers(0..1));
        assert!(all.covers(7..7));
        all.set(&piece(60..70, false));
        all.set(&piece(65..130, false));
        assert_eq!(all.count(), 70);
        assert!(all.covers(60..130));
        assert!(!all.covers(60..131));
        assert_eq!(all.runs(0..200, true).collect::<Vec<_>>(), [60..130]);
        all.clear(100..101);
        assert_eq!(all.runs(50..200, false).collect::<Vec<_>>(), [50..60, 100..101, 130..200]);
        assert_eq!(all.count(), 69);
    }

    #[test]
    fn blocks_are_committed_whole_where_that_pays() {
        let mut all = Committed::new(44);
        assert_eq!(all.plan(1..3, 4), [piece(1..3, false)]);
        assert_eq!(all.plan(1..3, 1), [piece(0..8, true)]);
        assert_eq!(all.plan(1..5, 4), [piece(0..8, true)]);
        assert_eq!(all.plan(1..5, BLOCK_CHUNKS), [piece(1..5, false)]);
        assert_eq!(
            all.plan(6..26, 4),
            [piece(6..8, false), piece(8..24, true), piece(24..26, false)]
        );
        // The last block is no whole one.
        assert_eq!(all.plan(30..44, 1), [piece(24..40, true), piece(40..44, false)]);
        all.set(&piece(12..13, false));
        assert_eq!(
            all.plan(8..24, 1),
            [piece(8..12, false), piece(13..16, false), piece(16..24, true)]
        );
        all.set(&piece(8..24, false));
        assert_eq!(all.plan(8..24, 1), []);
    }

    #[test]
    fn huge_pages_go_whole() {
        let mut all = Committed::new(64);
        all.set(&piece(8..32, true));
        all.set(&piece(32..36, false));
        assert_eq!(all.huge_count(), 3);
        assert_eq!(all.idle(0..64), [8..36]);
        assert_eq!(all.idle(9..34), [16..34]);
        assert_eq!(all.idle(9..30), [16..24]);
        assert_eq!(all.idle(9..15), []);
        all.clear(16..24);
        assert_eq!(all.huge_count(), 2);
        assert_eq!(all.idle(0..64), [8..16, 24..36]);
    }

    proptest! {
        #[test]
        fn plans_cover_what_is_asked_for(
            set in proptest::collection::vec((0u32..300, 1u32..40), 0..20),
            from in 0u32..300,
            len in 1u32..100,
            whole_from in 1u32..=8,
        ) {
            let mut all = Committed::new(300);
            let mut plain = [false; 300];
            for (from, len) in set {
                let chunks = from..300.min(from + len);
                all.set(&piece(chunks.clone(), false));
                plain[from as usize..chunks.end as usize].fill(true);
            }
            let range = from..300.min(from + len);
            let ask = from as usize..range.end as usize;
            prop_assert_eq!(all.count() as usize, plain.iter().filter(|set| **set).count());
            prop_assert_eq!(all.covers(range.clone()), plain[ask.clone()].iter().all(|set| *set));
            for part in all.plan(range, whole_from) {
                prop_assert!(part.chunks.end <= 300);
                for chunk in part.chunks.clone() {
                    // Nothing twice.
                    prop_assert!(!std::mem::replace(&mut plain[chunk as usize], true));
                    prop_assert!(part.huge && whole_from < 8 || ask.contains(&(chunk as usize)));
                }
                all.set(&part);
            }
            prop_assert!(plain[ask].iter().all(|set| *set));
            prop_assert_eq!(all.count() as usize, plain.iter().filter(|set| **set).count());
        }
    }
}
