//! The contents of messages, and the check that they arrived as they were sent.
//!
//! Word `i` of a message with seed `s` is `(s + i) * K` modulo 2^64, so every word of every
//! message differs from its neighbours, and from the words of messages with other seeds: bytes
//! that are stale, missing, shifted or flipped all show.

use std::fmt;

/// 2^64 divided by the golden ratio, odd.
const K: u64 = 0x9E37_79B9_7F4A_7C15;

/// The first wrong byte of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Its offset from the beginning, bytes.
    pub(crate) offset: usize,
    /// The byte that it should be.
    pub(crate) expected: u8,
    /// The byte that it is.
    pub(crate) found: u8,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { offset, expected, found } = self;
        write!(f, "the byte at offset {offset} is {found:#04x}, not {expected:#04x}")
    }
}

/// Scrambles `number` into a seed, so that messages numbered in a row do not overlap.
#[inline]
pub(crate) fn seed(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed ^ mixed >> 27
}

/// Writes the message with this seed.
#[inline]
pub(crate) fn fill(message: &mut [u8], seed: u64) {
    let mut word = seed.wrapping_mul(K);
    let mut words = message.chunks_exact_mut(8);
    for bytes in &mut words {
        bytes.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_add(K);
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&word.to_le_bytes()[..rest.len()]);
}

/// Reads all of `message` and checks that it is the one with this seed.
#[inline]
pub(crate) fn check(message: &[u8], seed: u64) -> Result<(), Mismatch> {
    let mut word = seed.wrapping_mul(K);
    let mut wrong = 0;
    let words = message.chunks_exact(8);
    let rest = words.remainder();
    for bytes in words {
        let mut found = [0; 8];
        found.copy_from_slice(bytes);
        wrong |= u64::from_le_bytes(found) ^ word;
        word = word.wrapping_add(K);
    }
    if wrong == 0 && *rest == word.to_le_bytes()[..rest.len()] {
        return Ok(());
    }
    find(message, seed)
}

#[cold]
fn find(message: &[u8], seed: u64) -> Result<(), Mismatch> {
    let byte = |offset: usize| {
        let word = seed.wrapping_add(offset as u64 / 8).wrapping_mul(K);
        word.to_le_bytes()[offset % 8]
    };
    match message.iter().enumerate().find(|&(offset, &found)| found != byte(offset)) {
        Some((offset, &found)) => Err(Mismatch { offset, expected: byte(offset), found }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_is_found() {
        for len in [1, 7, 8, 9, 56, 64, 1000, 4099] {
            let mut message = vec![0; len];
            fill(&mut message, seed(5));
            assert_eq!(check(&message, seed(5)), Ok(()));
            for offset in 0..len {
                message[offset] ^= 0x40;
                let wrong = check(&message, seed(5)).unwrap_err();
                assert_eq!((wrong.offset, wrong.found), (offset, message[offset]));
                assert_eq!(wrong.expected, message[offset] ^ 0x40);
                message[offset] ^= 0x40;
            }
        }
    }

    #[test]
    fn stale_and_shifted_messages_are_found() {
        let mut message = vec![0; 4096];
        fill(&mut message, seed(1));
        assert!(check(&message, seed(2)).is_err());
        assert!(check(&message[8..], seed(1)).is_err());
        message.rotate_left(1);
        assert!(check(&message, seed(1)).is_err());
        assert!(check(&[0; 64], seed(1)).is_err());
        assert_eq!(check(&[], seed(1)), Ok(()));
    }

    #[test]
    fn errors_name_the_place() {
        let wrong = Mismatch { offset: 17, expected: 0xab, found: 1 };
        assert_eq!(wrong.to_string(), "the byte at offset 17 is 0x01, not 0xab");
    }
}
