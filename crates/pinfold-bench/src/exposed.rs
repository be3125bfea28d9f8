//! Memory of this process that the other one of the pair reads through a mapping.
#![allow(unsafe_code)]
// Invariant: an `Exposed` alone writes the bytes it gives out. Its file is sealed against writers
// before the descriptor leaves this process (kernels from 5.1 on; before that the other side, which
// runs this same program, maps it to be read). So references to its bytes are sound, as for any
// memory that others only read. A `Window` makes no reference to what it maps: it copies out.

use std::{
    io,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, OwnedFd},
};

use pinfold_sys::mem::{
    mapping::{ReadOnlyMapping, SharedMapping},
    memfd,
};

use super::fail::{Fail, Result};

/// A huge page, bytes.
const HUGE: usize = 2 << 20;

/// Bytes that the other process can read.
pub(crate) struct Exposed {
    map: SharedMapping,
    /// Bytes of those that have memory; a multiple of [`HUGE`] or all.
    ready: usize,
}

impl Exposed {
    /// Address space for `len` bytes, a multiple of [`HUGE`], and the descriptor to pass on.
    pub(crate) fn create(name: &str, len: usize) -> Result<(Exposed, OwnedFd)> {
        let file = memfd::create_fixed(name, len).map_err(Fail::os("memfd_create"))?;
        let map = SharedMapping::map_aligned(file.as_fd(), len, HUGE).map_err(Fail::os("mmap"))?;
        memfd::seal(file.as_fd(), true).map_err(Fail::os("fcntl"))?;
        Ok((Exposed { map, ready: 0 }, file))
    }

    /// Provides memory for the first `len` bytes, in huge pages where there are any.
    pub(crate) fn grow(&mut self, len: usize) -> io::Result<()> {
        if len > self.map.len() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let end = len.next_multiple_of(HUGE).min(self.map.len());
        if end > self.ready {
            self.map.populate(self.ready..end)?;
            // Small pages do as well.
            let _ = self.map.collapse(self.ready..end);
            self.ready = end;
        }
        Ok(())
    }
}

impl Deref for Exposed {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `self` lives, initialised by the kernel, written by nothing
        // else: see the invariant.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr(), self.ready) }
    }
}

impl DerefMut for Exposed {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.map.as_ptr(), self.ready) }
    }
}

/// The other process's [`Exposed`], as seen from here.
pub(crate) struct Window {
    map: ReadOnlyMapping,
    /// Bytes of those that were mapped in, from the first.
    ready: usize,
}

impl Window {
    /// Maps the memory that the other side made.
    pub(crate) fn open(file: &OwnedFd, len: usize) -> Result<Window> {
        memfd::check_sealed(file.as_fd(), len)
            .map_err(|why| Fail::Protocol(format!("shared memory: {why}")))?;
        let map = ReadOnlyMapping::map(file.as_fd(), len, HUGE).map_err(Fail::os("mmap"))?;
        Ok(Window { map, ready: 0 })
    }

    /// Copies the bytes at `offset` into all of `into`.
    #[inline]
    pub(crate) fn copy_out(&mut self, offset: usize, into: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(into.len()).filter(|&end| end <= self.map.len());
        let end = end.ok_or_else(|| Fail::Protocol(format!("an offset of {offset}")))?;
        if end > self.ready {
            self.map.populate(self.ready..end).map_err(Fail::os("madvise"))?;
            self.ready = end;
        }
        // SAFETY: within the mapping, which lives as long as `self`; `into` is this process's own
        // memory and no part of it; no reference to the source is made.
        unsafe {
            let from = self.map.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_here_is_read_there() {
        let (mut here, file) = Exposed::create("pinfold-test", 2 * HUGE).unwrap();
        assert!(here.is_empty());
        here.grow(5000).unwrap();
        assert_eq!(here.len(), HUGE);
        here[4999] = 7;
        let mut there = Window::open(&file, 2 * HUGE).unwrap();
        let mut out = [1; 2];
        there.copy_out(4998, &mut out).unwrap();
        assert_eq!(out, [0, 7]);
        here.grow(HUGE + 1).unwrap();
        here[HUGE] = 9;
        there.copy_out(HUGE, &mut out).unwrap();
        assert_eq!(out, [9, 0]);
        assert!(here.grow(2 * HUGE + 1).is_err());
        assert!(there.copy_out(2 * HUGE - 1, &mut out).is_err());
        assert!(there.copy_out(usize::MAX, &mut out).is_err());
        assert!(SharedMapping::map(file.as_fd(), HUGE).is_err(), "it can be mapped for writing");
    }
}
