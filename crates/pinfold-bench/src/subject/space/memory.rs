#![allow(unsafe_code)]
//! Memory of this process that the other one uses by its addresses.
// Invariant: it is reached as atomic words only, here and by every process it is exposed to, and an
// `Exposed` is dropped before it.

use std::sync::atomic::{AtomicU64, Ordering};

use pinfold::{Endpoint, Exposed, Rights, SharedArena, SharedBuf};

use crate::{
    fail::{Fail, Result},
    terms::Memory,
};

/// Some words.
pub(super) enum Owned {
    /// Ordinary memory.
    Heap(Box<[AtomicU64]>),
    /// Memory of an arena.
    Arena(SharedBuf),
}

impl Owned {
    /// `len` bytes, all of them there.
    pub(super) fn new(memory: Memory, len: usize) -> Result<Owned> {
        let owned = match memory {
            Memory::Heap => Owned::Heap((0..len / 8).map(|_| AtomicU64::new(0)).collect()),
            Memory::Arena => Owned::Arena(SharedArena::builder().build_shared()?.alloc(len)?),
        };
        owned.write(&vec![0; len]);
        Ok(owned)
    }

    /// Its first address.
    pub(super) fn address(&self) -> u64 {
        match self {
            Owned::Heap(words) => words.as_ptr().expose_provenance() as u64,
            Owned::Arena(buf) => buf.addresses().start as u64,
        }
    }

    fn len(&self) -> usize {
        match self {
            Owned::Heap(words) => 8 * words.len(),
            Owned::Arena(buf) => buf.len(),
        }
    }

    /// Lets peers read and write it.
    pub(super) fn expose(&self, endpoint: &Endpoint) -> Result<Exposed> {
        let start = self.address() as usize;
        // SAFETY: there are references to it as atomic words only.
        Ok(unsafe { endpoint.expose(start..start + self.len(), Rights::ReadWrite) }?)
    }

    /// The word at `offset`, a multiple of 8.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> Result<&AtomicU64> {
        let word = match self {
            Owned::Heap(words) => words.get(offset / 8),
            Owned::Arena(buf) => buf.word64(offset),
        };
        word.ok_or(Fail::Gone)
    }

    /// Writes bytes from the first on; a rest of less than a word at their end is left out.
    pub(super) fn write(&self, bytes: &[u8]) {
        match self {
            Owned::Heap(words) => {
                for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
                    let mut eight = [0; 8];
                    eight.copy_from_slice(bytes);
                    word.store(u64::from_ne_bytes(eight), Ordering::Release);
                }
            }
            Owned::Arena(buf) => buf.write(0, bytes),
        }
    }

    /// Reads bytes from the first on, as [`Owned::write`] writes them.
    pub(super) fn read(&self, into: &mut [u8]) {
        match self {
            Owned::Heap(words) => {
                for (word, bytes) in words.iter().zip(into.chunks_exact_mut(8)) {
                    bytes.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
                }
            }
            Owned::Arena(buf) => buf.read(0, into),
        }
    }
}
