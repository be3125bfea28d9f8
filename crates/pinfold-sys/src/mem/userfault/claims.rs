//! Memory that some userfaultfd has: a page of it may come only when a program says so.

use std::ops::Range;

use rustix::io::Errno;

use super::{abi::Fd, error::Error, open};

/// Asks about memory of this process. Watches none.
///
/// The kernel looks which userfaultfd a page belongs to before it looks at the request: for a page
/// of a file's that is there already (`UFFDIO_CONTINUE`). Of private memory there never is one, so
/// nothing is done, and only the two reasons for that differ.
#[derive(Debug)]
pub struct Claims(Fd);

impl Claims {
    /// Opens a userfaultfd. Some 10 µs.
    ///
    /// # Errors
    /// The errors of [`Watch::new`](super::Watch::new); [`Reason::Absent`](super::Reason::Absent):
    /// there are none, so none has any memory.
    pub fn open() -> Result<Claims, Error> {
        open::asking().map(Claims)
    }

    /// Returns whether a userfaultfd, of any owner and for any use, has these whole pages of one
    /// private mapping. Unknown counts as had: that is so before Linux 5.13. Addresses of two
    /// mappings count as free. One system call, some 0.2 µs.
    pub fn has(&self, pages: Range<usize>) -> bool {
        self.0.resume(pages) != Err(Errno::NOENT)
    }
}
