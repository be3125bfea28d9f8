//! The end-to-end check: XXH3, 128 bits, over the contents.
//!
//! The sender digests the bytes that it read, the receiver those that it was given to write, so
//! damage in between shows. A digest that travels beside the contents keeps nobody from forging
//! them, so it need not be a cryptographic one; accidental damage it misses once in 2^128. Holes
//! are in it by their place and their length, so that a file with nothing in it but a hole is
//! verified as fast as it is sent.
//!
//! It takes about a tenth of the time of the fastest cryptographic one, which bounded a transfer.

use std::fmt;

use twox_hash::XxHash3_128;

/// The XXH3 digest of the contents of one file or stream.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Digest(pub(super) [u8; 16]);

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Digest {
    /// The first eight bytes in hexadecimal: enough to tell two digests apart in a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A digest being computed, and the count of the bytes in it.
#[derive(Default)]
pub(super) struct Digester {
    hasher: XxHash3_128,
    /// The places and lengths of the holes, if there are any.
    holes: Option<XxHash3_128>,
    bytes: u64,
}

impl Digester {
    /// Adds the next bytes of the contents.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Adds a hole, of so many bytes.
    pub(super) fn hole(&mut self, bytes: u64) {
        let holes = self.holes.get_or_insert_default();
        holes.write(&self.bytes.to_le_bytes());
        holes.write(&bytes.to_le_bytes());
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Bytes added so far, holes included.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The digest of everything added.
    pub(super) fn finish(&self) -> Digest {
        let contents = self.hasher.finish_128().to_be_bytes();
        let Some(holes) = &self.holes else { return Digest(contents) };
        let mut both = XxHash3_128::new();
        both.write(&contents);
        both.write(&holes.finish_128().to_be_bytes());
        Digest(both.finish_128().to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_digest_as_the_whole() {
        let whole: Vec<u8> = (0..100_000u32).map(|i| (i * 7) as u8).collect();
        let mut one = Digester::default();
        one.update(&whole);
        let mut many = Digester::default();
        whole.chunks(977).for_each(|piece| many.update(piece));
        assert_eq!(one.finish(), many.finish());
        assert_eq!(many.bytes(), 100_000);
    }

    #[test]
    fn holes_count_by_place_and_length() {
        let digest = |parts: &[Result<&[u8], u64>]| {
            let mut digester = Digester::default();
            for part in parts {
                match part {
                    Ok(bytes) => digester.update(bytes),
                    Err(hole) => digester.hole(*hole),
                }
            }
            (digester.bytes(), digester.finish())
        };
        let all = [
            digest(&[Ok(b"ab"), Err(4096), Ok(b"c")]),
            digest(&[Ok(b"a"), Err(4096), Ok(b"bc")]),
            digest(&[Ok(b"ab"), Err(4097), Ok(b"c")]),
            digest(&[Ok(b"ab"), Err(2048), Err(2048), Ok(b"c")]),
            digest(&[Ok(b"abc"), Err(4096)]),
            digest(&[Ok(b"abc")]),
        ];
        assert_eq!(all[0].0, 4099);
        for (at, one) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|other| other.1 != one.1), "{all:?}");
        }
        assert_eq!(digest(&[Ok(b"a"), Ok(b"b"), Err(4096), Ok(b"c")]), all[0]);
    }

    #[test]
    fn nothing_has_the_published_digest() {
        assert_eq!(Digester::default().finish().to_string(), "99aa06d3014798d8");
    }
}
