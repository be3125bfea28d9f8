//! Memory between two pages that nobody may touch: a read or write beside it dies.

use std::ptr::NonNull;

#[cfg(not(miri))]
use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    param::page_size,
};

/// Whole pages with guards on both sides. Under Miri, which watches by itself, bytes of the heap.
pub(super) struct Guarded {
    start: NonNull<u8>,
    len: usize,
}

impl Guarded {
    /// At least `len` bytes, and at least one.
    #[cfg(not(miri))]
    pub(super) fn new(len: usize) -> Guarded {
        let page = page_size();
        let len = len.next_multiple_of(page).max(page);
        let flags = MapFlags::PRIVATE;
        // SAFETY: new memory where the kernel likes it; the guards lie in it, around the rest.
        unsafe {
            let all = ProtFlags::READ | ProtFlags::WRITE;
            let guard = mmap_anonymous(std::ptr::null_mut(), len + 2 * page, all, flags).unwrap();
            let start = guard.byte_add(page);
            mprotect(guard, page, MprotectFlags::empty()).unwrap();
            mprotect(start.byte_add(len), page, MprotectFlags::empty()).unwrap();
            Guarded { start: NonNull::new(start.cast()).unwrap(), len }
        }
    }

    #[cfg(miri)]
    pub(super) fn new(len: usize) -> Guarded {
        let len = len.next_multiple_of(64);
        // SAFETY: some bytes are asked for.
        let start = unsafe { std::alloc::alloc_zeroed(Guarded::layout(len)) };
        Guarded { start: NonNull::new(start).unwrap(), len }
    }

    #[cfg(miri)]
    fn layout(len: usize) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(len, 4096).unwrap()
    }

    /// The first byte behind a guard, a multiple of 4096.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The place of the last `len` bytes before the other guard.
    pub(super) fn last(&self, len: usize) -> *mut u8 {
        assert!(len <= self.len);
        // SAFETY: within the memory.
        unsafe { self.start().add(self.len - len) }
    }

    /// All of it.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: initialised by the kernel; the tests change it only between two looks.
        unsafe { std::slice::from_raw_parts(self.start(), self.len) }
    }

    /// Sets the byte of every index to `byte` of it.
    pub(super) fn fill(&self, byte: impl Fn(usize) -> u8) {
        for at in 0..self.len {
            // SAFETY: within the memory.
            unsafe { self.start().add(at).write(byte(at)) };
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the memory is this one's, and nobody looks at it any more.
        unsafe {
            #[cfg(not(miri))]
            {
                let page = page_size();
                munmap(self.start().sub(page).cast(), self.len + 2 * page).unwrap();
            }
            #[cfg(miri)]
            std::alloc::dealloc(self.start(), Guarded::layout(self.len));
        }
    }
}
