//! Pins by `mlock(2)`.
#![allow(unsafe_code)]
// Invariant: the pages in `counts` are those that this owner locked and has to unlock. Locking and
// unlocking changes no contents, so any address may be tried.

use std::{
    ops::Range,
    ptr,
    sync::{Mutex, PoisonError},
};

use rustix::{io::Errno, mm, param::page_size};

use super::{Cost, Error, Pin, Reason, Slot, counts::Counts, next_owner};
use crate::fork::ForkMark;

/// Keeps pages in memory by locking them. Locks of this owner are counted; locks that the program
/// makes itself on the same pages, and a second owner's, end when the last pin of the page does.
#[derive(Debug)]
pub struct Locked {
    counts: Mutex<Counts>,
    owner: u32,
    mark: ForkMark,
}

const LOCK: &str = "mlock(2)";

impl Locked {
    /// Locks nothing yet.
    ///
    /// # Errors
    /// [`Reason::Exhausted`].
    pub fn new() -> Result<Locked, Error> {
        let mark = ForkMark::new().map_err(|_| Error::new("mmap", Errno::NOMEM))?;
        Ok(Locked { counts: Mutex::default(), owner: next_owner(), mark })
    }

    pub(super) fn here(&self) -> Result<(), Error> {
        if self.mark.is_child() {
            return Err(Error::new(LOCK, Errno::SRCH).because(Reason::Child));
        }
        Ok(())
    }
}

impl Pin for Locked {
    fn pin(&self, range: Range<usize>) -> Result<Slot, Error> {
        self.here()?;
        let fail = |errno| Error::new(LOCK, errno).over(&range);
        let pages = pages(&range).ok_or_else(|| fail(Errno::INVAL).because(Reason::Length))?;
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = counts.add(pages.clone());
        for (done, piece) in new.iter().enumerate() {
            if let Err(errno) = lock(piece) {
                // The piece that failed may be locked in part.
                new[..=done].iter().for_each(unlock);
                counts.remove(pages);
                return Err(explain(fail(errno), piece));
            }
        }
        Ok(Slot { owner: self.owner, index: 0, range })
    }

    fn unpin(&self, slot: Slot) -> Result<(), Error> {
        self.here()?;
        if slot.owner != self.owner {
            return Err(Error::new(LOCK, Errno::INVAL).because(Reason::Stranger));
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pages) = pages(&slot.range) {
            counts.remove(pages).iter().for_each(unlock);
        }
        Ok(())
    }

    fn cost(&self) -> Cost {
        Cost { pin_ns: 550.0, page_ns: 128.0, unpin_ns: 480.0, unpin_page_ns: 95.0 }
    }

    fn room(&self) -> usize {
        usize::MAX
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // Locks are not inherited.
        if !self.mark.is_child() {
            let counts = self.counts.get_mut().unwrap_or_else(PoisonError::into_inner);
            counts.all().iter().for_each(unlock);
        }
    }
}

/// The numbers of the pages of `range`.
fn pages(range: &Range<usize>) -> Option<Range<usize>> {
    let end = range.end.checked_add(page_size() - 1)? / page_size();
    (!range.is_empty()).then_some(range.start / page_size()..end)
}

fn lock(pages: &Range<usize>) -> Result<(), Errno> {
    let at = ptr::with_exposed_provenance_mut(pages.start * page_size());
    // SAFETY: changes no contents.
    unsafe { mm::mlock(at, pages.len() * page_size()) }
}

fn unlock(pages: &Range<usize>) {
    let at = ptr::with_exposed_provenance_mut(pages.start * page_size());
    // SAFETY: changes no contents. It fails where nothing is mapped any more, and there is no lock.
    let _ = unsafe { mm::munlock(at, pages.len() * page_size()) };
}

/// `mlock` says `ENOMEM` for the limit and for unmapped memory, and `EPERM` for a limit of 0.
fn explain(error: Error, pages: &Range<usize>) -> Error {
    let at = ptr::with_exposed_provenance_mut::<libc::c_void>(pages.start * page_size());
    match error.errno() {
        Errno::NOMEM => {
            // SAFETY: flushes nothing that is not a file's; fails with ENOMEM where nothing is
            // mapped.
            let mapped = unsafe { libc::msync(at, pages.len() * page_size(), libc::MS_ASYNC) == 0 };
            if mapped { error.by_limit() } else { error.because(Reason::Unmapped) }
        }
        Errno::PERM => error.because(Reason::Memlock(0)),
        _ => error,
    }
}
