#![allow(unsafe_code)]
//! A buffer of an arena that peers can write.
//!
//! **Invariant.** No reference to plain bytes of a [`SharedBuf`] ever exists, because a peer can
//! write all of them at any time. They are reached by relaxed atomic loads and stores, eight bytes
//! at a time where they are aligned, or as atomic words. What was read is a copy.

use std::{
    fmt,
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use super::{SharedArena, registry::ArenaRef, state::Block};
use crate::Result;

const WORD: usize = size_of::<u64>();

/// A buffer in a [`SharedArena`]. Dropping it frees its bytes.
pub struct SharedBuf {
    at: NonNull<u8>,
    len: usize,
    block: Block,
    arena: SharedArena,
}

// SAFETY: the bytes are mapped as long as the buffer lives, on any thread, and reached atomically.
unsafe impl Send for SharedBuf {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedBuf {}

impl SharedBuf {
    pub(super) fn new(arena: &SharedArena, len: usize, align: usize) -> Result<SharedBuf> {
        let (block, at) = arena.heap.alloc(len, align)?;
        let buf = SharedBuf { at, len, block, arena: arena.clone() };
        buf.fill(0);
        Ok(buf)
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The arena it is in.
    pub fn arena(&self) -> &SharedArena {
        &self.arena
    }

    /// Copies the bytes at `offset` out. Others may write meanwhile: of what they write the copy
    /// has some or all, eight aligned bytes always together.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        self.words(offset, into.len(), |cell, at| match cell {
            Cell::Byte(byte) => into[at] = byte.load(Ordering::Relaxed),
            Cell::Word(word) => {
                into[at..at + WORD].copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
            }
        });
    }

    /// Copies bytes in at `offset`. Others may read and write meanwhile: eight aligned bytes are
    /// always written together.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.words(offset, from.len(), |cell, at| match cell {
            Cell::Byte(byte) => byte.store(from[at], Ordering::Relaxed),
            Cell::Word(word) => {
                let mut bytes = [0; WORD];
                bytes.copy_from_slice(&from[at..at + WORD]);
                word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
            }
        });
    }

    /// Makes all bytes the same.
    pub fn fill(&self, byte: u8) {
        let word = u64::from_ne_bytes([byte; WORD]);
        self.words(0, self.len, |cell, _| match cell {
            Cell::Byte(cell) => cell.store(byte, Ordering::Relaxed),
            Cell::Word(cell) => cell.store(word, Ordering::Relaxed),
        });
    }

    /// The bytes, copied.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// The 32-bit word at `offset`, if all of it is inside and `offset` is a multiple of 4.
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.aligned(offset, size_of::<u32>())?;
        // SAFETY: mapped while `self` lives, aligned, and reached atomically only.
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// The 64-bit word at `offset`, if all of it is inside and `offset` is a multiple of 8.
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.aligned(offset, WORD)?;
        // SAFETY: as in `word32`.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    /// The extent it is in, and its offset there.
    #[cfg_attr(not(test), allow(dead_code))]
    pub(crate) fn locate(&self) -> (ArenaRef, u64) {
        self.arena.heap.locate(self.block)
    }

    fn aligned(&self, offset: usize, size: usize) -> Option<*mut u8> {
        let fits = offset.is_multiple_of(size) && offset <= self.len && size <= self.len - offset;
        fits.then(|| self.at.as_ptr().wrapping_add(offset))
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        let fits = offset <= self.len && len <= self.len - offset;
        assert!(fits, "{len} bytes at {offset} of a buffer of {}", self.len);
    }

    /// Goes through some bytes, inside the buffer: single ones up to the first aligned word, words,
    /// and single ones at the end. Says how many bytes came before.
    fn words(&self, offset: usize, len: usize, mut go: impl FnMut(Cell<'_>, usize)) {
        let byte = |at: usize| {
            // SAFETY: inside the buffer, which is mapped, and reached atomically only.
            Cell::Byte(unsafe { AtomicU8::from_ptr(self.at.as_ptr().add(offset + at)) })
        };
        // The buffer itself begins at a multiple of 64.
        let head = (offset.next_multiple_of(WORD) - offset).min(len);
        let tail = head + (len - head) / WORD * WORD;
        (0..head).for_each(|at| go(byte(at), at));
        for at in (head..tail).step_by(WORD) {
            // SAFETY: as above; `offset + at` is a multiple of the word's size.
            let word = unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset + at).cast()) };
            go(Cell::Word(word), at);
        }
        (tail..len).for_each(|at| go(byte(at), at));
    }
}

/// A part of a buffer that is reached at once.
enum Cell<'a> {
    Byte(&'a AtomicU8),
    Word(&'a AtomicU64),
}

impl Drop for SharedBuf {
    fn drop(&mut self) {
        self.arena.heap.free(self.block);
    }
}

impl fmt::Debug for SharedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuf").field("len", &self.len).finish_non_exhaustive()
    }
}
