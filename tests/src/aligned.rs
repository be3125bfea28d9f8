//! Buffers that begin at a chosen offset from a cache line, between guards.

use pinfold::Arena;

use crate::host::{Bytes, Whole};

/// Bytes before and behind the buffer that nothing may touch.
const GUARD: usize = 64;
const UNTOUCHED: u8 = 0xa5;

/// A buffer whose first byte lies `offset` bytes behind a 64-byte boundary.
pub struct Aligned {
    bytes: Bytes,
}

impl Aligned {
    /// A buffer of `len` bytes, all of them 0.
    pub fn new(len: usize, offset: usize) -> Aligned {
        let whole = vec![UNTOUCHED; Aligned::with_guards(len, offset)];
        Aligned::of(Whole::Heap(whole.into_boxed_slice()), len, offset)
    }

    /// As [`Aligned::new`], in an arena.
    ///
    /// # Panics
    /// If the arena has no memory.
    pub fn in_arena(arena: &Arena, len: usize, offset: usize) -> Aligned {
        let mut whole = arena.alloc(Aligned::with_guards(len, offset)).expect("memory");
        whole.fill(UNTOUCHED);
        Aligned::of(Whole::Arena(whole), len, offset)
    }

    fn with_guards(len: usize, offset: usize) -> usize {
        len + 2 * GUARD + 64 + offset
    }

    fn of(mut whole: Whole, len: usize, offset: usize) -> Aligned {
        let at = GUARD + whole[GUARD..].as_ptr().align_offset(64) + offset;
        whole[at..at + len].fill(0);
        Aligned { bytes: Bytes::new(whole, at, len) }
    }

    /// The buffer, to be given to an operation.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The buffer that an operation gave back.
    pub fn from_bytes(bytes: Bytes) -> Aligned {
        Aligned { bytes }
    }

    /// The buffer.
    pub fn get(&self) -> &[u8] {
        self.bytes.get()
    }

    /// The buffer.
    pub fn get_mut(&mut self) -> &mut [u8] {
        self.bytes.get_mut()
    }

    /// # Panics
    /// If anything beside the buffer was written.
    #[track_caller]
    pub fn check_guards(&self) {
        let (before, behind) = self.bytes.around();
        assert!(before.iter().all(|byte| *byte == UNTOUCHED), "written before the buffer");
        assert!(behind.iter().all(|byte| *byte == UNTOUCHED), "written behind the buffer");
    }
}
