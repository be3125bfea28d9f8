#![allow(unsafe_code)]
//! Several words stored by as few instructions as there can be.
//!
//! **Invariant.** The effect is that of one relaxed atomic store a word: all of `words`, to the
//! places of the same number, and nothing else.
//!
//! A line that another core polls is taken away by its next look, also when only half of the words
//! have been written: then it has to come back first, two hops for nothing. The fewer cycles lie
//! between the first store and the last, the rarer that is.

use super::{AtomicU64, Ordering};

/// Stores each word at its place, in any order, relaxed; as many as there are of both.
#[inline(always)]
pub(crate) fn store_words(places: &[AtomicU64], words: &[u64]) {
    let len = places.len().min(words.len());
    let (places, words) = (&places[..len], &words[..len]);
    // An odd one goes first: the rest of a descriptor's body is then aligned.
    let odd = len % 2;
    for (place, word) in places[..odd].iter().zip(words) {
        place.store(*word, Ordering::Relaxed);
    }
    for (places, words) in places[odd..].chunks_exact(2).zip(words[odd..].chunks_exact(2)) {
        store_pair(places, words);
    }
}

#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
#[inline(always)]
fn store_pair(places: &[AtomicU64], words: &[u64]) {
    use std::{
        arch::{asm, x86_64::_mm_set_epi64x},
        mem::size_of_val,
    };
    assert!(size_of_val(places) == 16 && words.len() == 2);
    // SAFETY: SSE2 is part of x86-64; places are 16 bytes that may be written through a shared
    // reference, as atomics. The processor stores each aligned half of them at once and orders them
    // as plain stores, which is what relaxed stores are.
    unsafe {
        let pair = _mm_set_epi64x(words[1].cast_signed(), words[0].cast_signed());
        asm!("movups [{at}], {pair}", at = in(reg) places.as_ptr(), pair = in(xmm_reg) pair,
            options(nostack, preserves_flags));
    }
}

#[cfg(all(target_arch = "aarch64", not(any(miri, loom))))]
#[inline(always)]
fn store_pair(places: &[AtomicU64], words: &[u64]) {
    assert!(std::mem::size_of_val(places) == 16 && words.len() == 2);
    // SAFETY: as above: every AArch64 processor has the instruction, which stores each aligned word
    // at once and orders neither.
    unsafe {
        std::arch::asm!("stp {one}, {two}, [{at}]", at = in(reg) places.as_ptr(),
            one = in(reg) words[0], two = in(reg) words[1], options(nostack, preserves_flags));
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, loom)))))]
#[inline(always)]
fn store_pair(places: &[AtomicU64], words: &[u64]) {
    for (place, word) in places.iter().zip(words) {
        place.store(*word, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_stored_and_no_other() {
        for len in 0..12 {
            for many in 0..12 {
                let places: Vec<AtomicU64> = (0..14).map(|_| AtomicU64::new(u64::MAX)).collect();
                let words: Vec<u64> = (1..=many).collect();
                store_words(&places[1..=len], &words);
                let stored = len.min(many as usize);
                for (at, place) in places.iter().enumerate() {
                    let word = if (1..=stored).contains(&at) { at as u64 } else { u64::MAX };
                    assert_eq!(place.load(Ordering::Relaxed), word, "{len} {many} {at}");
                }
            }
        }
    }
}
