#![allow(unsafe_code)]
//! Pages that are moved within the address space by mremap(2), beside other threads, which have to
//! drop their translations.
//!
//! **Invariant.** Both ranges of addresses are this module's own mappings, and nobody else uses
//! them.

use std::{
    io,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use pinfold_sys::cpu::clock::now_ns;

use super::{
    copying,
    memory::{Block, PAGE_BYTES, check},
    timing::median,
};

/// The times of a fragment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moved {
    /// Moving its pages, ns.
    pub move_ns: f64,
    /// Copying them from memory that is not cached, or that is as it comes, ns.
    pub copy_ns: f64,
}

/// Reserved addresses.
struct Range {
    start: NonNull<u8>,
    bytes: usize,
}

impl Range {
    /// Addresses of pages of zeros, or, if not `usable`, of nothing.
    fn new(bytes: usize, usable: bool) -> io::Result<Range> {
        let rights = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel picks.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, flags, -1, 0) };
        match NonNull::new(start.cast::<u8>()) {
            Some(first) if start != libc::MAP_FAILED => Ok(Range { start: first, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Moves all pages of `from` here, over what is here. `from` keeps its addresses, with pages of
    /// zeros, so that nobody else gets them.
    fn take(&self, from: &Range) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        let (old, new) = (from.start.as_ptr().cast(), self.start.as_ptr().cast::<libc::c_void>());
        // SAFETY: both ranges are this module's, as long, and do not overlap; nothing refers to
        // the bytes of either.
        let moved = unsafe { libc::mremap(old, from.bytes, self.bytes, flags, new) };
        if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Writes to each page.
    fn touch(&self, value: u8) {
        for at in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: within the range, whose pages are here now, and can be written.
            unsafe { self.start.as_ptr().add(at).write_volatile(value) };
        }
    }

    /// Returns whether each page has this value first.
    fn has(&self, value: u8) -> bool {
        // SAFETY: as in `touch`.
        let read = |at: usize| unsafe { self.start.as_ptr().add(at).read_volatile() };
        (0..self.bytes).step_by(PAGE_BYTES).all(|at| read(at) == value)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        // SAFETY: the range is this module's, and keeps its addresses to the end.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Moves a fragment of so many pages to and fro, `turns` times, and copies it as often, beside
/// `others` threads of this process that run all the while.
///
/// # Errors
/// Pages cannot be mapped or moved, or they have come out wrong; in words.
pub fn moved(pages: usize, others: usize, turns: usize) -> Result<Moved, String> {
    let bytes = pages.max(1) * PAGE_BYTES;
    let (is_over, running) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                running.fetch_add(1, Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        while running.load(Ordering::Relaxed) < others as u64 {
            thread::yield_now();
        }
        let done = both(bytes, turns);
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

fn both(bytes: usize, turns: usize) -> Result<Moved, String> {
    let words = |why: io::Error| format!("pages cannot be moved here: {why}");
    let mut moves = Vec::with_capacity(turns);
    {
        let (home, away) =
            (Range::new(bytes, true).map_err(words)?, Range::new(bytes, false).map_err(words)?);
        for turn in 0..turns.max(1) {
            let value = turn as u8;
            let (from, to) = if turn % 2 == 0 { (&home, &away) } else { (&away, &home) };
            from.touch(value);
            let before = now_ns();
            to.take(from).map_err(words)?;
            moves.push(now_ns().saturating_sub(before) as f64);
            if !to.has(value) {
                return Err("a page that was moved has other bytes".into());
            }
        }
    }
    let from = Block::new(bytes, 3);
    let mut to = Block::new(bytes, 4);
    let mut copies = Vec::with_capacity(turns);
    for _ in 0..turns.max(1) {
        let before = now_ns();
        copying::copy(copying::uncached(), from.get(), to.get_mut());
        copies.push(now_ns().saturating_sub(before) as f64);
    }
    check(to.get(), 0, 3)?;
    Ok(Moved { move_ns: median(&mut moves), copy_ns: median(&mut copies) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_out_as_they_went_in() {
        for (pages, others) in [(1, 0), (3, 1), (64, 0)] {
            let found = moved(pages, others, 5).unwrap();
            assert!(found.move_ns > 0.0 && found.copy_ns > 0.0, "{found:?}");
        }
    }
}
