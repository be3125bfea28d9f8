#![allow(unsafe_code)]
//! Bulk copies that threads make outside the endpoint's lock: by one-sided operations, out of
//! views, of payloads that are kept. Each thread learns for itself; the endpoint counts.
//!
//! The thread that made the endpoint counts in words of its own, as cheaply as under the lock; all
//! other threads share some.
//!
//! **Invariant.** Nothing but the blocks that the caller named is touched.

use super::shared::Shared;
use crate::{
    copy::{self, Algorithm, BULK, Caller, Counts, Largest, Reader, Stores},
    status::UnlockedWords,
    sync::biased::this_thread,
};

/// The purpose of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Purpose {
    caller: Caller,
    reader: Reader,
}

impl Purpose {
    /// Written to a peer's region. When the peer reads it, and how much of it, is not known;
    /// meanwhile the writer waits, which stores past the caches make up to 2.5 times as long.
    pub(crate) const WRITE: Purpose =
        Purpose { caller: Caller::Named("one-sided write"), reader: Reader::Me };
    /// Read out of a peer's region.
    pub(crate) const READ: Purpose =
        Purpose { caller: Caller::Named("one-sided read"), reader: Reader::Me };
    /// Copied out of a message that stays where it is.
    pub(crate) const VIEW: Purpose = Purpose { caller: Caller::Named("view"), reader: Reader::Me };
    /// Kept until there is room in the ring, into which this core copies it then.
    pub(crate) const PAYLOAD: Purpose =
        Purpose { caller: Caller::Named("payload"), reader: Reader::Me };
}

/// The counts of an endpoint's copies.
pub(crate) struct UnlockedCopies {
    /// The thread that made the endpoint.
    maker: usize,
    by_maker: copy::Tally,
    by_others: copy::Tally,
    /// The words of the counts that other processes may see.
    words: UnlockedWords,
}

impl UnlockedCopies {
    /// Made by the thread that makes the endpoint.
    pub(crate) fn new(words: UnlockedWords) -> UnlockedCopies {
        let (by_maker, by_others) = Default::default();
        UnlockedCopies { maker: this_thread(), by_maker, by_others, words }
    }

    /// Copies `len` bytes, and counts them.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap. Threads of
    /// this process write neither meanwhile.
    #[inline(never)]
    unsafe fn copy(&self, what: Purpose, from: *const u8, to: *mut u8, len: usize) -> Largest {
        // SAFETY: as the caller promised.
        let done = unsafe { copy::copy_for(what.caller, what.reader, from, to, len) };
        self.count(done.algorithm, len);
        Largest::of(done.algorithm, len)
    }

    /// Counts a copy that was made, of many bytes.
    pub(crate) fn count(&self, algorithm: Algorithm, len: usize) {
        let streamed = algorithm.stores() == Stores::Streaming;
        if this_thread() == self.maker {
            self.by_maker.copied(algorithm, len);
            self.words.add_by_maker(len as u64, streamed);
        } else {
            self.by_others.copied_with_others(algorithm, len);
            self.words.add_by_others(len as u64, streamed);
        }
    }

    /// The counts so far.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.by_maker.counts();
        counts += &self.by_others.counts();
        counts
    }
}

impl Shared {
    /// Copies `len` bytes outside the engine; counts them if they are many. Returns the algorithm
    /// that was used.
    ///
    /// # Safety
    /// `from` is readable and `to` writable for so many bytes, and they do not overlap. Threads of
    /// this process write neither meanwhile.
    #[inline]
    pub(crate) unsafe fn copy_unlocked(
        &self,
        what: Purpose,
        from: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Largest {
        // A child of the process lacks the words to count in.
        if len < BULK || self.is_forked() {
            // SAFETY: as the caller promised.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            return Largest::NONE;
        }
        // SAFETY: as the caller promised.
        unsafe { self.unlocked.copy(what, from, to, len) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::{
        copy::Count,
        status::{Identity, Status},
    };

    #[test]
    fn other_threads_count_where_the_maker_does_not() {
        let status = Status::new(&Identity {
            id: [1; 16],
            label: "aside",
            address: None,
            lane_bytes_max: 0,
            unexpected_bytes_max: 0,
            mapped_bytes_max: 0,
        })
        .unwrap();
        let unlocked = UnlockedCopies::new(status.unlocked());
        let libc = usize::from(Algorithm::LIBC.id());
        unlocked.count(Algorithm::LIBC, 5001);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| unlocked.count(Algorithm::LIBC, 3001)));
            }
        });
        let [maker, others] = [&unlocked.by_maker, &unlocked.by_others].map(|tally| tally.counts());
        assert_eq!(maker.copied[libc], Count { copies: 1, bytes: 5001 });
        assert_eq!(others.copied[libc], Count { copies: 4000, bytes: 4000 * 3001 });
        assert_eq!(unlocked.counts().copied[libc].copies, 4001);
    }
}
