#![allow(unsafe_code)]
// Invariant: memory that is exposed or changed is the test's own, and raw pointers alone reach it.
//! Memory that peers may write, as its owner has it: reached by raw pointers alone.

use std::{
    cell::UnsafeCell,
    ffi::c_void,
    fs::File,
    io,
    os::fd::{AsRawFd, RawFd},
    ptr,
};

use pinfold::SharedBuf;
use pinfold_tests::stamp;

pub const PAGE: usize = 4096;

/// Bytes that any process may write at any time.
#[repr(C, align(64))]
pub struct Cells<const N: usize>(UnsafeCell<[u8; N]>);

// SAFETY: reached by raw pointers alone, in tests that say which thread is at it when.
unsafe impl<const N: usize> Sync for Cells<N> {}

impl<const N: usize> Cells<N> {
    pub const fn new() -> Cells<N> {
        Cells(UnsafeCell::new([0; N]))
    }

    pub fn area(&self) -> Area {
        Area { at: self.0.get().cast(), len: N }
    }
}

/// A range of memory.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    pub at: *mut u8,
    pub len: usize,
}

// SAFETY: an address and a length; its user says which thread is at it when.
unsafe impl Send for Area {}
// SAFETY: as for `Send`.
unsafe impl Sync for Area {}

impl Area {
    /// A buffer of an arena, for which raw pointers will do as long as one side alone is at it.
    pub fn of(buf: &SharedBuf) -> Area {
        let addresses = buf.addresses();
        Area { at: ptr::with_exposed_provenance_mut(addresses.start), len: addresses.len() }
    }

    pub fn address(self) -> usize {
        self.at.expose_provenance()
    }

    /// Fills it with the contents of `seed`.
    pub fn fill(self, seed: u64) {
        let bytes = stamp::bytes(self.len, seed);
        // SAFETY: memory of so many bytes that only raw pointers reach.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.at, self.len) };
    }

    pub fn to_vec(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: as in `fill`.
        unsafe { ptr::copy_nonoverlapping(self.at, bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// Checks that it has the contents of `seed`.
    pub fn check(self, seed: u64) {
        stamp::check(&self.to_vec(), seed);
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Maps memory: anywhere, or in place of the memory at `at`.
pub fn map(at: Option<Area>, len: usize, kind: i32, file: Option<RawFd>) -> Area {
    let (hint, fixed) = match at {
        Some(area) => (area.at.cast::<c_void>(), libc::MAP_FIXED),
        None => (ptr::null_mut(), 0),
    };
    let kind = kind | fixed | if file.is_some() { 0 } else { libc::MAP_ANONYMOUS };
    // SAFETY: the replaced memory is the test's own, and reached by raw pointers alone.
    let at = unsafe { libc::mmap(hint, len, READ_WRITE, kind, file.unwrap_or(-1), 0) };
    assert!(at != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    Area { at: at.cast(), len }
}

/// Maps private memory at an address, or elsewhere if the address is taken.
pub fn map_at_best(at: *mut u8, len: usize) -> Area {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: replaces nothing.
    let at = unsafe { libc::mmap(at.cast(), len, READ_WRITE, kind, -1, 0) };
    assert!(at != libc::MAP_FAILED, "mmap: {}", io::Error::last_os_error());
    Area { at: at.cast(), len }
}

pub fn unmap(area: Area) {
    // SAFETY: as in `map`.
    assert_eq!(unsafe { libc::munmap(area.at.cast(), area.len) }, 0);
}

/// Moves one area's memory to the address of another.
pub fn move_over(from: Area, to: Area) {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: as in `map`.
    let at = unsafe { libc::mremap(from.at.cast(), from.len, to.len, flags, to.at) };
    assert_eq!(at, to.at.cast(), "mremap: {}", io::Error::last_os_error());
}

pub fn advise(area: Area, advice: i32) {
    // SAFETY: as in `map`.
    assert_eq!(unsafe { libc::madvise(area.at.cast(), area.len, advice) }, 0);
}

pub fn protect(area: Area, protection: i32) {
    // SAFETY: as in `map`.
    assert_eq!(unsafe { libc::mprotect(area.at.cast(), area.len, protection) }, 0);
}

/// A file of so many bytes, filled with the contents of `seed`.
pub fn file(len: usize, seed: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &file, &stamp::bytes(len, seed)).unwrap();
    file
}

pub fn fd(file: &File) -> Option<RawFd> {
    Some(file.as_raw_fd())
}
