//! Blocks of contents, and the memory they are read into.
//!
//! That is an arena where there is one. Then a whole block is given to the receiver, which looks at
//! it in place, and one that is not full is copied once, out of the receiver's mapping.
#![allow(unsafe_code)]
// Invariant: a `Block` is some memory that does not move with it, and the number of its bytes, from
// the first, that are in use: never more than there are.

use pinfold::{Arena, ArenaBuf, DonatedBuf, OwnedBuf};

use super::frame::BLOCK_BYTES;

/// Bytes on their way to the receiver: a block of contents, or a record.
#[derive(Debug)]
pub(super) struct Block {
    memory: Memory,
    /// Bytes in use.
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Arena(ArenaBuf),
    Heap(Vec<u8>),
}

impl Block {
    /// The bytes in use.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.all()[..self.len]
    }

    /// The number of bytes in use.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The room after them.
    pub(super) fn room(&mut self) -> &mut [u8] {
        let len = self.len;
        match &mut self.memory {
            Memory::Arena(bytes) => &mut bytes[len..],
            Memory::Heap(bytes) => &mut bytes[len..],
        }
    }

    /// Takes the next `count` bytes of the room into use, or all there are.
    pub(super) fn extend(&mut self, count: usize) {
        self.len = self.all().len().min(self.len.saturating_add(count));
    }

    /// The memory, if it is in an arena and all of it is in use.
    pub(super) fn into_donation(self) -> Result<DonatedBuf, Block> {
        match self.memory {
            Memory::Arena(bytes) if bytes.len() == self.len => Ok(bytes.into()),
            memory => Err(Block { memory, ..self }),
        }
    }

    /// An empty block in ordinary memory, in place of a lost one.
    pub(super) fn another() -> Block {
        Block { memory: Memory::Heap(vec![0; BLOCK_BYTES]), len: 0 }
    }

    /// Takes none into use.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    fn all(&self) -> &[u8] {
        match &self.memory {
            Memory::Arena(bytes) => bytes,
            Memory::Heap(bytes) => bytes,
        }
    }
}

impl From<ArenaBuf> for Block {
    /// All of the bytes are in use.
    fn from(bytes: ArenaBuf) -> Block {
        Block { len: bytes.len(), memory: Memory::Arena(bytes) }
    }
}

impl From<Vec<u8>> for Block {
    /// All of the bytes are in use.
    fn from(bytes: Vec<u8>) -> Block {
        Block { len: bytes.len(), memory: Memory::Heap(bytes) }
    }
}

// SAFETY: neither an arena's buffer nor a vector's elements move with the block; both live,
// initialised, as long as the block, with the length that `all` has, which `len` never exceeds; and
// only `&mut self` writes them.
unsafe impl OwnedBuf for Block {
    fn bytes(&self) -> (*const u8, usize) {
        (self.all().as_ptr(), self.len)
    }
}

/// Makes blocks, so many and no more.
#[derive(Debug)]
pub(super) struct Blocks {
    arena: Option<Arena>,
    left: usize,
}

impl Blocks {
    /// `count` of them, in an arena if that is `wanted` and can be had.
    pub(super) fn new(count: usize, wanted: bool) -> Blocks {
        let arena = wanted.then(Arena::new).and_then(|made| {
            made.inspect_err(|why| tracing::debug!(%why, "no arena: ordinary memory it is")).ok()
        });
        Blocks { arena, left: count }
    }

    /// An empty block with room for [`BLOCK_BYTES`], or `None` if all have been made.
    pub(super) fn make(&mut self) -> Option<Block> {
        self.left = self.left.checked_sub(1)?;
        let made = self.arena.as_ref().map(|arena| arena.alloc(BLOCK_BYTES));
        let memory = match made {
            Some(Ok(bytes)) => Memory::Arena(bytes),
            Some(Err(why)) => {
                tracing::debug!(%why, "no room in the arena: ordinary memory it is");
                self.arena = None;
                Memory::Heap(vec![0; BLOCK_BYTES])
            }
            None => return Some(Block::another()),
        };
        Some(Block { memory, len: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_fill_and_empty() {
        for wanted in [false, true] {
            let mut blocks = Blocks::new(2, wanted);
            let mut block = blocks.make().unwrap();
            assert_eq!(matches!(block.memory, Memory::Arena(_)), wanted);
            assert!(block.is_empty());
            assert_eq!(block.room().len(), BLOCK_BYTES);
            block.room()[..3].copy_from_slice(b"abc");
            block.extend(2);
            assert_eq!((block.bytes(), block.len()), (&b"ab"[..], 2));
            assert_eq!(block.room()[0], b'c');
            let (at, len) = OwnedBuf::bytes(&block);
            assert_eq!((at, len), (block.bytes().as_ptr(), 2));
            block.extend(usize::MAX);
            assert_eq!((block.len(), block.room().len()), (BLOCK_BYTES, 0));
            block.clear();
            assert!(block.is_empty());
            block.extend(1);
            // Only a whole block can be given, and only out of an arena.
            let mut block = block.into_donation().unwrap_err();
            block.extend(BLOCK_BYTES);
            let donation =
                block.into_donation().ok().and_then(|donation| donation.into_arena_buf());
            assert_eq!(
                donation.map(|memory| Block::from(memory).bytes()[..2].to_vec()),
                wanted.then(|| b"ab".to_vec())
            );
            assert!(blocks.make().is_some());
            assert!(blocks.make().is_none(), "there were to be two");
        }
    }

    #[test]
    fn records_are_blocks_too() {
        let block = Block::from(b"record".to_vec());
        assert_eq!(block.bytes(), b"record");
        assert_eq!(OwnedBuf::bytes(&block).1, 6);
    }
}
