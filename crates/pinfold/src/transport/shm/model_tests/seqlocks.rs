//! Sequence locks: a writer that never waits, and a reader that is never told a torn copy is good.

use std::sync::Arc;

use super::{check, many, thread};
#[cfg(loom)]
use crate::sync::fence;
use crate::sync::{AtomicU64, Ordering, seqlock};

/// Words that are guarded together.
const WORDS: usize = 2;

struct Guarded {
    seq: AtomicU64,
    words: [AtomicU64; WORDS],
}

type Change = fn(&Guarded, u64);

/// Stores the same number into every word.
fn store(guarded: &Guarded, value: u64) {
    for word in &guarded.words {
        word.store(value, Ordering::Relaxed);
    }
}

/// One thread changes the words `changes` times, another copies them.
fn read_while_written(change: Change, changes: u64, reads: u64) {
    let seq = AtomicU64::new(0);
    let words = std::array::from_fn(|_| AtomicU64::new(0));
    let guarded = Arc::new(Guarded { seq, words });
    let theirs = Arc::clone(&guarded);
    let writer = thread::spawn(move || (1..=changes).for_each(|value| change(&theirs, value)));
    let copy = || guarded.words.each_ref().map(|word| word.load(Ordering::Relaxed));
    let mut last = 0;
    for _ in 0..reads {
        // A reader that is disturbed all the time has to give up, and does no more than that.
        let Some(words) = seqlock::read(&guarded.seq, 2, copy) else { continue };
        assert!(words.iter().all(|word| *word == words[0]), "a torn copy: {words:?}");
        assert!(words[0] >= last, "back from {last} to {}", words[0]);
        last = words[0];
    }
    writer.join().unwrap();
    // Undisturbed, the reader gets the words as they are.
    assert_eq!(seqlock::read(&guarded.seq, 1, copy), Some([changes; WORDS]));
}

#[test]
fn copies_are_whole() {
    let change: Change = |guarded, value| seqlock::write(&guarded.seq, || store(guarded, value));
    check(Some(3), move || read_while_written(change, many(2), many(2)));
}

#[test]
fn one_that_died_in_the_middle_is_given_up() {
    check(None, || {
        let seq = AtomicU64::new(6);
        assert_eq!(seqlock::read(&seq, 1, || 1), Some(1));
        seqlock::write(&seq, || assert_eq!(seqlock::read(&seq, 3, || 1), None));
        assert_eq!(seqlock::read(&seq, 1, || 1), Some(1));
        // A stranger's number, odd or the highest there is, is only a number.
        for odd in [1, u64::MAX] {
            seq.store(odd, Ordering::Relaxed);
            assert_eq!(seqlock::read(&seq, 3, || 1), None);
            seqlock::write(&seq, || {});
            assert_eq!(seqlock::read(&seq, 1, || 1), Some(1));
        }
    });
}

/// The writer without its fence: a reader can see a new word under the old number.
#[cfg(loom)]
#[test]
#[should_panic(expected = "a torn copy")]
fn mutant_without_the_fence() {
    let change: Change = |guarded, value| {
        let odd = guarded.seq.load(Ordering::Relaxed) + 1;
        guarded.seq.store(odd, Ordering::Relaxed);
        store(guarded, value);
        guarded.seq.store(odd + 1, Ordering::Release);
    };
    check(Some(3), move || read_while_written(change, 2, 2));
}

/// The writer whose last store does not order: a reader can see an old word under the new number.
#[cfg(loom)]
#[test]
#[should_panic(expected = "a torn copy")]
fn mutant_without_the_release() {
    let change: Change = |guarded, value| {
        let odd = guarded.seq.load(Ordering::Relaxed) + 1;
        guarded.seq.store(odd, Ordering::Relaxed);
        fence(Ordering::Release);
        store(guarded, value);
        guarded.seq.store(odd + 1, Ordering::Relaxed);
    };
    check(Some(3), move || read_while_written(change, 2, 2));
}
