#![allow(unsafe_code)]
//! Copies that the library makes for one purpose: a handler and the site that learns about them.
//!
//! **Invariant.** None but the handler's: exactly the caller's bytes are copied.

use std::sync::Arc;

use super::{
    Algorithm, Done, Handler, Hints, InForce, Reader, Site, Tally, plan::TRY_MIN,
    planned::copy_short, table::Copies,
};

/// Shorter copies go in line, by the C library: to choose would take a good part of their time.
pub(crate) const BULK: usize = TRY_MIN;

/// A maker of copies, in the engine or outside of it.
pub(crate) trait CopyBytes {
    /// Copies `len` bytes.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize);
}

impl CopyBytes for Copier {
    #[inline]
    unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        unsafe { Copier::copy(self, from, to, len) }
    }
}

/// The place where copies of one kind are made.
pub(crate) struct Copier {
    handler: Handler<InForce>,
    site: Site,
    hints: Hints,
    kind: Copies,
}

impl Copier {
    /// One whose copies `reader` reads next; they count in `tally`.
    pub(crate) fn new(reader: Reader, tally: &Arc<Tally>) -> Copier {
        let handler = Handler::counting(InForce, Arc::clone(tally));
        let hints = Hints { reader, ..Hints::default() };
        let kind = Copies::of(reader, hints.source, hints.destination);
        Copier { handler, site: Site::new(), hints, kind }
    }

    /// The same, but [`Copier::learn`] tells it the time that the reader needed.
    pub(crate) fn hearing(reader: Reader, tally: &Arc<Tally>) -> Copier {
        let mut copier = Copier::new(reader, tally);
        copier.hints.hears_reader = true;
        copier
    }

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap.
    #[inline]
    pub(crate) unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        if let Some(done) = unsafe { self.copy_timed(from, to, len) } {
            self.learn(&done, 0);
        }
    }

    /// The same. Returns the times to learn from, if any.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    pub(crate) unsafe fn copy_timed(
        &mut self,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Option<Done> {
        if len < BULK {
            // SAFETY: as the caller promised.
            unsafe { self.copy_short(from, to, len) };
            return None;
        }
        // SAFETY: as the caller promised.
        let done = unsafe { self.handler.copy(&mut self.site, self.hints, from, to, len) };
        done.ns.is_some().then_some(done)
    }

    /// Copies `len` bytes without learning from it.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    pub(crate) unsafe fn copy_untimed(&mut self, from: *const u8, to: *mut u8, len: usize) {
        if len < BULK {
            // SAFETY: as the caller promised.
            return unsafe { self.copy_short(from, to, len) };
        }
        // SAFETY: as the caller promised.
        unsafe { self.handler.copy_untimed(&self.site, self.hints, from, to, len) };
    }

    /// Copies fewer than [`BULK`] bytes.
    ///
    /// # Safety
    /// As for [`Copier::copy`].
    #[inline]
    unsafe fn copy_short(&self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: as the caller promised.
        unsafe {
            if self.hints.reader.is_other_core() {
                copy_short(self.kind, from, to, len);
            } else {
                std::ptr::copy_nonoverlapping(from, to, len);
            }
        }
    }

    /// The algorithm that copies of `len` bytes use at present.
    pub(crate) fn using(&self, len: usize) -> Option<Algorithm> {
        self.site.using(len)
    }

    /// Returns whether copies of `len` bytes try no other algorithm just now than the one in use.
    pub(crate) fn is_settled(&self, len: usize) -> bool {
        self.site.is_settled(len)
    }

    /// A timed copy took its reader so long.
    pub(crate) fn learn(&mut self, done: &Done, reader_ns: u64) {
        done.learn(&mut self.site, reader_ns);
    }
}
