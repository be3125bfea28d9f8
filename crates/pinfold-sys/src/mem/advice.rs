#![allow(unsafe_code)]
//! Tells whether advice about memory is followed at all.
//!
//! Emulators of single programs (qemu's) and sandboxes may take any advice, say that all is well,
//! and do nothing. A page that should be zero in a child is not zero then, and memory that should
//! be there is not. What takes an advice that no kernel has follows none that it should.
//!
//! **Invariant.** The one call is about a page of this function's own, and changes no contents.

use std::{
    ptr,
    sync::atomic::{AtomicU8, Ordering},
};

use rustix::param::page_size;

/// No kernel has it: a kernel answers `EINVAL`.
const UNKNOWN: libc::c_int = 0x7fff_fffe;

/// Returns whether advice (`madvise(2)`) is looked at before it is agreed to. Three system calls
/// the first time, a load after that.
pub fn is_followed() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let is_followed = !takes_anything();
            KNOWN.store(1 + u8::from(is_followed), Ordering::Relaxed);
            is_followed
        }
        known => known == 2,
    }
}

fn takes_anything() -> bool {
    let (prot, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: no address is asked for, so nothing is replaced; the page is unmapped once, and
    // nobody else knows of it.
    unsafe {
        let at = libc::mmap(ptr::null_mut(), page_size(), prot, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return false;
        }
        let taken = libc::madvise(at, page_size(), UNKNOWN) == 0;
        libc::munmap(at, page_size());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer stays, and where advice is followed a page goes when it is to go.
    #[test]
    fn what_is_said_agrees_with_what_is_done() {
        let said = is_followed();
        assert_eq!(is_followed(), said);
        let mut pages = crate::mem::userfault::Pages::new(page_size(), false).unwrap();
        pages.as_mut_slice()[0] = 7;
        let at = ptr::with_exposed_provenance_mut::<libc::c_void>(pages.addr());
        // SAFETY: the page is the test's own.
        let done = unsafe { libc::madvise(at, page_size(), libc::MADV_DONTNEED) };
        assert!(done != 0 || !said || pages.as_mut_slice()[0] == 0);
    }
}
