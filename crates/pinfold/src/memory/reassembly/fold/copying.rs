#![allow(unsafe_code)]
//! Copies of pieces.
//!
//! **Invariant.** Only bytes that the caller named are copied.

use std::ptr;

use pinfold_sys::cpu::block::{self, Algorithm};

use super::super::gather::Piece;
use crate::copy::{self, Block, Caller, Reader};

/// Longer pieces are copied by the algorithm that their site has learnt for copies of their size.
const LEARNS_FROM: usize = 1 << 16;

/// Shorter ones are copied by the C library.
const CHOSEN_FROM: usize = 1 << 11;

/// The method of copying the pieces of one message.
pub(super) struct Copying {
    algorithm: Algorithm,
}

impl Copying {
    /// A copy of `total` bytes to `to`. The method is chosen by the whole, for short pieces, too:
    /// whether the copy stays in the caches depends on all of it.
    pub(super) fn new(total: usize, to: *const u8) -> Copying {
        let block = Block { len: total, to: to.addr(), reader: Reader::Me, ..Block::default() };
        let chosen = total >= CHOSEN_FROM;
        let pick = || copy::plan().pick(&block);
        Copying { algorithm: if chosen { pick() } else { Algorithm::LIBC } }
    }

    /// # Safety
    /// `from` is readable and `to` writable for `len` bytes, and they do not overlap. Others may
    /// write `from` meanwhile only if they are in other processes.
    #[inline]
    pub(super) unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised; the plan names no algorithm that the processor lacks.
        unsafe {
            match len {
                LEARNS_FROM.. => {
                    let fold = Caller::Named("fold");
                    let _ = copy::copy_for(fold, Reader::Me, from, to, len);
                }
                CHOSEN_FROM.. => block::copy(self.algorithm, from, to, len),
                _ => from.copy_to_nonoverlapping(to, len),
            }
        }
    }

    /// Copies all pieces to where `to` begins.
    ///
    /// # Safety
    /// As for [`copy`](Copying::copy), for each piece and the sum of their lengths.
    pub(super) unsafe fn copy_all(&self, pieces: &[Piece], to: *mut u8) {
        let mut to = to;
        for (at, piece) in pieces.iter().enumerate() {
            if let Some(next) = pieces.get(at + 1) {
                // The processor fetches ahead by itself within a page alone.
                block::fetch_start(ptr::with_exposed_provenance(next.at as usize));
            }
            let (from, len) = (piece.at as usize, piece.len as usize);
            // SAFETY: as the caller promised.
            unsafe {
                self.copy(ptr::with_exposed_provenance(from), to, len);
                to = to.add(len);
            }
        }
    }
}
