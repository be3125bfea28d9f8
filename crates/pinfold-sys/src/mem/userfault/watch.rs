//! The watched ranges, and their events.
//!
//! Invariant: `ranges` covers all that is registered with the descriptor as far as this process
//! knows, and may be more. All of it is unregistered before the descriptor is closed, so that
//! nobody ever waits for a reader that is gone, although a child may have kept a copy of the
//! descriptor.

use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::io::Errno;

use super::{
    abi::{self, Fd, Message},
    error::Error,
    event::Event,
    open,
};
use crate::{fork::ForkMark, mem::maps::Maps};

/// The state of a range that was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// All memory mapped there is watched.
    Valid,
    /// Some memory there is not watched: it was replaced, or nothing is there.
    Replaced,
    /// Some watched memory, maybe other, is being unmapped or moved, and the thread that does so
    /// has not gone on yet: its event was not read, or only just.
    Pending,
}

/// Hears of each unmap, remap and discard of the ranges that it watches.
///
/// A thread that unmaps watched memory waits until another has called [`events`](Watch::events).
/// That must not be a thread that may itself unmap watched memory, or wait for a lock whose holder
/// may, the allocator's among them: use [`Reader`](super::Reader).
#[derive(Debug)]
pub struct Watch {
    fd: Fd,
    any: bool,
    mark: ForkMark,
    /// Sorted, apart from each other.
    ranges: Mutex<Vec<Range<usize>>>,
}

/// The addresses that memory of programs can have.
const ANYWHERE: Range<usize> = 1 << 16..1 << 47;

/// Messages read by one call.
pub(super) const BATCH: usize = 16;

impl Watch {
    /// Watches nothing yet. Some 10 µs.
    ///
    /// # Errors
    /// [`Reason::Denied`](super::Reason::Denied) or [`Reason::Absent`](super::Reason::Absent) where
    /// there is no userfaultfd for this process;
    /// [`Reason::Exhausted`](super::Reason::Exhausted).
    pub fn new() -> Result<Watch, Error> {
        let mark = ForkMark::new().map_err(|error| {
            Error::new("mmap", Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
        })?;
        let (fd, any) = open::watching()?;
        Ok(Watch { fd, any, mark, ranges: Mutex::default() })
    }

    /// True if mappings of files can be watched, too.
    pub fn takes_any(&self) -> bool {
        self.any
    }

    /// Watches `range`, whole pages all of which are mapped, from now on. Memory that is watched
    /// already stays so. About 0.5 µs; 2 µs, and one mapping more, for each end that lies within a
    /// mapping.
    ///
    /// # Errors
    /// [`Reason::Busy`](super::Reason::Busy) if another userfaultfd has some of it;
    /// [`Reason::Kind`](super::Reason::Kind) for memory that cannot be watched (files before
    /// Linux 6.7, special mappings, files that may not be written before 6.7) and ranges that
    /// are not pages or not mapped; [`Reason::Exhausted`](super::Reason::Exhausted) at
    /// `vm.max_map_count`; [`Reason::Child`](super::Reason::Child). Then none of it is watched that
    /// was not.
    pub fn watch(&self, range: Range<usize>) -> Result<(), Error> {
        const CALL: &str = "UFFDIO_REGISTER";
        self.here(CALL)?;
        let mut ranges = self.ranges();
        // Put down first: a range that is not registered after all does no harm in there.
        join(&mut ranges, range.clone());
        self.fd
            .register(range.clone(), abi::MODE_WP)
            .map_err(|errno| Error::new(CALL, errno).over(&range))
    }

    /// No longer watches anything in `range`, whole pages. Changes to it are not heard of from now
    /// on; earlier ones still may be. About 0.6 µs and 20 ns a page that is there.
    ///
    /// # Errors
    /// [`Reason::Kind`](super::Reason::Kind) for ranges that are not pages;
    /// [`Reason::Child`](super::Reason::Child).
    pub fn unwatch(&self, range: Range<usize>) -> Result<(), Error> {
        const CALL: &str = "UFFDIO_UNREGISTER";
        self.here(CALL)?;
        let mut ranges = self.ranges();
        self.release(range.clone()).map_err(|errno| Error::new(CALL, errno).over(&range))?;
        cut(&mut ranges, &range);
        Ok(())
    }

    /// Reads at most 16 events, never waits; returns how many. The threads that caused them go on.
    /// 0 if there were none.
    ///
    /// # Errors
    /// [`Reason::Child`](super::Reason::Child); nothing else is expected.
    pub fn events(&self, mut each: impl FnMut(Event)) -> Result<usize, Error> {
        let mut room = [Message::default(); BATCH];
        let read = self.read(&mut room)?;
        for message in &room[..read] {
            let event = Event::decode(message);
            self.follow(&event);
            each(event);
        }
        Ok(read)
    }

    /// As [`events`](Watch::events), but takes no lock.
    pub(super) fn read(&self, room: &mut [Message; BATCH]) -> Result<usize, Error> {
        const CALL: &str = "read";
        self.here(CALL)?;
        match self.fd.read(room) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            read => read.map_err(|errno| Error::new(CALL, errno)),
        }
    }

    /// Moved memory is watched at its new place. Takes the lock and memory, so the readers do not.
    pub(super) fn follow(&self, event: &Event) {
        match *event {
            Event::Remapped { to, len, .. } => {
                join(&mut self.ranges(), to..to.saturating_add(len));
            }
            Event::Lost => join(&mut self.ranges(), ANYWHERE),
            Event::Unmapped(_) | Event::Removed(_) => {}
        }
    }

    /// Returns whether `range`, whole pages, is still what was watched; see [`Validity`], and the
    /// module for changes that this does not notice. Looks at each page's entry: about 0.25 µs and
    /// up to 45 ns a page (a huge one counts as one); see [`is_quiet`](Watch::is_quiet) for less.
    ///
    /// # Errors
    /// [`Reason::Kind`](super::Reason::Kind) for ranges that are empty or not pages;
    /// [`Reason::Child`](super::Reason::Child).
    pub fn validate(&self, range: Range<usize>) -> Result<Validity, Error> {
        const CALL: &str = "UFFDIO_WRITEPROTECT";
        self.here(CALL)?;
        match self.fd.unprotect(range.clone()) {
            Ok(()) => Ok(Validity::Valid),
            Err(Errno::NOENT) => Ok(Validity::Replaced),
            Err(Errno::AGAIN) => Ok(Validity::Pending),
            Err(errno) => Err(Error::new(CALL, errno).over(&range)),
        }
    }

    /// Returns whether no watched memory at all is being unmapped, moved or discarded by a thread
    /// that has not gone on yet, which [`validate`](Watch::validate) calls pending. Looks at no
    /// page: one short system call, about 0.14 µs.
    ///
    /// # Errors
    /// [`Reason::Child`](super::Reason::Child); nothing else is expected.
    pub fn is_quiet(&self) -> Result<bool, Error> {
        const CALL: &str = "UFFDIO_WRITEPROTECT";
        self.here(CALL)?;
        // The kernel looks for changes in progress before it finds that the range is empty.
        match self.fd.unprotect(0..0) {
            Err(Errno::INVAL) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(Error::new(CALL, errno)),
            Ok(()) => Err(Error::lacking(CALL)),
        }
    }

    /// Stops watching everything. Events in progress still have to be read.
    pub(super) fn unwatch_all(&self) {
        if self.mark.is_child() {
            return;
        }
        for range in self.ranges().drain(..) {
            let _ = self.release(range);
        }
    }

    fn release(&self, range: Range<usize>) -> Result<(), Errno> {
        match self.fd.unregister(range.clone()) {
            // Some memory there cannot be registered at all, or nothing is there: piece by piece.
            Err(Errno::INVAL) if is_pages(&range) => {
                let pieces = Maps::open().and_then(|maps| maps.mapped_within(&range));
                for piece in pieces.unwrap_or_default() {
                    let _ = self.fd.unregister(piece);
                }
                Ok(())
            }
            done => done,
        }
    }

    pub(super) fn here(&self, call: &'static str) -> Result<(), Error> {
        if self.mark.is_child() { Err(Error::child(call)) } else { Ok(()) }
    }

    fn ranges(&self) -> MutexGuard<'_, Vec<Range<usize>>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Watch {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.unwatch_all();
        // A thread that had begun to unmap before that waits still.
        while self.events(|_| {}).is_ok_and(|read| read > 0) || self.is_quiet() == Ok(false) {
            std::thread::yield_now();
        }
    }
}

fn is_pages(range: &Range<usize>) -> bool {
    let page = rustix::param::page_size();
    range.start < range.end && range.start.is_multiple_of(page) && range.end.is_multiple_of(page)
}

/// Adds `new`, and makes one range of those that then touch.
fn join(ranges: &mut Vec<Range<usize>>, mut new: Range<usize>) {
    if new.is_empty() {
        return;
    }
    let from = ranges.partition_point(|range| range.end < new.start);
    let to = from + ranges[from..].partition_point(|range| range.start <= new.end);
    if let Some(first) = ranges[from..to].first() {
        new.start = new.start.min(first.start);
    }
    if let Some(last) = ranges[from..to].last() {
        new.end = new.end.max(last.end);
    }
    ranges.splice(from..to, [new]);
}

/// Takes `gone` away.
fn cut(ranges: &mut Vec<Range<usize>>, gone: &Range<usize>) {
    let from = ranges.partition_point(|range| range.end <= gone.start);
    let to = from + ranges[from..].partition_point(|range| range.start < gone.end);
    let rest: Vec<_> = ranges[from..to]
        .iter()
        .flat_map(|range| [range.start..gone.start, gone.end..range.end])
        .filter(|rest| !rest.is_empty())
        .collect();
    ranges.splice(from..to, rest);
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    proptest! {
        /// Compares the ranges with a set of numbers.
        #[test]
        fn ranges_are_sets(steps in vec((any::<bool>(), 0..40usize, 0..12usize), 0..40)) {
            let (mut ranges, mut naive) = (Vec::new(), [false; 64]);
            for (add, start, len) in steps {
                naive[start..start + len].fill(add);
                if add {
                    join(&mut ranges, start..start + len);
                } else if len > 0 {
                    cut(&mut ranges, &(start..start + len));
                }
                for (at, &is_in) in naive.iter().enumerate() {
                    prop_assert_eq!(ranges.iter().any(|range| range.contains(&at)), is_in);
                }
                prop_assert!(ranges.windows(2).all(|two| two[0].end < two[1].start));
                prop_assert!(ranges.iter().all(|range| !range.is_empty()));
            }
        }
    }
}
