//! Idle polls: those of a thread since it last had news, from whichever of its queues.
//!
//! A program may poll several queues in turn, some of which never have news (Open MPI's one-sided
//! operations have their own): these must not give its core away while messages come by another.

use std::cell::Cell;

/// Polls without news after which a thread lets others have its core: some 20 µs.
const POLLS: u32 = 400;

thread_local! {
    static IDLE: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread has news.
#[inline]
pub fn end() {
    IDLE.set(0);
}

/// The calling thread has polled a queue in vain. Returns whether others may need its core.
#[inline]
pub fn poll() -> bool {
    let polls = IDLE.get().saturating_add(1);
    IDLE.set(polls);
    polls >= POLLS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_by_one_queue_keep_the_core_for_polls_of_all() {
        end();
        let gave_way = (1..POLLS).any(|_| poll());
        assert!(!gave_way);
        // Another thread's news are its own.
        std::thread::spawn(|| assert!(!poll())).join().unwrap();
        assert!(poll() && poll());
        // Each round has a poll in vain of a queue that never has news.
        let gave_way = (0..2 * POLLS).any(|_| {
            end();
            poll()
        });
        assert!(!gave_way);
    }
}
