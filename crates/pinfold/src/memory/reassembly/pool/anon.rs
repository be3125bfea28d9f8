#![allow(unsafe_code)]
//! Private memory whose pages can be moved away, and back.
//!
//! **Invariant.** The memory of an [`AnonPages`] is its own mapping, registered with its mover, if
//! it has one, for as long as the mapping lives. The scratch block holds zeros, or nothing,
//! whenever its lock is free.

use std::{
    io,
    ops::Range,
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use pinfold_sys::mem::userfault::{self, Mover};

use super::{
    super::{HUGE_BYTES, PAGE_BYTES},
    Pages,
    pages::Unshared,
};

/// Private anonymous memory, absent from children of `fork(2)`. With a mover its pages can be moved
/// into that mover's windows, without being copied, and come back.
///
/// Whole blocks become huge pages at any setting of the system, short of a process that has
/// switched them off (`PR_SET_THP_DISABLE`).
#[derive(Debug)]
pub struct AnonPages {
    memory: userfault::Pages,
    pages: u32,
    mover: OnceLock<Arc<Mover>>,
    /// A block where huge pages are made that are then moved here.
    scratch: Mutex<Option<userfault::Pages>>,
}

impl AnonPages {
    /// `pages` pages, at least 1. None takes memory yet.
    ///
    /// # Errors
    /// The error of `mmap(2)`, or, with a mover, of registering: another mover will not take it.
    pub fn new(pages: u32, mover: Option<Arc<Mover>>) -> io::Result<AnonPages> {
        let memory = userfault::Pages::aligned(pages as usize * PAGE_BYTES)?;
        let (scratch, none) = (Mutex::new(None), OnceLock::new());
        let pages = AnonPages { memory, pages, mover: none, scratch };
        mover.map_or(Ok(()), |mover| pages.adopt(&mover))?;
        Ok(pages)
    }

    /// Has its pages be moved by a mover from now on, unless they have one already. Their contents
    /// stay, and other threads may be using them meanwhile.
    ///
    /// # Errors
    /// The error of registering: another mover, or another user of a userfaultfd, has some of the
    /// memory.
    pub fn adopt(&self, mover: &Arc<Mover>) -> Result<(), userfault::Error> {
        if self.is_movable() {
            return Ok(());
        }
        // Pages can be moved back only to where the mover knows the memory.
        // SAFETY: the mapping is ours. Pages are moved here by holders of pages of its pool alone,
        // which keeps it mapped.
        unsafe { mover.register(self.memory.addr()..self.memory.addr() + self.memory.len()) }?;
        // Of two that come at once, one has registered it.
        let _ = self.mover.set(Arc::clone(mover));
        Ok(())
    }

    /// Has children of `fork(2)` get the memory as it is, after all. While one lives that has it,
    /// pages that were not written since are not moved: they are copied instead.
    ///
    /// # Errors
    /// The error of `madvise(2)`.
    pub fn inherit(&self) -> io::Result<()> {
        self.memory.inherit()
    }

    /// Makes a huge page of a block that no thread has touched yet: elsewhere, since here the
    /// kernel collapses only blocks with all of their small pages there.
    fn bring(&self, mover: &Mover, block: Range<usize>) -> io::Result<()> {
        if self.memory.resident(block.clone())? > 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut scratch = self.scratch.lock();
        let scratch = match &mut *scratch {
            Some(scratch) => scratch,
            none => none.insert(userfault::Pages::aligned(HUGE_BYTES)?),
        };
        scratch.populate(0..PAGE_BYTES)?;
        let from = scratch.addr()..scratch.addr() + HUGE_BYTES;
        scratch.collapse(0..HUGE_BYTES)?;
        let to = self.memory.addr() + block.start;
        // SAFETY: no code has a reference to the scratch block, which is zero, nor uses the other
        // one before it is committed.
        let moved = unsafe { mover.move_pages(to, from, false) }?;
        match moved.stop {
            None => Ok(()),
            // Some of it may have come, as small pages. The rest is still zero.
            Some(_) => Err(io::ErrorKind::Other.into()),
        }
    }
}

// SAFETY: the mapping is that long and aligned and lives as long as the value; it is zero at first,
// and so are blocks that are brought.
unsafe impl Pages for AnonPages {
    fn base(&self) -> NonNull<u8> {
        self.memory.as_non_null()
    }

    fn pages(&self) -> u32 {
        self.pages
    }

    fn commit(&self, pages: Range<u32>, huge: bool) -> io::Result<bool> {
        let bytes = pages.start as usize * PAGE_BYTES..pages.end as usize * PAGE_BYTES;
        if !huge {
            self.memory.populate(bytes)?;
            return Ok(false);
        }
        let (mut all, mover) = (true, self.mover.get().filter(|mover| mover.may_ask()));
        for start in bytes.step_by(HUGE_BYTES) {
            let block = start..start + HUGE_BYTES;
            let brought = mover.map(|mover| self.bring(mover, block.clone()));
            // Costs little where it is a huge page by now.
            if !matches!(brought, Some(Ok(()))) {
                let populated = match mover {
                    Some(_) => block.clone(),
                    None => start..start + PAGE_BYTES,
                };
                self.memory.populate(populated)?;
            }
            all &= self.memory.collapse(block.clone()).is_ok();
            self.memory.populate(block)?;
        }
        Ok(all)
    }

    fn is_movable(&self) -> bool {
        self.mover.get().is_some()
    }
}

// SAFETY: the mapping is private.
unsafe impl Unshared for AnonPages {}
