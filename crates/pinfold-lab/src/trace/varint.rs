//! Numbers of seven bits a byte, the low ones first (LEB128), and signed ones folded to these.

/// Bytes of the longest number.
pub(super) const BYTES_MAX: usize = 10;

/// Appends a number.
pub(super) fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Appends a signed number: near to 0 is short.
pub(super) fn put_signed(into: &mut Vec<u8>, number: i64) {
    put(into, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

/// Appends the difference of two numbers of 64 bits, around the end of the range.
pub(super) fn put_difference(into: &mut Vec<u8>, from: u64, to: u64) {
    put_signed(into, to.wrapping_sub(from).cast_signed());
}

/// Bytes that are taken from the front.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    /// So many bytes; `None` if there are fewer.
    pub(super) fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let count = usize::try_from(count).ok()?;
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// One byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|one| one[0])
    }

    /// A number; `None` if it is cut off, or longer than 64 bits.
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for at in 0..BYTES_MAX as u32 {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if at == 9 && bits > 1 {
                return None;
            }
            number |= bits << (7 * at);
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A signed number.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let folded = self.number()?;
        Some((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    /// A number of 32 bits.
    pub(super) fn short(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// The number that lies so far from another.
    pub(super) fn difference(&mut self, from: u64) -> Option<u64> {
        Some(from.wrapping_add(self.signed()?.cast_unsigned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_are_too_long_or_cut_off() {
        let mut longest = Vec::new();
        put(&mut longest, u64::MAX);
        assert_eq!((longest.len(), longest[9]), (BYTES_MAX, 1));
        longest[9] = 2;
        for bytes in [&[][..], &[0x80], &longest, &[0xFF; 11]] {
            assert_eq!(Bytes(bytes).number(), None, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn numbers_come_back(one: u64, two: i64, three: u64, shift in 0u32..64) {
            let (one, two) = (one >> shift, two >> shift);
            let mut bytes = Vec::new();
            put(&mut bytes, one);
            put_signed(&mut bytes, two);
            put_difference(&mut bytes, one, three);
            let mut left = Bytes(&bytes);
            prop_assert_eq!(left.number(), Some(one));
            prop_assert_eq!(left.signed(), Some(two));
            prop_assert_eq!(left.difference(one), Some(three));
            prop_assert!(left.0.is_empty());
        }
    }
}
