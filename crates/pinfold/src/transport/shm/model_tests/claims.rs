//! Claims: two sides that share out the chunks of one message.

use std::sync::{Arc, Mutex, PoisonError};

use super::{check, many, thread};
use crate::{
    sync::AtomicU64,
    transport::shm::claim::{self, End},
};

/// Claims chunks from one end until there are none, or `most` of them.
fn claim_all(word: &AtomicU64, chunks: u64, end: End, most: usize, taken: &Mutex<Vec<u64>>) -> u64 {
    let mut count = 0;
    while (count as usize) < most
        && let Some(k) = claim::take(word, 1, chunks, end)
    {
        let chunk = if end == End::Front { k } else { chunks - 1 - k };
        taken.lock().unwrap_or_else(PoisonError::into_inner).push(chunk);
        count += 1;
    }
    count
}

/// Both sides claim; the receiver stops after `most` chunks and closes.
fn share(chunks: u64, most: usize) {
    let word = Arc::new(AtomicU64::new(0));
    let taken = Arc::new(Mutex::new(Vec::new()));
    claim::open(&word, 1);
    let (their_word, their_taken) = (Arc::clone(&word), Arc::clone(&taken));
    let sender =
        thread::spawn(move || claim_all(&their_word, chunks, End::Back, usize::MAX, &their_taken));
    let mine = claim_all(&word, chunks, End::Front, most, &taken);
    let theirs = claim::close(&word, 1);
    let sent = sender.join().unwrap();
    assert_eq!(theirs, sent, "the sender claimed after the close, or the close missed a claim");
    let mut taken = std::mem::take(&mut *taken.lock().unwrap_or_else(PoisonError::into_inner));
    taken.sort_unstable();
    let (front, back) = (0..mine, chunks - theirs..chunks);
    assert_eq!(taken, front.chain(back).collect::<Vec<_>>(), "a chunk twice, or a wrong one");
    if most == usize::MAX {
        assert_eq!(mine + theirs, chunks, "a chunk that nobody copies");
    }
}

#[test]
fn every_chunk_is_claimed_once() {
    check(None, || share(many(3), usize::MAX));
}

#[test]
fn nothing_is_claimed_after_the_close() {
    check(None, || share(many(3), 1));
}

/// The receiver is done and uses the line again while the sender still claims for the old
/// transfer: the new one is not touched.
#[test]
fn a_late_claim_does_not_disturb_the_next_transfer() {
    check(None, || {
        let word = Arc::new(AtomicU64::new(0));
        claim::open(&word, 1);
        let their_word = Arc::clone(&word);
        let sender = thread::spawn(move || {
            let first = claim::take(&their_word, 1, 2, End::Back);
            let second = claim::take(&their_word, 1, 2, End::Back);
            u64::from(first.is_some()) + u64::from(second.is_some())
        });
        let theirs = claim::close(&word, 1);
        claim::open(&word, 2);
        let mine: Vec<_> = std::iter::from_fn(|| claim::take(&word, 2, 2, End::Front)).collect();
        assert_eq!(sender.join().unwrap(), theirs);
        assert_eq!(mine, [0, 1]);
        assert_eq!(claim::close(&word, 2), 0);
    });
}
