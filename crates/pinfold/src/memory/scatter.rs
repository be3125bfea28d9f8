#![allow(unsafe_code)]
//! The caller's memory of one operation, as raw parts.
//!
//! **Invariant.** The parts of a [`Scatter`] stay valid (for reads, and for writes where it is a
//! receive's) from the moment it is made until its operation has ended. Its maker promises that: a
//! blocking call borrows until it returns, a request owns its buffer and leaves it to the engine
//! when dropped early, a scope does not end before its operations have. No code forms a reference
//! to the bytes meanwhile, since a peer may be copying them.

mod part;
mod slices;

use std::{convert::Infallible, io};

use pinfold_sys::{
    checker,
    mem::fault_safe_copy,
    process::{Segment, read_remote, write_remote},
};
use smallvec::SmallVec;

pub(crate) use self::part::Part;
use super::{
    cma_memory::Remote,
    segments::{self, List},
};
use crate::{
    copy::{Copier, CopyBytes},
    memory::arena::{self, ArenaRef, Mapping},
    transport::shm::{
        lane::{LaneRx, LaneTx},
        ring::Violation,
    },
    wire::{descriptor::Piece, rendezvous::Place},
};

impl Part {
    /// The extent of this process that all of this lies in, and its offset there. A few nanoseconds
    /// where it lies in none.
    #[inline]
    pub(crate) fn locate(self) -> Option<(ArenaRef, u64)> {
        // In use, by the invariant.
        arena::find(self.ptr, self.len)
    }

    /// Copies all bytes into `piece` of a lane, which is as long. Returns the sample number.
    #[inline(always)]
    pub(crate) fn fill(self, lane: &mut LaneTx, piece: Piece) -> Result<u8, Violation> {
        assert!(piece.len as usize <= self.len);
        // SAFETY: readable by the invariant.
        unsafe { lane.fill(piece, self.ptr) }
    }

    /// Copies `piece` of a lane here, as much of it as there is room for. Returns how much.
    #[inline(always)]
    pub(crate) fn drain(self, lane: &mut LaneRx, piece: Piece) -> Result<u64, Violation> {
        let len = (piece.len as usize).min(self.len) as u32;
        // SAFETY: writable by the invariant.
        unsafe { lane.drain(Piece { len, ..piece }, self.ptr)? };
        Ok(u64::from(len))
    }
}

impl From<Part> for Scatter {
    fn from(part: Part) -> Scatter {
        let parts = SmallVec::from_buf([Segment { ptr: part.ptr, len: part.len }]);
        Scatter { parts, len: part.len as u64 }
    }
}

/// Memory in one or more parts.
#[derive(Debug)]
pub(crate) struct Scatter {
    parts: SmallVec<[Segment; 1]>,
    len: u64,
}

// SAFETY: the parts are plain memory that its owner leaves alone until the operation ends; which
// thread of the process copies does not matter.
unsafe impl Send for Scatter {}

impl Scatter {
    /// No memory.
    pub(crate) fn empty() -> Scatter {
        Scatter { parts: SmallVec::new(), len: 0 }
    }

    /// One part.
    ///
    /// # Safety
    /// See the module's invariant.
    pub(crate) unsafe fn one(ptr: *mut u8, len: usize) -> Scatter {
        Part { ptr, len }.into()
    }

    /// The part, if there is just one.
    pub(crate) fn part(&self) -> Option<Part> {
        match self.parts.as_slice() {
            [part] => Some(Part { ptr: part.ptr, len: part.len }),
            _ => None,
        }
    }

    /// Several parts, in order.
    ///
    /// # Safety
    /// See the module's invariant.
    pub(crate) unsafe fn many(parts: impl Iterator<Item = (*mut u8, usize)>) -> Scatter {
        let parts: SmallVec<[Segment; 1]> =
            parts.filter(|part| part.1 > 0).map(|(ptr, len)| Segment { ptr, len }).collect();
        let len = parts.iter().map(|part| part.len as u64).sum();
        Scatter { parts, len }
    }

    /// Bytes in all parts.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Bytes in a part, on average.
    pub(crate) fn part_len(&self) -> u64 {
        self.len / self.parts.len().max(1) as u64
    }

    /// The number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// All parts.
    pub(crate) fn each_part(&self) -> impl Iterator<Item = Part> {
        self.parts.iter().map(|part| Part { ptr: part.ptr, len: part.len })
    }

    /// Returns whether its first part is an arena's of this process. A few nanoseconds.
    pub(crate) fn begins_in_arena(&self) -> bool {
        self.each_part().next().is_some_and(|first| first.locate().is_some())
    }

    /// Returns whether its first or its last page is not there.
    pub(crate) fn is_absent(&self) -> bool {
        let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) else {
            return false;
        };
        let ends = [first.ptr.addr(), last.ptr.addr() + last.len.saturating_sub(1)];
        !ends.iter().all(|end| fault_safe_copy::is_resident(*end as u64, 1))
    }

    /// Returns whether this process may read the first `len` bytes, or write them, if it `writes`.
    /// A page that cannot be checked counts as accessible. Two system calls a page.
    pub(crate) fn may_be_touched(&self, len: u64, writes: bool) -> bool {
        self.parts_of(0, len).all(|part| {
            // SAFETY: no other code writes to the memory of an operation.
            let checked = unsafe {
                fault_safe_copy::check_own(part.ptr.addr() as u64, part.len as u64, writes)
            };
            let fault = rustix::io::Errno::FAULT.raw_os_error();
            checked.err().and_then(|error| error.raw_os_error()) != Some(fault)
        })
    }

    /// Has the kernel put pages behind the first `len` bytes, so that a write to them does not
    /// wait. Contents stay. Pages that cannot be had are left out.
    pub(crate) fn put_pages(&self, len: u64) {
        for part in self.parts_of(0, len) {
            let _ = fault_safe_copy::put_pages(part.ptr.addr() as u64, part.len as u64);
        }
    }

    /// A peer has written some of the first `len` bytes, which Valgrind does not see.
    pub(crate) fn was_written(&self, len: u64) {
        for part in self.parts_of(0, len) {
            checker::was_written(part.ptr.addr() as u64, part.len as u64);
        }
    }

    /// The place of the memory, for a peer that may read or write this process. An array of several
    /// parts lies on the heap and does not move with `self`.
    pub(crate) fn place(&self) -> Place {
        match self.parts.as_slice() {
            [] => Place { at: 0, parts: 0 },
            [part] => Place { at: part.ptr as u64, parts: 1 },
            parts => Place { at: parts.as_ptr() as u64, parts: parts.len() as u32 },
        }
    }

    /// The parts of bytes `at..at + len`, as far as they are there.
    fn parts_of(&self, at: u64, len: u64) -> impl Iterator<Item = Segment> {
        let (mut skip, mut left) = (at, len);
        let mut parts = self.parts.iter();
        std::iter::from_fn(move || {
            while left > 0 {
                let part = parts.next()?;
                let part_len = part.len as u64;
                if skip >= part_len {
                    skip -= part_len;
                    continue;
                }
                let len = left.min(part_len - skip);
                // SAFETY: `skip < part.len`, so the sum stays inside the part.
                let ptr = unsafe { part.ptr.add(skip as usize) };
                (skip, left) = (0, left - len);
                return Some(Segment { ptr, len: len as usize });
            }
            None
        })
    }

    /// The parts of bytes `at..at + len` for the kernel: in as few segments as they need, and as
    /// many as go into one call.
    fn range(&self, at: u64, len: u64) -> List<Segment> {
        let mut out = List::new();
        let mut parts = self.parts_of(at, len);
        while parts.next().is_some_and(|part| segments::push(&mut out, part)) {}
        out
    }

    /// Goes through bytes `at..at + len`, as far as they are there, part by part, each with the
    /// number of bytes before it. Returns how many bytes there were.
    fn each<E>(
        &self,
        at: u64,
        len: u64,
        mut go: impl FnMut(Segment, u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut done = 0;
        for part in self.parts_of(at, len) {
            let bytes = part.len as u64;
            go(part, done)?;
            done += bytes;
        }
        Ok(done)
    }

    /// Copies bytes `at..at + piece.len` into `piece` of a lane. Returns the sample number.
    pub(crate) fn fill(&self, lane: &mut LaneTx, piece: Piece, at: u64) -> Result<u8, Violation> {
        if let [part] = self.parts.as_slice() {
            debug_assert!(at + u64::from(piece.len) <= self.len);
            // SAFETY: inside the one part; readable by the invariant.
            return unsafe { lane.fill(piece, part.ptr.add(at as usize)) };
        }
        self.each(at, u64::from(piece.len), |part, done| {
            let offset = piece.offset + done as u32;
            let now = Piece { offset, len: part.len as u32, sample: 0 };
            // SAFETY: `each` keeps inside the parts; readable by the invariant.
            unsafe { lane.fill_part(now, part.ptr) }
        })?;
        Ok(0)
    }

    /// Copies `piece` of a lane to bytes `at..`, as much of it as there is room for.
    pub(crate) fn drain(&self, lane: &mut LaneRx, piece: Piece, at: u64) -> Result<u64, Violation> {
        let fits = u64::from(piece.len).min(self.len.saturating_sub(at)) as u32;
        if let [part] = self.parts.as_slice() {
            let piece = Piece { len: fits, ..piece };
            // SAFETY: `at + fits` is inside the one part; writable by the invariant.
            unsafe { lane.drain(piece, part.ptr.add(at as usize))? };
            return Ok(u64::from(fits));
        }
        self.each(at, u64::from(fits), |part, done| {
            let offset = piece.offset + done as u32;
            let now = Piece { offset, len: part.len as u32, sample: 0 };
            // SAFETY: `each` keeps inside the parts; writable by the invariant.
            unsafe { lane.drain(now, part.ptr) }
        })
    }

    /// Copies `bytes` to `at..`, as much as there is room for.
    #[inline]
    pub(crate) fn write(&self, copier: &mut Copier, at: u64, bytes: &[u8]) -> u64 {
        if let [part] = self.parts.as_slice() {
            let room = part.len.saturating_sub(at as usize);
            let len = bytes.len().min(room);
            if len > 0 {
                // SAFETY: as below; `at + len` is inside the one part.
                unsafe { copier.copy(bytes.as_ptr(), part.ptr.add(at as usize), len) };
            }
            return len as u64;
        }
        self.write_parts(copier, at, bytes)
    }

    #[cold]
    fn write_parts(&self, copier: &mut Copier, at: u64, bytes: &[u8]) -> u64 {
        let copied = self.each(at, bytes.len() as u64, |part, done| {
            let from = &bytes[done as usize..][..part.len];
            // SAFETY: writable by the invariant, in bounds by `each`; the caller's buffer and
            // `bytes`, which the library owns, never overlap.
            unsafe { copier.copy(from.as_ptr(), part.ptr, part.len) };
            Ok::<(), Infallible>(())
        });
        copied.unwrap_or_else(|never| match never {})
    }

    /// Copies the first `len` bytes of `from` to `at..`, as far as both have them. Returns how
    /// many.
    pub(crate) fn copy_from(&self, copier: &mut Copier, at: u64, from: &Scatter, len: u64) -> u64 {
        let copied = from.each(0, len, |source, before| {
            self.each(at + before, source.len as u64, |part, done| {
                // SAFETY: both in bounds by `each`, readable and writable by the invariant. Two
                // operations do not have the same memory.
                unsafe { copier.copy(source.ptr.add(done as usize), part.ptr, part.len) };
                Ok::<(), Infallible>(())
            })
            .map(drop)
        });
        copied.unwrap_or_else(|never| match never {}).min(self.len.saturating_sub(at))
    }

    /// A copy of all bytes.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        for part in &self.parts {
            let at = bytes.len();
            bytes.resize(at + part.len, 0);
            // SAFETY: readable by the invariant; the vector has as many bytes from there on.
            unsafe { std::ptr::copy_nonoverlapping(part.ptr, bytes[at..].as_mut_ptr(), part.len) };
        }
        bytes
    }

    /// Copies the first bytes, up to `N` words of them, out for a descriptor.
    #[inline]
    pub(crate) fn read_words<const N: usize>(&self) -> [u64; N] {
        let mut bytes = [0u8; 64];
        let mut done = 0usize;
        for part in &self.parts {
            let len = part.len.min(N * 8 - done);
            // SAFETY: readable by the invariant; `N * 8 <= 64`.
            unsafe { std::ptr::copy_nonoverlapping(part.ptr, bytes[done..].as_mut_ptr(), len) };
            done += len;
        }
        std::array::from_fn(|i| {
            let word: [u8; 8] = std::array::from_fn(|b| bytes[i * 8 + b]);
            u64::from_ne_bytes(word)
        })
    }

    /// Copies `len` bytes from `offset` of a peer's arena to byte `at` of this.
    ///
    /// # Errors
    /// `EINVAL` if the arena has no such bytes; `ENOMEM` or `EFAULT` if it has no memory for them.
    pub(crate) fn copy_out_of(
        &self,
        copier: &mut impl CopyBytes,
        mapping: &Mapping,
        offset: u64,
        at: u64,
        len: u64,
    ) -> io::Result<u64> {
        mapping.prepare_copy(offset, len)?;
        self.each(at, len, |part, done| {
            let from = mapping.get(offset + done, part.len as u64);
            let from = from.ok_or(rustix::io::Errno::INVAL)?;
            // SAFETY: `from` lies in the mapping, which has memory there; the part is writable by
            // the invariant. A mapping of a peer's file is never memory of a caller.
            unsafe { copier.copy(from, part.ptr, part.len) };
            Ok(())
        })
    }

    /// Copies the `len` bytes at `at` of this to `offset` of a peer's arena.
    ///
    /// # Errors
    /// As [`Scatter::copy_out_of`]; `EINVAL` also if the arena is not for peers to write.
    pub(crate) fn copy_into(
        &self,
        copier: &mut impl CopyBytes,
        mapping: &Mapping,
        offset: u64,
        at: u64,
        len: u64,
    ) -> io::Result<u64> {
        mapping.prepare_copy(offset, len)?;
        self.each(at, len, |part, done| {
            let to = mapping.get_mut(offset + done, part.len as u64);
            let to = to.ok_or(rustix::io::Errno::INVAL)?;
            // SAFETY: `to` lies in the mapping, which is writable and has memory there; the part is
            // readable by the invariant. A mapping of a peer's file is never memory of a caller.
            // The peer named these bytes for the purpose, and waits for word of the end
            // before it uses them otherwise.
            unsafe { copier.copy(part.ptr, to, part.len) };
            Ok(())
        })
    }

    /// Reads `len` bytes of process `pid`, from byte `from` of `remote`, to byte `at` of this.
    /// Returns the number that came, at least one.
    ///
    /// # Errors
    /// `process_vm_readv(2)`'s; `EFAULT` also if nothing came.
    pub(crate) fn get(
        &self,
        at: u64,
        pid: u32,
        (remote, from): (&Remote, u64),
        len: u64,
    ) -> io::Result<u64> {
        let local = self.range(at, len);
        let len = local.iter().map(|part| part.len as u64).sum();
        let remote = remote.range(from, len);
        // SAFETY: writable by the invariant.
        moved(unsafe { read_remote(pid, &local, &remote) })
    }

    /// Writes `len` bytes of this from `at` into process `pid`, to byte `to` of `remote`. Returns
    /// the number that went, at least one.
    ///
    /// # Errors
    /// `process_vm_writev(2)`'s; `EFAULT` also if nothing went.
    pub(crate) fn put(
        &self,
        at: u64,
        pid: u32,
        (remote, to): (&Remote, u64),
        len: u64,
    ) -> io::Result<u64> {
        let local = self.range(at, len);
        let len = local.iter().map(|part| part.len as u64).sum();
        let remote = remote.range(to, len);
        // SAFETY: readable by the invariant. The bytes written are memory that the peer itself
        // named for the purpose; the peer's process was seen alive just before.
        moved(unsafe { write_remote(pid, &local, &remote) })
    }
}

fn moved(result: io::Result<usize>) -> io::Result<u64> {
    match result? {
        0 => Err(io::Error::from_raw_os_error(rustix::io::Errno::FAULT.raw_os_error())),
        bytes => Ok(bytes as u64),
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
