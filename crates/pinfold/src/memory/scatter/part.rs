#![allow(unsafe_code)]
//! Memory in one part, and its way into the words of descriptors and out of them.
//!
//! **Invariant.** As for [`scatter`](super): the memory stays valid until its operation has ended.

use crate::sync::{AtomicU64, Ordering};

/// Memory in one part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(super) ptr: *mut u8,
    pub(super) len: usize,
}

impl Part {
    /// # Safety
    /// See the module's invariant.
    #[inline(always)]
    pub(crate) unsafe fn new(ptr: *mut u8, len: usize) -> Part {
        Part { ptr, len }
    }

    /// Its address and length.
    pub(crate) fn raw(self) -> (*mut u8, usize) {
        (self.ptr, self.len)
    }

    /// Bytes.
    #[inline(always)]
    pub(crate) fn len(self) -> u64 {
        self.len as u64
    }

    /// Copies all of this, at most as many bytes as there are words, to the body of a descriptor.
    /// The rest of the last word becomes zero.
    #[inline(always)]
    pub(crate) fn read_words(self, slot: &[AtomicU64]) {
        assert!(self.len <= slot.len() * 8);
        let (whole, rest) = (self.len / 8, self.len % 8);
        for (i, place) in slot.iter().enumerate().take(whole) {
            // SAFETY: readable by the invariant; `i * 8 + 8 <= len`.
            let word = unsafe { self.ptr.add(i * 8).cast::<u64>().read_unaligned() };
            place.store(word, Ordering::Relaxed);
        }
        if rest > 0 {
            let mut word = [0; 8];
            for (b, byte) in word.iter_mut().enumerate().take(rest) {
                // SAFETY: readable by the invariant; `whole * 8 + b < len`.
                *byte = unsafe { self.ptr.add(whole * 8 + b).read() };
            }
            slot[whole].store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }

    /// Copies all of this to the bodies of two descriptors: as many bytes as fit to the first.
    #[inline(always)]
    pub(crate) fn read_two(self, [first, second]: [&[AtomicU64]; 2]) {
        let len = self.len.min(first.len() * 8);
        Part { len, ..self }.read_words(first);
        // SAFETY: within this part.
        let rest = unsafe { self.ptr.add(len) };
        Part { ptr: rest, len: self.len - len }.read_words(second);
    }

    /// Copies the first `len` bytes of `word(0)`, `word(1)`, … here, as much as there is room for.
    /// Returns how much.
    #[inline(always)]
    pub(crate) fn write_words(self, len: usize, word: impl Fn(usize) -> u64) -> u64 {
        let len = len.min(self.len);
        let (whole, rest) = (len / 8, len % 8);
        for i in 0..whole {
            // SAFETY: writable by the invariant; `i * 8 + 8 <= len`.
            unsafe { self.ptr.add(i * 8).cast::<u64>().write_unaligned(word(i)) };
        }
        if rest > 0 {
            let word = word(whole).to_ne_bytes();
            for (b, byte) in word.into_iter().enumerate().take(rest) {
                // SAFETY: writable by the invariant; `whole * 8 + b < len`.
                unsafe { self.ptr.add(whole * 8 + b).write(byte) };
            }
        }
        len as u64
    }
}
