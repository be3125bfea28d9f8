#![allow(unsafe_code)]
//! Memory for a pool.
//!
//! **Invariant.** The memory that a [`Pages`] here hands out by [`base`](Pages::base) is its own,
//! aligned to 2 MiB, readable and writable over its whole length, and goes away with it.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    fmt, io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
};

use pinfold_sys::mem::{mapping::SharedMapping, memfd};

use super::super::{HUGE_BYTES, PAGE_BYTES};

/// Memory divided into pages of 4 KiB, at a multiple of 2 MiB.
///
/// # Safety
/// From [`base`](Pages::base) on there are [`pages`](Pages::pages) pages, both the same at every
/// call. Those that were committed can be read and written until the value is dropped, read as zero
/// until they are written to through these addresses, and no other code in this process writes to
/// them or has a reference to them.
pub unsafe trait Pages: Send + Sync {
    /// The first byte; a multiple of 2 MiB.
    fn base(&self) -> NonNull<u8>;

    /// Pages there are.
    fn pages(&self) -> u32;

    /// Has the system set memory aside for some pages, so that using them cannot fail. With `huge`
    /// they are whole aligned blocks of 512, worth a try at huge pages. Returns whether they are
    /// huge pages now. Their contents stay.
    ///
    /// # Errors
    /// The kernel's error; some of the pages may have memory all the same.
    fn commit(&self, pages: Range<u32>, huge: bool) -> io::Result<bool>;

    /// Returns whether it is private anonymous memory whose pages may be moved away.
    fn is_movable(&self) -> bool {
        false
    }

    /// The file that the memory is a mapping of from its beginning, if it is.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Memory that no other process can write to.
///
/// # Safety
/// From when the value was made, no other process writes to it.
pub unsafe trait Unshared: Pages {}

// SAFETY: the heap is private.
unsafe impl Unshared for HeapPages {}

/// Zeroed memory from the heap: all of it is there at once. For tests, and for small pools.
pub struct HeapPages {
    base: NonNull<u8>,
    layout: Layout,
    pages: u32,
}

// SAFETY: the memory belongs to the value and no thread; nothing here reads or writes it.
unsafe impl Send for HeapPages {}
// SAFETY: as above.
unsafe impl Sync for HeapPages {}

impl HeapPages {
    /// `pages` pages, at least 1.
    ///
    /// # Errors
    /// [`io::ErrorKind::OutOfMemory`]; [`io::ErrorKind::InvalidInput`] for none.
    pub fn new(pages: u32) -> io::Result<HeapPages> {
        let layout = Layout::from_size_align(pages as usize * PAGE_BYTES, HUGE_BYTES)
            .ok()
            .filter(|layout| layout.size() > 0)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) });
        let base = base.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(HeapPages { base, layout, pages })
    }
}

impl Drop for HeapPages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl fmt::Debug for HeapPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapPages").field("pages", &self.pages).finish_non_exhaustive()
    }
}

// SAFETY: the allocation is as long and aligned as its layout says, zeroed, and this value's alone.
unsafe impl Pages for HeapPages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn commit(&self, _: Range<u32>, _: bool) -> io::Result<bool> {
        Ok(false)
    }
}

/// A memfd of fixed size, and this process's mapping of it; absent from children of `fork(2)`.
///
/// Only processes that get the descriptor can see it; see the [module](super) for those that may.
#[derive(Debug)]
pub struct MemfdPages {
    mapping: SharedMapping,
    base: NonNull<u8>,
    file: OwnedFd,
    pages: u32,
}

// SAFETY: the mapping belongs to the value and no thread; `base` is only an address in it.
unsafe impl Send for MemfdPages {}
// SAFETY: as above.
unsafe impl Sync for MemfdPages {}

impl MemfdPages {
    /// `pages` pages, at least 1. None takes memory yet.
    ///
    /// # Errors
    /// The error of `memfd_create(2)` or `mmap(2)`.
    pub fn new(pages: u32) -> io::Result<MemfdPages> {
        let len = pages as usize * PAGE_BYTES;
        let file = memfd::create_fixed("pinfold-pool", len)?;
        let mapping = SharedMapping::map_aligned(file.as_fd(), len, HUGE_BYTES)?;
        let base = NonNull::new(mapping.as_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(MemfdPages { mapping, base, file, pages })
    }
}

// SAFETY: the mapping is that long and aligned and lives as long as the value; a new memfd reads as
// zero.
unsafe impl Pages for MemfdPages {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn commit(&self, pages: Range<u32>, huge: bool) -> io::Result<bool> {
        let bytes = pages.start as usize * PAGE_BYTES..pages.end as usize * PAGE_BYTES;
        let mut collapsed = false;
        if huge {
            // A huge page grows out of any page, and is cleared far faster than 512 small ones.
            for block in bytes.clone().step_by(HUGE_BYTES) {
                self.mapping.populate_file(self.file.as_fd(), block..block + 1)?;
            }
            collapsed = self.mapping.collapse(bytes.clone()).is_ok();
        }
        self.mapping.populate_file(self.file.as_fd(), bytes)?;
        Ok(collapsed)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

/// A memfd that other processes can at most read: sealed against all writers but the mapping here.
#[derive(Debug)]
pub struct SealedPages(MemfdPages);

impl SealedPages {
    /// `pages` pages, at least 1. None takes memory yet.
    ///
    /// # Errors
    /// As for [`MemfdPages::new`]; [`io::ErrorKind::Unsupported`] where the kernel has no such seal
    /// (before Linux 5.1).
    pub fn new(pages: u32) -> io::Result<SealedPages> {
        let memory = MemfdPages::new(pages)?;
        // The mapping there is stays writable.
        memfd::seal(memory.file.as_fd(), true)?;
        if !memfd::refuses_writers(memory.file.as_fd()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(SealedPages(memory))
    }
}

// SAFETY: as for the memory inside.
unsafe impl Pages for SealedPages {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn pages(&self) -> u32 {
        self.0.pages()
    }

    fn commit(&self, pages: Range<u32>, huge: bool) -> io::Result<bool> {
        self.0.commit(pages, huge)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.0.file()
    }
}

// SAFETY: the seal stands for good, and was put on before any other process had the descriptor.
unsafe impl Unshared for SealedPages {}
