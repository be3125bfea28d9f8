//! Moving pages to other addresses, without copying them.
#![allow(unsafe_code)]
// Invariant: pages are moved only between memory that the caller holds `&mut`, or vouches for.

use std::{
    io,
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::{io::Errno, param::page_size};

use super::{
    abi::{self, Fd},
    error::Error,
    open,
    pages::Pages,
    untold,
};
use crate::{fork::ForkMark, trial::is_unfiltered};

/// The reason why a move ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The page is pinned, or a child of `fork(2)` shares it: `EBUSY`. Copy it.
    Busy,
    /// There is no page at the source: `ENOENT`. Its bytes count as zeros.
    Hole,
    /// There is a page at the destination already, and at the source, too: `EEXIST`. Discard the
    /// former first, or copy.
    Taken,
    /// The kernel was changing something there and did not finish in several tries: `EAGAIN`.
    Changing,
    /// Memory of the wrong kind, not registered as a window, or with other rights: `EINVAL`.
    Kind,
    /// Something else; `ENOMEM` among it.
    Other(Errno),
}

/// The extent of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes that are at the destination now, from its start, whole pages.
    pub bytes: usize,
    /// The reason why not all of them are.
    pub stop: Option<Stop>,
}

/// Moves pages into windows. See `UFFDIO_MOVE` in `ioctl_userfaultfd(2)`; Linux 6.8.
///
/// The windows it makes are ordinary memory: where nothing was moved they fill with zeros when
/// touched. They take no events and make nobody wait.
#[derive(Debug)]
pub struct Mover {
    fd: Fd,
    mark: ForkMark,
    /// True if any filter on system calls that is in force lets this be asked.
    passes: AtomicBool,
}

/// Tries of a move while the kernel is busy there.
const TRIES: usize = 32;

impl Mover {
    /// Some 10 µs.
    ///
    /// # Errors
    /// [`Reason::Denied`](super::Reason::Denied) or [`Reason::Absent`](super::Reason::Absent) where
    /// there is none.
    pub fn new() -> Result<Mover, Error> {
        let mark = ForkMark::new().map_err(|error| {
            Error::new("mmap", Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
        })?;
        // If a filter is in force by now, the maker of this knows it.
        let passes = AtomicBool::new(!is_unfiltered());
        Ok(Mover { fd: open::moving()?, mark, passes })
    }

    /// Returns whether it may be asked to do anything: not if a filter on system calls has come
    /// since it was made, for that one may kill the caller. One system call.
    pub fn may_ask(&self) -> bool {
        self.passes.load(Ordering::Relaxed) || is_unfiltered()
    }

    /// Tells it that all filters let it be asked.
    pub fn let_pass(&self) {
        self.passes.store(true, Ordering::Relaxed);
    }

    /// Memory to move pages into, made as by [`Pages::new`]. Pages can be moved out of it, too.
    /// Some µs; one mapping.
    ///
    /// # Errors
    /// As there; and those of registering, as [`io::Error`] with an [`Error`] inside.
    pub fn window(&self, len: usize, huge: bool) -> io::Result<Pages> {
        let pages = Pages::new(len, huge)?;
        // SAFETY: nothing is there yet.
        unsafe { self.register(pages.addr()..pages.addr() + pages.len()) }?;
        Ok(pages)
    }

    /// Moves the pages of `from` in `source` to `at` in `window` (byte offsets, multiples of the
    /// page size), in order, until one cannot be moved. Holes are left behind in `source`, which
    /// read as zeros. Huge pages move whole where both offsets are multiples of 2 MiB.
    ///
    /// About 1 to 2.5 µs a call and 0.05 to 0.8 µs a further page, more where a huge page has to be
    /// split first; a huge page about 1.7 µs.
    ///
    /// # Errors
    /// `EINVAL` for offsets that are not pages, or outside; `ESRCH` in a child of `fork(2)`. A page
    /// that the kernel will not move is no error but [`Moved::stop`].
    pub fn fold(
        &self,
        window: &mut Pages,
        at: usize,
        source: &mut Pages,
        from: Range<usize>,
    ) -> io::Result<Moved> {
        let to = window.within(&(at..at.saturating_add(from.len())))?;
        let from = source.within(&from)?;
        // SAFETY: both are borrowed as `&mut`: there are no references to their bytes, and all
        // values of bytes are good.
        Ok(unsafe { self.move_pages(to.start, from, false) }?)
    }

    /// Makes any private anonymous memory of the program a window that pages can be moved into.
    ///
    /// # Errors
    /// [`Reason::Busy`](super::Reason::Busy) if it is watched or otherwise registered;
    /// [`Reason::Kind`](super::Reason::Kind).
    ///
    /// # Safety
    /// The memory is the caller's, and stays mapped until the mover is dropped or pages are no
    /// longer moved there.
    pub unsafe fn register(&self, range: Range<usize>) -> Result<(), Error> {
        const CALL: &str = "UFFDIO_REGISTER";
        self.here(CALL)?;
        // Any kind of registration makes a destination. With this one, pages that are missing there
        // are filled as ever, where the one for missing pages would make threads that touch them
        // wait.
        self.fd
            .register(range.clone(), abi::MODE_WP)
            .map_err(|errno| Error::new(CALL, errno).over(&range))
    }

    /// Moves pages of any private anonymous memory, as [`fold`](Mover::fold) does; `holes` are
    /// passed over if allowed, and count as moved. So does a page that is at the destination
    /// alone: the kernel may have moved it and not said so. Addresses are multiples of the page
    /// size.
    ///
    /// # Errors
    /// [`Reason::Child`](super::Reason::Child).
    ///
    /// # Safety
    /// During the call nobody uses the bytes of either range, through a reference or otherwise, and
    /// the destination was [registered](Mover::register). After it the source reads as zeros, as
    /// far as it was moved: nothing lives there any more whose value needs to stay.
    pub unsafe fn move_pages(
        &self,
        to: usize,
        from: Range<usize>,
        holes: bool,
    ) -> Result<Moved, Error> {
        self.here("UFFDIO_MOVE")?;
        let mode = if holes { abi::ALLOW_SRC_HOLES } else { 0 };
        let (mut bytes, mut tries) = (0, 0);
        while bytes < from.len() {
            // SAFETY: the caller's promise.
            let (moved, done) =
                unsafe { self.fd.move_pages(to + bytes, from.start + bytes..from.end, mode) };
            bytes += moved;
            // Only the next call tells why one that has moved some pages stopped.
            let stop = match done {
                Ok(()) => break,
                Err(Errno::AGAIN) if moved > 0 => {
                    tries = 0;
                    continue;
                }
                Err(Errno::AGAIN) if tries < TRIES => {
                    tries += 1;
                    thread::yield_now();
                    continue;
                }
                Err(Errno::AGAIN) => Stop::Changing,
                Err(Errno::BUSY) => Stop::Busy,
                Err(Errno::NOENT) => Stop::Hole,
                Err(Errno::EXIST) => {
                    let (to, from) = (to + bytes, from.start + bytes..from.end);
                    match untold::moved(to, from.start, from.len() / page_size()) {
                        0 => Stop::Taken,
                        pages => {
                            bytes += pages * page_size();
                            continue;
                        }
                    }
                }
                Err(Errno::INVAL) => Stop::Kind,
                Err(errno) => Stop::Other(errno),
            };
            return Ok(Moved { bytes, stop: Some(stop) });
        }
        Ok(Moved { bytes, stop: None })
    }

    fn here(&self, call: &'static str) -> Result<(), Error> {
        if self.mark.is_child() { Err(Error::child(call)) } else { Ok(()) }
    }
}
