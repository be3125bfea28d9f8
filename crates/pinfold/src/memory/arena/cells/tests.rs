#![allow(unsafe_code)]
//! Copies by atomic words, against threads that copy the same bytes.

use std::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use proptest::prelude::*;

use super::Cells;

/// The cells of some words.
fn cells(words: &[AtomicU64]) -> Cells {
    let at = NonNull::from(words).cast();
    // SAFETY: the tests use them while the words are there, and reach those no other way meanwhile.
    unsafe { Cells::new(at, size_of_val(words)) }
}

fn bytes(words: &[AtomicU64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
}

proptest! {
    #[test]
    #[cfg_attr(miri, ignore = "Miri knows atomics of one size at one place only")]
    fn what_is_written_is_read_and_nothing_else_changes(
        writes in proptest::collection::vec((0usize..40, proptest::collection::vec(any::<u8>(), 0..40)), 1..8),
        offset in 0usize..40,
        len in 0usize..40,
    ) {
        let words: [AtomicU64; 4] = Default::default();
        let cells = cells(&words);
        let mut wanted = vec![0; cells.len()];
        for (offset, from) in writes {
            let fits = offset + from.len() <= wanted.len();
            prop_assert_eq!(cells.write(offset, &from), fits);
            if fits {
                wanted[offset..offset + from.len()].copy_from_slice(&from);
            }
        }
        let mut into = vec![7; len];
        let fits = offset + len <= wanted.len();
        prop_assert_eq!(cells.read(offset, &mut into), fits);
        prop_assert_eq!(&into[..], if fits { &wanted[offset..offset + len] } else { &[7; 40][..len] });
        prop_assert_eq!(bytes(&words), wanted);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri knows atomics of one size at one place only")]
fn words_are_those_that_lie_inside_and_straight() {
    let words: [AtomicU64; 2] = Default::default();
    let cells = cells(&words);
    cells.fill(0x11);
    assert_eq!(bytes(&words), [0x11; 16]);
    for offset in (0..20).chain([usize::MAX - 7, usize::MAX]) {
        // SAFETY: used while `words` is there.
        let (word32, word64) = unsafe { (cells.word32(offset), cells.word64(offset)) };
        assert_eq!(word32.is_some(), offset % 4 == 0 && offset < 16, "{offset}");
        assert_eq!(word64.is_some(), offset % 8 == 0 && offset < 16, "{offset}");
        assert!(word32.is_none_or(|word| word.load(Ordering::Relaxed) == 0x1111_1111));
    }
    assert!(!cells.write(usize::MAX, &[1, 2]) && !cells.read(17, &mut []));
    assert!(cells.write(16, &[]));
}

/// Aligned words go over as wholes, no matter what the other side does meanwhile.
#[test]
fn aligned_words_are_never_torn() {
    let rounds = if cfg!(miri) { 20 } else { 20_000u64 };
    let words: [AtomicU64; 3] = Default::default();
    std::thread::scope(|scope| {
        let (ours, theirs) = (cells(&words), cells(&words));
        scope.spawn(move || {
            (0..rounds).for_each(|i| assert!(ours.write(0, &[i as u8; 24])));
        });
        let mut into = [0; 24];
        for _ in 0..rounds {
            assert!(theirs.read(0, &mut into));
            for word in into.chunks(8) {
                assert!(word.iter().all(|byte| *byte == word[0]), "{word:?}");
            }
        }
    });
}
