//! Blocks of memory that lie one after the other, and what reads all of them.
#![allow(unsafe_code)]
// Invariant: no byte is read that the caller has not named.

use std::hint::black_box;

/// What blocks are read into, piece by piece: it stays in the nearest cache, bytes.
const SCRATCH: usize = 4096;

/// Some blocks of one length, one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    /// Where the first one begins.
    pub first: *mut u8,
    /// Of each, bytes.
    pub len: usize,
    /// From one to the next, bytes.
    pub stride: usize,
    /// How many: a power of two.
    pub count: usize,
}

impl Blocks {
    /// Where each one begins, in an order that no prefetcher foresees.
    pub fn each(self) -> impl Iterator<Item = *mut u8> {
        // Any odd step comes to all of a power of two.
        (0..self.count).map(move |at| {
            self.first.wrapping_add((at.wrapping_mul(13) % self.count) * self.stride)
        })
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
                // SAFETY: inside the block, as the caller promised; no longer than the scratch, which is
                // no part of it.
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
    fn each_block_once() {
        let mut memory = [0u8; 4096];
        for count in [1, 2, 8, 64] {
            let first = memory.as_mut_ptr();
            let blocks = Blocks { first, len: 8, stride: 64, count };
            let mut places: Vec<usize> = blocks.each().map(|at| at.addr() - first.addr()).collect();
            places.sort_unstable();
            assert_eq!(places, (0..count).map(|at| at * 64).collect::<Vec<_>>());
        }
    }
}
