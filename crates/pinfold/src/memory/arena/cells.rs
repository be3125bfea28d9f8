#![allow(unsafe_code)]
//! Bytes that a peer may write at any time.
//!
//! **Invariant.** No reference to plain bytes of [`Cells`] ever exists. They are reached by relaxed
//! atomic loads and stores, eight bytes at a time where they are aligned, or as atomic words. Bytes
//! that were read are a copy.
//!
//! Two threads that reach the same byte at once may do so in accesses of two sizes. The language
//! does not define that (its memory model has no such accesses); processors do as expected, and
//! compilers leave atomics as they are.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

const WORD: usize = size_of::<u64>();

/// Some bytes of a shared mapping, from a multiple of 64 on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cells {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the bytes are mapped on any thread, and reached atomically.
unsafe impl Send for Cells {}
// SAFETY: as for `Send`.
unsafe impl Sync for Cells {}

impl Cells {
    /// # Safety
    /// The `len` bytes at `at` are mapped, and writable if [`Cells::write`] or [`Cells::fill`] are
    /// called or the words are written, as long as this or a word of it is used; nothing reaches
    /// them meanwhile but atomically. `at` is a multiple of 8.
    pub(crate) unsafe fn new(at: NonNull<u8>, len: usize) -> Cells {
        Cells { at, len }
    }

    /// Their number.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The first.
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Returns whether `len` bytes at `offset` lie inside.
    pub(crate) fn has(self, offset: usize, len: usize) -> bool {
        offset <= self.len && len <= self.len - offset
    }

    /// Copies bytes out; `false`, and nothing happens, if they reach beyond the end.
    pub(crate) fn read(self, offset: usize, into: &mut [u8]) -> bool {
        let fits = self.has(offset, into.len());
        if fits {
            self.words(offset, into.len(), |cell, at| match cell {
                Cell::Byte(byte) => into[at] = byte.load(Ordering::Relaxed),
                Cell::Word(word) => {
                    let word = word.load(Ordering::Relaxed).to_ne_bytes();
                    into[at..at + WORD].copy_from_slice(&word);
                }
            });
        }
        fits
    }

    /// Copies bytes in; `false`, and nothing happens, if they reach beyond the end.
    pub(crate) fn write(self, offset: usize, from: &[u8]) -> bool {
        let fits = self.has(offset, from.len());
        if fits {
            self.words(offset, from.len(), |cell, at| match cell {
                Cell::Byte(byte) => byte.store(from[at], Ordering::Relaxed),
                Cell::Word(word) => {
                    let mut bytes = [0; WORD];
                    bytes.copy_from_slice(&from[at..at + WORD]);
                    word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
                }
            });
        }
        fits
    }

    /// Makes all bytes the same.
    pub(crate) fn fill(self, byte: u8) {
        let word = u64::from_ne_bytes([byte; WORD]);
        self.words(0, self.len, |cell, _| match cell {
            Cell::Byte(cell) => cell.store(byte, Ordering::Relaxed),
            Cell::Word(cell) => cell.store(word, Ordering::Relaxed),
        });
    }

    /// The 32-bit word at `offset`, if all of it is inside and `offset` is a multiple of 4.
    ///
    /// # Safety
    /// As for [`Cells::new`], for as long as the word is used.
    pub(crate) unsafe fn word32<'a>(self, offset: usize) -> Option<&'a AtomicU32> {
        let at = self.aligned(offset, size_of::<u32>())?;
        // SAFETY: mapped by contract, aligned, and reached atomically only.
        Some(unsafe { AtomicU32::from_ptr(at.cast()) })
    }

    /// The 64-bit word at `offset`, if all of it is inside and `offset` is a multiple of 8.
    ///
    /// # Safety
    /// As for [`Cells::word32`].
    pub(crate) unsafe fn word64<'a>(self, offset: usize) -> Option<&'a AtomicU64> {
        let at = self.aligned(offset, WORD)?;
        // SAFETY: as in `word32`.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    }

    fn aligned(self, offset: usize, size: usize) -> Option<*mut u8> {
        let fits = offset.is_multiple_of(size) && self.has(offset, size);
        fits.then(|| self.at.as_ptr().wrapping_add(offset))
    }

    /// Goes through some bytes, inside the cells: single ones up to the first aligned word, words,
    /// and single ones at the end. Tells with each how many bytes came before.
    fn words(self, offset: usize, len: usize, mut go: impl FnMut(Cell<'_>, usize)) {
        let byte = |at: usize| {
            // SAFETY: inside the cells, which are mapped, and reached atomically only.
            Cell::Byte(unsafe { AtomicU8::from_ptr(self.at.as_ptr().add(offset + at)) })
        };
        // The first byte lies at a multiple of the word's size.
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

/// A part that is reached at once.
enum Cell<'a> {
    Byte(&'a AtomicU8),
    Word(&'a AtomicU64),
}

#[cfg(test)]
mod tests;
