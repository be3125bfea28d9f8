//! Noticing that this process is a child made by `fork(2)`.
#![allow(unsafe_code)]
// Invariant: a `ForkMark` owns one private page. The kernel zeroes it in every child
// (`MADV_WIPEONFORK`), where it was made it holds `HERE`, and nothing writes it after it was
// made; it is unmapped once, on drop.

use std::{
    io, process,
    ptr::{self, NonNull},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    io::Errno,
    mm::{self, Advice, MapFlags, ProtFlags},
    param::page_size,
};

use crate::mem::advice;

/// Marks the process that made a thing, so that its children can tell that they did not make it.
/// One page.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<AtomicU64>,
    /// Set where the kernel cannot wipe pages: the process id to compare with instead.
    made_by: Option<u32>,
}

const HERE: u64 = 1;

/// The uncommon case, kept apart so that the common one needs no register saved.
#[cold]
#[inline(never)]
fn is_not(pid: u32) -> bool {
    pid != process::id()
}

// SAFETY: the page belongs to the address space, not to a thread, and is reached atomically.
unsafe impl Send for ForkMark {}
// SAFETY: as for `Send`.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Marks this process. See `MADV_WIPEONFORK` in `madvise(2)`; kernels before 4.14 lack it,
    /// and there, and where advice is agreed to and not [followed](advice), each look costs a
    /// `getpid(2)`.
    ///
    /// # Errors
    /// `ENOMEM` if no page can be mapped.
    pub fn new() -> io::Result<ForkMark> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is asked for, so no existing mapping can be replaced.
        let at =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), page_size(), prot, MapFlags::PRIVATE) }?;
        let page = NonNull::new(at.cast()).ok_or(Errno::NOMEM)?;
        let mut mark = ForkMark { page, made_by: None };
        // SAFETY: the page was mapped above and is nobody else's.
        let wiped = unsafe { mm::madvise(at, page_size(), Advice::LinuxWipeOnFork) };
        if wiped.is_err() || !advice::is_followed() {
            mark.made_by = Some(process::id());
        }
        mark.word().store(HERE, Ordering::Relaxed);
        Ok(mark)
    }

    /// Returns whether this process is a descendant of the one that made the mark. One load.
    #[inline]
    pub fn is_child(&self) -> bool {
        match self.made_by {
            None => self.word().load(Ordering::Relaxed) != HERE,
            Some(pid) => is_not(pid),
        }
    }

    #[inline]
    fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped while `self` lives, aligned, and only reached atomically;
        // zeroing it in a child happens before the child runs.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the page is ours alone and `word`'s borrows have ended. A child drops its own
        // copy of the mapping.
        let done = unsafe { mm::munmap(self.page.as_ptr().cast(), page_size()) };
        debug_assert!(done.is_ok(), "munmap: {done:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `look` in a forked child; returns its answer there.
    fn in_child(look: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only loads a word, asks for its id and exits, all of which is
        // allowed after a fork of a process with threads.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(if look() { 1 } else { 0 }),
                -1 => panic!("fork: {}", io::Error::last_os_error()),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    assert!(libc::WIFEXITED(status));
                    libc::WEXITSTATUS(status) == 1
                }
            }
        }
    }

    #[test]
    fn a_child_knows() {
        let mark = ForkMark::new().unwrap();
        assert!(!mark.is_child());
        assert!(in_child(|| mark.is_child()));
        assert!(!mark.is_child());
    }

    #[test]
    fn a_child_knows_without_the_kernel() {
        let mut mark = ForkMark::new().unwrap();
        mark.made_by = Some(process::id());
        assert!(!mark.is_child());
        assert!(in_child(|| mark.is_child()));
    }
}
