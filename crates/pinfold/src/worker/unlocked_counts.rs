//! Counts of the bulk copies that threads make outside the endpoint's lock.
//!
//! The thread that made the endpoint counts in words of its own, as cheaply as under the lock; all
//! other threads share some.

use crate::{
    copy::{self, Algorithm, Counts, Stores},
    status::UnlockedWords,
    sync::biased::this_thread,
};

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
