#![allow(unsafe_code)]
//! The pages that are in memory, by `mincore(2)`.
//!
//! **Invariant.** The kernel is never given room for fewer answers than it has pages to speak of.

use std::ptr;

use rustix::{io::Errno, param::page_size};

/// Pages that one call asks about.
const PAGES: usize = 1024;

/// Some pages in a row.
pub(crate) struct Part {
    /// Pages of the part.
    pages: usize,
    /// Pages of them that are in memory.
    pub(crate) there: usize,
}

/// Looks at all pages from that at `start`, a multiple of the page size, to the one that holds the
/// last of `len` bytes, part by part. Touches none. One `mincore(2)` for each part of 1,024 pages,
/// 20 to 50 ns a page.
///
/// # Errors
/// For each part: `ENOMEM` if not all of it is mapped, `EINVAL` for another `start`, `EAGAIN` if
/// the kernel has no memory for the answer just now.
pub(crate) fn parts(start: usize, len: usize) -> impl Iterator<Item = Result<Part, Errno>> {
    let most = PAGES * page_size();
    (0..len).step_by(most).map(move |from| {
        let len = (len - from).min(most);
        let mut answers = [0u8; PAGES];
        let at = ptr::with_exposed_provenance_mut(start.wrapping_add(from));
        // SAFETY: touches nothing at the address; there is a byte for each page, at most `PAGES`.
        if unsafe { libc::mincore(at, len, answers.as_mut_ptr()) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        }
        let pages = len.div_ceil(page_size());
        let there = answers[..pages].iter().filter(|&&answer| answer & 1 == 1).count();
        Ok(Part { pages, there })
    })
}

/// Returns whether all of these pages are in memory; looks no further than the first part that
/// lacks some. Else as [`parts`].
///
/// # Errors
/// As [`parts`].
pub(crate) fn all(start: usize, len: usize) -> Result<bool, Errno> {
    for part in parts(start, len) {
        let part = part?;
        if part.there < part.pages {
            return Ok(false);
        }
    }
    Ok(true)
}
