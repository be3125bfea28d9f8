#![allow(unsafe_code)]
//! The memory of a message: its header, and the parts that the program named.
//!
//! **Invariant.** The program leaves its parts alone, and in place, until their operation has
//! ended: libfabric demands that. The header lies in a box of its own.

use pinfold::{OwnedBuf, OwnedBufMut};

use crate::header::{self, Header};

/// A part of a message: its first byte and its length.
type Part = (*const u8, usize);

/// The memory of one message.
pub struct Memory {
    header: Box<[u8; header::BYTES]>,
    parts: Parts,
    /// The memory of its part, if that is a copy.
    _copy: Box<[u8]>,
}

/// The parts, the header first.
enum Parts {
    /// That many of them.
    Few([Part; 2], usize),
    Many(Vec<Part>),
}

// SAFETY: the memory is not bound to a thread; see the invariant.
unsafe impl Send for Memory {}

impl Memory {
    /// # Safety
    /// The parts stay in place, unchanged by the program, until the buffer is dropped.
    pub unsafe fn new(header: Header, iov: &[libc::iovec]) -> Memory {
        let header = Box::new(header.bytes());
        let first = (header.as_ptr(), header::BYTES);
        let part = |it: &libc::iovec| (it.iov_base.cast_const().cast::<u8>(), it.iov_len);
        let parts = match iov {
            [] => Parts::Few([first; 2], 1),
            [one] if one.iov_len == 0 => Parts::Few([first; 2], 1),
            [one] => Parts::Few([first, part(one)], 2),
            _ => Parts::Many(std::iter::once(first).chain(iov.iter().map(part)).collect()),
        };
        Memory { header, parts, _copy: Box::default() }
    }

    /// A message of a copy of its own.
    pub fn copied(header: Header, copy: Vec<u8>) -> Memory {
        let copy = copy.into_boxed_slice();
        let iov_base = copy.as_ptr().cast_mut().cast();
        // SAFETY: the box stays with the buffer, and does not move its contents.
        let memory =
            unsafe { Memory::new(header, &[libc::iovec { iov_base, iov_len: copy.len() }]) };
        Memory { _copy: copy, ..memory }
    }

    /// The header of the message that is in here.
    pub fn header(&self) -> Header {
        // SAFETY: in the box, which is here; nothing writes to it once the operation has ended.
        Header::read(unsafe { std::ptr::from_ref(&*self.header).read_volatile() })
    }

    fn parts(&self) -> &[Part] {
        match &self.parts {
            Parts::Few(parts, count) => &parts[..*count],
            Parts::Many(parts) => parts,
        }
    }
}

// SAFETY: see the invariant; the header's box does not move its contents.
unsafe impl OwnedBuf for Memory {
    fn bytes(&self) -> (*const u8, usize) {
        (self.header.as_ptr(), header::BYTES)
    }

    fn parts(&self) -> Option<&[Part]> {
        Some(Memory::parts(self))
    }
}

// SAFETY: as above. Parts of a receive are the program's to be written.
unsafe impl OwnedBufMut for Memory {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.header.as_mut_ptr(), header::BYTES)
    }

    fn parts_mut(&mut self) -> Option<&[(*mut u8, usize)]> {
        let parts = Memory::parts(self);
        // SAFETY: pointers to const and to mut have the same layout.
        Some(unsafe { std::slice::from_raw_parts(parts.as_ptr().cast(), parts.len()) })
    }
}

/// A buffer of the program's for many messages.
pub struct Whole {
    pub at: *mut u8,
    pub len: usize,
}

// SAFETY: as of `Memory`.
unsafe impl Send for Whole {}

// SAFETY: see the invariant.
unsafe impl OwnedBufMut for Whole {
    fn bytes_mut(&mut self) -> (*mut u8, usize) {
        (self.at, self.len)
    }
}

impl Whole {
    /// The header of a message that lies `offset` bytes into it.
    ///
    /// # Safety
    /// The message is complete, and the buffer is still the provider's.
    pub unsafe fn header(at: *const u8, offset: usize) -> Header {
        // SAFETY: the caller's; messages lie at multiples of 8 bytes of any address.
        Header::read(unsafe { at.add(offset).cast::<[u8; header::BYTES]>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iov(bytes: &mut [u8]) -> libc::iovec {
        libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
    }

    #[test]
    fn the_header_comes_first() {
        let (mut one, mut two) = ([1u8; 3], [2u8; 5]);
        let header = Header { data: Some(7), ack: None };
        for parts in [vec![], vec![iov(&mut one)], vec![iov(&mut one), iov(&mut two)]] {
            // SAFETY: the arrays outlive the buffer.
            let memory = unsafe { Memory::new(header, &parts) };
            assert_eq!(memory.header(), header);
            let lens: Vec<usize> = memory.parts().iter().map(|part| part.1).collect();
            let wanted = std::iter::once(header::BYTES).chain(parts.iter().map(|it| it.iov_len));
            assert_eq!(lens, wanted.collect::<Vec<_>>());
        }
    }
}
