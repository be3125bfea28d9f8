//! Blocks of memory that lie one after the other, and code that reads and writes all of them.
#![allow(unsafe_code)]
// Invariant: no byte is read or written that the caller has not named.

use std::hint::black_box;

use crate::cpu::block::flush;

/// The buffer that blocks are read into, piece by piece: it stays in the nearest cache, bytes.
const SCRATCH: usize = 4096;

/// From one word that is written to the next: odd, so that all words are different.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Some blocks of one length, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// The beginning of the first one.
    pub first: *mut u8,
    /// The length of each, bytes.
    pub len: usize,
    /// The distance from one block to the next, bytes.
    pub stride: usize,
    /// The number of blocks: a power of two.
    pub count: usize,
    /// The distance from a block to the one that is next in turn, blocks: odd, so that all have a
    /// turn.
    pub step: usize,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// Blocks of so many bytes do not stay in a core's own cache; those of so many may nearly fill the
/// last one.
const LONG: usize = (64 << 10) + 1;
const VERY_LONG: usize = 64 << 20;

/// The smallest step from block to block: longer than any that a prefetcher looks for.
const STEP_MIN: usize = 13;

/// Bytes of a page.
const PAGE: usize = 4096;

impl Blocks {
    /// A single block, to be read.
    pub fn one(first: *const u8, len: usize) -> Blocks {
        Blocks { first: first.cast_mut(), len, stride: len, count: 1, step: STEP_MIN }
    }

    /// `count` blocks of `len` bytes in `memory`, the first `offset` bytes behind the beginning of
    /// a page, on other pages in each round.
    ///
    /// # Panics
    /// They do not fit: a page, the offset, and `count` times the length and 192 bytes are enough.
    pub fn within(
        memory: &mut [u8],
        offset: usize,
        len: usize,
        count: usize,
        round: usize,
    ) -> Blocks {
        // Lines between two blocks, so that nothing is fetched ahead for the next one, and an odd
        // number of them in all: they must not all want the same places in the cache.
        let stride = ((len.div_ceil(LINE) + 2) | 1) * LINE;
        let offset = memory.as_ptr().align_offset(PAGE) + offset;
        let (span, rest) = (stride * (count - 1) + len, memory.len() - offset);
        let offset = offset + Blocks::other_pages(round, span, rest);
        assert!(offset + span <= memory.len(), "{count} blocks of {len} bytes");
        let step = Blocks::step_of(len, stride, count);
        Blocks { first: memory[offset..].as_mut_ptr(), len, stride, count, step }
    }

    /// The step by which the fewest blocks are copied out of a place that differs by a multiple of
    /// 4 KiB from the destination of the copy before: a processor that sees only that much of an
    /// address waits for it. Destinations are half a page behind sources.
    fn step_of(len: usize, stride: usize, count: usize) -> usize {
        let aliases = |distance: usize| {
            let ahead = distance.wrapping_sub(PAGE / 2) % PAGE;
            ahead.min(PAGE - ahead) < len
        };
        let aliased = |step: &usize| {
            let on = step % count;
            // Steps that lead from near the end to near the beginning.
            let back = on * (count - 1) / count;
            let is = |steps: usize, distance: usize| if aliases(distance) { steps } else { 0 };
            let ahead = on * stride;
            is(count - 1 - back, ahead) + is(back, ahead.wrapping_sub(count * stride))
        };
        (STEP_MIN..STEP_MIN + 2 * count).step_by(2).min_by_key(aliased).unwrap_or(STEP_MIN)
    }

    /// Bytes of a memory of `size` to leave out before blocks that take `span` of it, in some
    /// round: other pages each time, as far as there are any. The choice of pages for short blocks
    /// can make a difference of a third, that of a whole process if they stay.
    fn other_pages(round: usize, span: usize, size: usize) -> usize {
        let step = span.next_multiple_of(PAGE).max(PAGE);
        let places = (size / step).max(1);
        round % places * step
    }

    /// The beginning of each, in an order that no prefetcher foresees.
    pub fn each(self) -> impl Iterator<Item = *mut u8> {
        // Any odd step comes to all of a power of two.
        (0..self.count).map(move |at| {
            self.first.wrapping_add((at.wrapping_mul(self.step) % self.count) * self.stride)
        })
    }

    /// Times that these should be brought into their state, and be copied and read, as it is
    /// measured, before that counts; and that the copy should be read once more each time.
    ///
    /// The contents of a last-level cache depend on the stores that went through it before: after a
    /// copy that went past it, the same block of 16 MiB takes a quarter longer to write than after
    /// one that did not, and that would count against the next algorithm. So each finds the caches
    /// as it left them itself. Blocks that nearly fill the cache need several such copies, for it
    /// keeps lines that were used more than once: 64 MiB that were written a moment before take 13
    /// ms at first, and 9 in the end. Short ones, which lie in a core's own cache, need none; and
    /// none does where no side `is_cached`.
    #[must_use]
    pub fn rehearsals(self, is_cached: bool) -> usize {
        match self.len * self.count {
            _ if !is_cached => 0,
            VERY_LONG.. => 3,
            LONG.. => 1,
            _ => 0,
        }
    }

    /// Writes all bytes of all blocks, each word another one, by stores that leave them in this
    /// core's caches as far as they fit there. The C library may fill long blocks past the caches.
    ///
    /// # Safety
    /// They must be writable, and nobody else's meanwhile.
    pub unsafe fn write(self, seed: u64) {
        for (place, block) in self.each().enumerate() {
            let mut word = seed.wrapping_add(place as u64).wrapping_mul(MIX);
            let whole = self.len / size_of::<u64>();
            // SAFETY: inside the block, as the caller promised.
            unsafe {
                for at in 0..whole {
                    block.cast::<u64>().add(at).write_unaligned(word);
                    word = word.wrapping_add(MIX);
                }
                let rest = self.len % size_of::<u64>();
                let end = block.add(whole * size_of::<u64>());
                end.copy_from_nonoverlapping(word.to_ne_bytes().as_ptr(), rest);
            }
        }
    }

    /// Evicts all blocks from all caches, those of other cores, too ([`flush`]).
    ///
    /// # Safety
    /// They must be readable and not written to meanwhile.
    pub unsafe fn flush(self) {
        for block in self.each() {
            // SAFETY: as the caller promised.
            flush(unsafe { std::slice::from_raw_parts(block, self.len) });
        }
    }

    /// Reads all bytes of all blocks.
    ///
    /// # Safety
    /// They must be readable and not written to meanwhile.
    pub unsafe fn read(self) {
        let mut scratch = [0u8; SCRATCH];
        for block in self.each() {
            for at in (0..self.len).step_by(SCRATCH) {
                let len = SCRATCH.min(self.len - at);
                // SAFETY: inside the block, as the caller promised; no longer than the scratch,
                // which is no part of it.
                unsafe { block.add(at).copy_to_nonoverlapping(scratch.as_mut_ptr(), len) };
                // Each piece is wanted, not only the last.
                black_box(&mut scratch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_written_and_nothing_else() {
        for (len, place) in [(0, 8), (1, 8), (7, 9), (8, 8), (61, 5)] {
            let mut memory = [0u8; 300];
            let mut written = |seed| {
                memory.fill(0xA5);
                let first = memory[place..].as_mut_ptr();
                let blocks = Blocks { first, len, stride: 100, count: 2, step: 13 };
                // SAFETY: both lie in the memory.
                unsafe { blocks.write(seed) };
                memory
            };
            let all = [1, 2, 3, 4].map(&mut written);
            for at in 0..300 {
                let inside = (at >= place) && (at - place) % 100 < len && at < place + 200;
                let bytes = all.map(|memory| memory[at]);
                assert_eq!(bytes.iter().any(|byte| *byte != 0xA5), inside, "{len} {at}");
            }
        }
    }

    #[test]
    fn other_pages_each_time() {
        for (span, size) in
            [(100, 1 << 20), (9000, 1 << 20), (1 << 19, 1 << 20), (1 << 20, 1 << 20)]
        {
            let places: Vec<usize> =
                (0..3).map(|round| Blocks::other_pages(round, span, size)).collect();
            assert!(places.iter().all(|at| at % 4096 == 0 && at + span <= size), "{places:?}");
            assert_eq!(places[0] != places[1], 2 * span <= size, "{places:?}");
        }
        // More than there is: the caller sees to that.
        assert_eq!(Blocks::other_pages(7, 2 << 20, 1 << 20), 0);
    }

    /// Copies in a row that go out of the place that the one before went to, but for a multiple of
    /// 4 KiB.
    fn aliased(blocks: Blocks) -> usize {
        let places: Vec<usize> = blocks.each().map(|at| at.addr() - blocks.first.addr()).collect();
        let is = |pair: &&[usize]| {
            let (to, from) = ((pair[0] + PAGE / 2) % PAGE, pair[1] % PAGE);
            let apart = to.abs_diff(from);
            apart.min(PAGE - apart) < blocks.len
        };
        places.windows(2).filter(is).count()
    }

    #[test]
    fn few_copies_go_out_of_where_the_last_went_to() {
        let mut memory = vec![0u8; 64 << 10];
        for (len, count, most) in
            [(64, 64, 0), (128, 64, 0), (256, 32, 0), (512, 16, 0), (1024, 8, 2), (4096, 1, 0)]
        {
            let blocks = Blocks::within(&mut memory, 0, len, count, 0);
            assert_eq!(aliased(blocks), most, "{len}");
            let fixed = Blocks { step: STEP_MIN, ..blocks };
            assert_eq!(aliased(fixed) > most, [512, 1024].contains(&len), "{len}");
        }
    }

    #[test]
    fn what_does_not_stay_in_a_core_is_rehearsed() {
        let rehearsals =
            |len, count| Blocks { len, count, ..Blocks::one(std::ptr::null(), 0) }.rehearsals(true);
        let short = [rehearsals(64, 64), rehearsals(64 << 10, 1)];
        assert_eq!(short, [0, 0]);
        let long = [rehearsals(128 << 10, 1), rehearsals(16 << 20, 1), rehearsals(64 << 20, 1)];
        assert_eq!(long, [1, 1, 3]);
        assert_eq!(Blocks::one(std::ptr::null(), 64 << 20).rehearsals(false), 0);
    }

    #[test]
    fn each_block_once() {
        let mut memory = [0u8; 4096];
        for count in [1, 2, 8, 64] {
            let first = memory.as_mut_ptr();
            let blocks = Blocks { first, len: 8, stride: 64, count, step: 19 };
            let mut places: Vec<usize> = blocks.each().map(|at| at.addr() - first.addr()).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).map(|at| at * 64).collect::<Vec<_>>());
        }
    }
}
